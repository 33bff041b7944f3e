"""Larder and comparable tools, in one run on one machine: `python -m benchmarks.NAME`."""
