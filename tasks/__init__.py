"""What Prefect adds to each stage: retries, names, progress. One file per stage."""
