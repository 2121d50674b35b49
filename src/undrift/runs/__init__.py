"""Runs: an experiment in a folder, to be stopped, resumed, forked and read."""
