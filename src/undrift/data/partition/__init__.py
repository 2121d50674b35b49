"""Partitions: who holds which samples."""
