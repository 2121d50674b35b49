"""Experiments: what to run, as values, names and files."""
