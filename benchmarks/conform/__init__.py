"""Implementations of other libraries, and ours, compared with the methods."""
