"""Engines: where clients run. They map a function over the clients of a round, in order."""

from undrift.engines.sequential import Engine, Sequential

__all__ = ["Engine", "Sequential"]
