"""What Prefect adds to each stage: retries, names and progress. One file per stage."""
