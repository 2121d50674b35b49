"""Engines: where clients run. They map a job over the clients of a round, in order."""

from undrift.engines.compiled import Compiled
from undrift.engines.sequential import Engine, Sequential
from undrift.engines.threads import Threads

__all__ = ["Compiled", "Engine", "Sequential", "Threads"]
