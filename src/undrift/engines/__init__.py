"""Engines: run the jobs of a round's clients, one by one or in parallel."""

from functools import cache

from undrift.config.choices import EngineName
from undrift.engines.auto import Auto
from undrift.engines.base import Engine, Prepared
from undrift.engines.compiled import Compiled
from undrift.engines.sequential import Sequential
from undrift.engines.threads import Threads


def engine(name: EngineName, workers: int | None = None) -> Engine:
    """An engine by its name; "sequential" has no workers."""
    if name == "sequential":
        return Sequential()
    kinds: dict[str, type[Auto | Threads]]
    kinds = {"auto": Auto, "compiled": Compiled, "threads": Threads}
    return kinds[name](workers)


@cache
def usual_engine() -> Auto:
    """The default engine."""
    return Auto()


__all__ = [
    "Auto",
    "Compiled",
    "Engine",
    "EngineName",
    "Prepared",
    "Sequential",
    "Threads",
    "engine",
    "usual_engine",
]
