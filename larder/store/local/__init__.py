"""A directory as a `store`: how a file is written (`write`), listed (`walk`), and described (`files`)."""
