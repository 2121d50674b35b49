"""Engines: where clients run. They map a job over the clients of a round, in order."""

from functools import cache

from undrift.config.choices import EngineName
from undrift.engines.auto import Auto
from undrift.engines.base import Engine, Prepared
from undrift.engines.compiled import Compiled
from undrift.engines.sequential import Sequential
from undrift.engines.threads import Threads


def engine(name: EngineName, workers: int | None = None) -> Engine:
    """An engine by its name; `workers` is for those that have any."""
    if name == "sequential":
        return Sequential()
    kinds: dict[str, type[Auto | Threads]]
    kinds = {"auto": Auto, "compiled": Compiled, "threads": Threads}
    return kinds[name](workers)


@cache
def usual_engine() -> Auto:
    """The engine that is used if none is given."""
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
