"""Engines: run the jobs of a round's clients, one by one or in parallel."""

from dataclasses import replace
from functools import cache

from undrift.config import UndriftError
from undrift.config.expressions import parse
from undrift.engines.auto import Auto
from undrift.engines.base import Engine, Prepared
from undrift.engines.compiled import Compiled
from undrift.engines.ray.engine import Ray
from undrift.engines.sequential import Sequential
from undrift.engines.threads import Threads

ENGINES = {
    "Auto": Auto,
    "Compiled": Compiled,
    "Threads": Threads,
    "Sequential": Sequential,
    "Ray": Ray,
}


def engine(given: str | Engine, workers: int | None = None) -> Engine:
    """An engine by its name, such as `Compiled(workers=2)` or `threads`.

    workers  those of an engine that has some and was given none
    """
    made = parse(given, ENGINES, "engine") if isinstance(given, str) else given
    if not isinstance(made, Engine):
        raise UndriftError(f"{given!r} is not an engine; give one of {', '.join(ENGINES)}")
    if workers is None or not isinstance(made, Auto | Threads | Ray):
        return made
    if made.workers is not None:
        raise UndriftError(f"{made!r} has its workers; leave out workers={workers}")
    return replace(made, workers=workers)


@cache
def usual_engine() -> Auto:
    """The default engine."""
    return Auto()


__all__ = [
    "ENGINES",
    "Auto",
    "Compiled",
    "Engine",
    "Prepared",
    "Ray",
    "Sequential",
    "Threads",
    "engine",
    "usual_engine",
]
