"""The Prefect flows of Larder: one per file."""
