"""Experiments: their settings as objects, names and TOML files."""
