"""undrift: federated optimisation under client drift."""

__version__ = "0.1.0"
