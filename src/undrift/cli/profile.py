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
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from cyclopts import Parameter
from rich.console import Console
from rich.table import Table

import undrift
from undrift.cli.whole import Whole
from undrift.core import Struct

if TYPE_CHECKING:
    from undrift.data.federated import FederatedData
    from undrift.engines import Prepared
    from undrift.engines.base import ClientJob, Clients, Sums
    from undrift.experiment.experiment import Experiment
    from undrift.training.task import Task
    from undrift.training.trainer import ClientResult, Trainer
    from undrift.training.work import Local

A = TypeVar("A")
B = TypeVar("B")

PLACES = {
    "federation/sampling.py": "choosing the cohort",
    "training/work.py": "planning batches",
    "undrift/rng.py": "planning batches",
    "undrift/data/": "reading samples",
    "native/launch.py:run": "local steps",
    "training/trainer.py:walk": "local steps",
    "training/task.py:gradient": "local steps",
    "engines/native/": "preparing steps",
    "training/trainer.py": "clients, beside their steps",
    "federation/jobs.py": "clients, beside their steps",
    "undrift/algorithms/": "the algorithm's hooks",
    "undrift/parts/": "the algorithm's hooks",
    "undrift/core.py": "the algorithm's hooks",
    "undrift/optim.py": "the algorithm's hooks",
    "undrift/vectors.py": "the algorithm's hooks",
    "federation/aggregate.py": "averaging",
    "training/memory.py": "memory of clients",
    "training/slab.py": "memory of clients",
    "training/task.py": "evaluation",
    "measure/metrics.py": "evaluation",
    "federation/rounds.py": "the server",
    "federation/server.py": "the server",
    "undrift/arithmetic.py": "the server",
}
"""parts of our files' names, and what time spent there is for; the first that fits counts, and what
fits none counts for its callers"""

OTHER = "everything else"

DEEPEST = 30
"""functions of others, such as torch's, between one of ours and what it has them do"""

HOME = str(Path(undrift.__file__).parent.parent)

Function = tuple[str, int, str]
"""a file, a line and a name, as `pstats` has it"""


def profile(
    file: Path,
    *,
    rounds: Whole = 10,
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
        Folder with the data set's files; without this option they are downloaded.
    json_
        Print one JSON object instead of tables.
    """
    from undrift.arithmetic import steady
    from undrift.data.files.fetch import use_data_dir
    from undrift.experiment.experiment import Experiment

    use_data_dir(data_dir)
    experiment = Experiment.from_toml(file)
    task, data = experiment.check()
    made, engine = experiment.algorithms[0], Alone(task)
    profiler, total = measured(experiment, task, data, engine, rounds)
    spent = {place: seconds / rounds for place, seconds in _spent(profiler).most_common()}
    with steady():
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


def measured(
    experiment: Experiment, task: Task, data: FederatedData, engine: Alone, rounds: int
) -> tuple[cProfile.Profile, float]:
    """What a profiler saw of some rounds of the first algorithm, and how long they took."""
    from undrift.arithmetic import steady
    from undrift.federation.rounds import rounds as play
    from undrift.measure.cost import RoundCost
    from undrift.measure.metrics import Meter

    made = experiment.algorithms[0]
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
    profiler = cProfile.Profile()
    with steady():
        next(federation)  # in which steps are recorded
        began = time.perf_counter()
        profiler.enable()
        for last in federation:
            meter.count(last)
        meter.row(last)
        profiler.disable()
    return profiler, time.perf_counter() - began


class Alone:
    """One worker, in the calling thread, so that nothing happens unseen."""

    def __init__(self, task: Task) -> None:
        from undrift.engines.native.trainer import CompiledTrainer

        self.trainer = CompiledTrainer(task.replica())

    def prepare(self, task: Task, data: FederatedData, local: Local) -> Prepared:
        from undrift.engines import Prepared

        return Prepared("compiled", "one worker")

    def map(self, job: Callable[[Trainer, A], B], task: Task, items: Iterable[A]) -> Iterator[B]:
        return (job(self.trainer, item) for item in items)

    def gather(
        self, job: ClientJob, task: Task, clients: Clients, into: Sums
    ) -> Iterator[ClientResult]:
        from undrift.engines.base import gathered

        return gathered(self.map(job, task, clients), clients, into)

    def close(self) -> None:
        pass

    def operators(self) -> dict[str, float]:
        """Seconds of each operator in one gradient of the first recorded shape, longest first."""
        seconds: Counter[str] = Counter()
        for program in list(self.trainer.programs.values())[:1]:
            for name, one in zip(*program.code.times(20), strict=True):
                seconds[name.removeprefix("aten::")] += one
        return dict(seconds.most_common(8))


def _spent(profiler: cProfile.Profile) -> Counter[str]:
    """Seconds by place."""
    stats: Any = pstats.Stats(profiler)
    places = shares(stats.stats)
    spent: Counter[str] = Counter()
    for function, (_, _, own, _, _) in stats.stats.items():
        for place, share in places[function].items():
            spent[place] += share * own
    return spent


def shares(stats: dict[Function, Any]) -> dict[Function, dict[str, float]]:
    """How a function's time is spread over places.

    What has no place of its own, such as torch's functions, works for whoever called it, and he for
    his callers, in proportion to the time of the calls.
    """
    found = {
        function: {place: 1.0} if (place := _place(function) or (not row[4] and OTHER)) else {}
        for function, row in stats.items()
    }
    others = [function for function, spread in found.items() if not spread]
    for _ in range(DEEPEST):
        for function in others:
            spread: Counter[str] = Counter()
            for caller, (_, _, _, seconds) in stats[function][4].items():
                for place, share in found[caller].items():
                    spread[place] += share * max(seconds, 1e-9)
            total = sum(spread.values())
            found[function] = {place: part / total for place, part in spread.items()}
    return found


def _place(function: Function) -> str | None:
    file, _, name = function
    if not file.startswith(HOME) or (file.endswith("core.py") and name in vars(Struct)):
        return None
    spelled = f"{file.removeprefix(HOME).replace(chr(92), '/')}:{name}"
    return next((place for part, place in PLACES.items() if part in spelled), None)


def _table(title: str, seconds: dict[str, float]) -> Table:
    table = Table("", "ms", "%", title=title, title_justify="left")
    total = sum(seconds.values())
    for name, one in seconds.items():
        table.add_row(name, f"{1e3 * one:.3f}", f"{100 * one / total:.0f}")
    return table
