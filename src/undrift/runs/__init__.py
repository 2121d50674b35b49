"""Run directories: run an experiment in a folder, stop, resume, fork, verify and read it."""
