"""What happens in which order: one flow per file, each run by python -m flows.NAME."""
