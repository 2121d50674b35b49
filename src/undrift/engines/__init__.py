"""Engines: where clients run. They map a job over the clients of a round, in order."""

from undrift.engines.compiled import Auto, Compiled
from undrift.engines.sequential import Engine, Sequential
from undrift.engines.threads import Threads

ENGINES = {"auto": Auto, "compiled": Compiled, "threads": Threads, "sequential": Sequential}
"""by the names that the command line knows"""

__all__ = ["ENGINES", "Auto", "Compiled", "Engine", "Sequential", "Threads"]
