"""The parts of `benchmarks.growth`: what is packed, how it changes, and who packs it."""
