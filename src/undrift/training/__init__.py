"""Training of one client: task, local work, trainer, memory."""
