"""Tokenisation of texts."""
