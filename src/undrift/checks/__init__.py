"""Checks of algorithms: laws that every algorithm must obey, and replay on explicit inputs."""
