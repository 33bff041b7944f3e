"""A directory as a store."""
