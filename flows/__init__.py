"""Where the application lives that orders the stages: one flow per file."""
