"""The parts of benchmarks/copy.py."""
