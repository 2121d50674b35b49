"""The version of undrift."""

__version__ = "0.1.0"
