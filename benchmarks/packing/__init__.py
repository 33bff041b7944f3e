"""The parts of the benchmark of shards: bodies of files, who packs them, and what is checked."""
