"""The operating system: files, locks, signals, optional packages."""
