"""A directory as a `store`: how a file is written (`write`), listed (`walk`), described (`files`)."""
