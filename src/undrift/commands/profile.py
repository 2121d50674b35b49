"""`undrift profile`: where a round's time goes."""

from __future__ import annotations

import cProfile
import json
import pstats
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar

import torch
from cyclopts import Parameter
from rich.console import Console
from rich.table import Table
from torch import Tensor

from undrift.cost import RoundCost
from undrift.data.fetch import use_data_dir
from undrift.engines.native.trainer import CompiledTrainer
from undrift.experiment import Experiment
from undrift.local import Trainer
from undrift.metrics import Meter
from undrift.rounds import rounds as play
from undrift.task import Task

A = TypeVar("A")
B = TypeVar("B")

PLACES = {
    "sampling.py": "choosing the cohort",
    "batches.py": "planning batches",
    "rng.py": "planning batches",
    "/data/": "reading samples",
    "launch.py:run": "local steps",
    "local.py:walk": "local steps",
    "task.py:gradient": "local steps",
    "/engines/native/": "preparing steps",
    "local.py": "clients, beside their steps",
    "/algorithms/": "the algorithm's hooks",
    "/parts/": "the algorithm's hooks",
    "core.py": "the algorithm's hooks",
    "optim.py": "the algorithm's hooks",
    "aggregate.py": "averaging",
    "store.py": "memory of clients",
    "task.py": "evaluation",
    "metrics.py": "evaluation",
    "rounds.py": "the server",
}
"""parts of our files' names, and what time spent there is for; the first that fits counts"""

OTHER = "everything else"


def profile(
    file: Path,
    *,
    rounds: int = 10,
    data_dir: Path | None = None,
    json_: Annotated[bool, Parameter("--json")] = False,
) -> None:
    """Show where the time of an experiment's rounds goes.

    Example: undrift profile examples/demo.toml

    Its first algorithm runs a few rounds on one worker, and is evaluated once.

    Parameters
    ----------
    file
        The experiment, in TOML.
    rounds
        Rounds that are measured.
    data_dir
        Folder that holds the data set's files, if you have them already; they are downloaded else.
    json_
        Print one JSON object instead of tables.
    """
    use_data_dir(data_dir)
    torch.set_num_threads(1)
    experiment = Experiment.from_toml(file)
    task, data = experiment.check()
    made, engine = experiment.algorithms[0], Alone(task)
    meter = Meter(made, task, data, RoundCost.of(made, task, data.example), engine)
    federation = play(
        made,
        task,
        data,
        total=rounds + 1,
        sampler=experiment.sampler,
        local=experiment.local,
        seed=experiment.seeds[0],
        engine=engine,
    )
    next(federation)  # in which steps are recorded
    profiler = cProfile.Profile()
    began = time.perf_counter()
    profiler.enable()
    for last in federation:
        meter.count(last)
    meter.row(last)
    profiler.disable()
    total = time.perf_counter() - began
    spent = {place: seconds / rounds for place, seconds in _spent(profiler).most_common()}
    operators = engine.operators()
    if json_:
        found = {"algorithm": repr(made), "seconds": total / rounds, "places": spent}
        sys.stdout.write(json.dumps(found | {"operators": operators}) + "\n")
        return
    console = Console()
    console.print(_table(f"a round of {made!r}, {1e3 * total / rounds:.1f} ms", spent))
    if operators:
        console.print(_table("a step's gradient, by operator", operators))
    for reason in engine.trainer.reasons.values():
        console.print(f"in Python: {reason}", highlight=False)


class Alone:
    """One worker, in the calling thread, so that nothing happens unseen."""

    def __init__(self, task: Task) -> None:
        self.trainer = CompiledTrainer(task.replica())

    def prepare(self, task: Task, inputs: Tensor, targets: Tensor) -> str:
        return "one worker"

    def map(self, job: Callable[[Trainer, A], B], task: Task, items: Iterable[A]) -> Iterator[B]:
        return (job(self.trainer, item) for item in items)

    def operators(self) -> dict[str, float]:
        """Seconds of each operator in one gradient of the first recorded shape, longest first."""
        seconds: Counter[str] = Counter()
        for program in list(self.trainer.programs.values())[:1]:
            for name, one in zip(*program.code.times(20), strict=True):
                seconds[name.removeprefix("aten::")] += one
        return dict(seconds.most_common(8))


def _spent(profiler: cProfile.Profile) -> Counter[str]:
    """Seconds by place; those of others' functions go to who called them."""
    stats: Any = pstats.Stats(profiler)
    spent: Counter[str] = Counter()
    for function, (_, _, own, _, callers) in stats.stats.items():
        place = _place(function)
        if place is not None or not callers:
            spent[place or OTHER] += own
            continue
        for caller, (_, _, share, _) in callers.items():
            spent[_caller_place(stats.stats, caller)] += share
    return spent


def _caller_place(functions: Any, function: tuple[str, int, str]) -> str:
    """The place of a function, or else of whoever calls it most, and so on."""
    seen = set()
    while (place := _place(function)) is None and function not in seen:
        seen.add(function)
        callers = functions[function][4]
        function = max(callers, key=lambda caller: callers[caller][3], default=function)
    return place or OTHER


def _place(function: tuple[str, int, str]) -> str | None:
    file, _, name = function
    if "undrift" not in file:
        return None
    spelled = f"{file.replace(chr(92), '/')}:{name}"
    return next((place for part, place in PLACES.items() if part in spelled), OTHER)


def _table(title: str, seconds: dict[str, float]) -> Table:
    table = Table("", "ms", "%", title=title, title_justify="left")
    total = sum(seconds.values())
    for name, one in seconds.items():
        table.add_row(name, f"{1e3 * one:.3f}", f"{100 * one / total:.0f}")
    return table
