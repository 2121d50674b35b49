"""Downloading and reading data files."""
