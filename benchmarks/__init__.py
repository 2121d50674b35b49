"""Benchmarks of the simulator: `make bench`."""
