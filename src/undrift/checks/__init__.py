"""Checks: the laws that every algorithm obeys, and replay on explicit inputs."""
