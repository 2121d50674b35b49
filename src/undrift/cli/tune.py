"""`undrift tune`: good settings for each algorithm, chosen on validation clients."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from rich.console import Console
from rich.text import Text

from undrift.cli.running import Options, end_diverged, resumable
from undrift.cli.settings import Settings
from undrift.cli.tables import show_table
from undrift.cli.whole import Whole
from undrift.config import UndriftError
from undrift.experiment.settings import read_change
from undrift.report.units import span
from undrift.runs.layout import RunFile, StudyFile
from undrift.system.terminal import redraws

if TYPE_CHECKING:
    from undrift.tune.running import Event
    from undrift.tune.study import Study

Over = Annotated[tuple[str, ...], Parameter("--over", negative="", show_default=False)]
Changes = Annotated[tuple[str, ...], Parameter("--set", negative="", show_default=False)]
Search = Literal["random", "tpe", "gp", "cmaes", "grid", "qmc"]


@Parameter(name="*")
@dataclass(frozen=True)
class TuneSettings(Settings):
    """As of `undrift compare`; one seed for each trial, and ten validation clients."""

    seeds: Whole = 1
    """Seeds of each trial; the mean over them counts."""
    validation: Whole = 10
    """Clients that do not train, and on whose samples settings are chosen."""


def tune(
    *algorithms: Annotated[
        str, Parameter(help="Algorithms, such as adabest, or one TOML file with an experiment.")
    ],
    over: Over = (),
    trials: Whole | None = None,
    budget: str | None = None,
    search: Search | None = None,
    halving: bool | None = None,
    min_rounds: Whole | None = None,
    search_seed: Whole | None = None,
    final_seeds: Whole | None = None,
    settings: TuneSettings = TuneSettings(),
    set_: Changes = (),
    out: Path | None = None,
    options: Options = Options(),
) -> None:
    """Find good settings for each algorithm, on validation clients and with the same budget.

    Example: undrift tune fedavg adabest --validation 10 --rounds 60 --trials 30

    Say what to vary: --over "AdaBest.mu=log(0.001,1)" --over local.lr=0.03,0.1,0.3

    The test data are not looked at until the winner of each algorithm is run on fresh seeds, once,
    beside the defaults. Killed at any moment, the same command or `undrift resume` goes on; give it
    twice, and two processes share the work.

    Parameters
    ----------
    over
        What to vary, NAME=SPACE; may be given more than once. A name is that of a class and of its
        field: AdaBest.mu, ServerOpt.Adam.lr, local.lr, sampler.clients. A space is log(0.01,1),
        linear(0,1), int(8,64) or values: 0.2,0.4,0.6. If none is given, each algorithm's own
        ranges (`undrift list algorithms`) and the local step size.
    trials
        Trials of each algorithm; 20 if neither this nor a budget is given.
    budget
        Most that the trials of each algorithm may use: rounds=5000, or bytes, flops, seconds.
    search
        How settings are drawn: random (the default), tpe, gp, cmaes, grid, or qmc (quasi-random).
    halving
        Successive halving: the best third of the trials goes on to three times the rounds, from
        its checkpoints.
    min_rounds
        Rounds of every trial, with halving; a third of all if not given.
    search_seed
        Seed of the search; 0 if not given.
    final_seeds
        Fresh seeds on which the winners are run, with the test data; 3 if not given.
    set_
        Replace a setting of the file, NAME=VALUE, as in `undrift run`.
    out
        Folder of the study; runs/tune-HASH if not given.
    """
    from undrift.tune.study import Study

    given: dict[str, Any] = {"trials": trials, "budget": budget, "search": search}
    given |= {"halving": halving, "min_rounds": min_rounds, "seed": search_seed}
    given |= {"final_seeds": final_seeds, "over": read_over(over) or None}
    given = {name: value for name, value in given.items() if value is not None}
    if file := the_file(algorithms, settings, TuneSettings(), set_):
        study = Study.from_toml(file, dict(map(read_change, set_)), **given)
    else:
        study = Study(experiment=settings.experiment(algorithms), **given)
    run_study(study, out or Path("runs") / f"tune-{study.experiment.hash}", options)


def read_over(over: Sequence[str]) -> dict[str, str]:
    """Name → space, from NAME=SPACE."""
    found: dict[str, str] = {}
    for one in over:
        name, equals, space = (part.strip() for part in one.partition("="))
        if not (name and equals and space):
            raise UndriftError(f"--over {one}: write NAME=SPACE, such as local.lr=log(0.01,1)")
        if name in found:
            raise UndriftError(f"--over {one}: {name} is given twice")
        found[name] = space
    return found


def the_file(
    algorithms: Sequence[str], settings: Settings, usual: Settings, changes: Sequence[str]
) -> str | None:
    """The TOML file that was given instead of algorithms, if it was; raises if both were."""
    files = [one for one in algorithms if one.endswith(".toml")]
    if not files:
        if changes:
            raise UndriftError(f"--set {changes[0]}: is for a TOML file; give a flag instead")
        return None
    if len(algorithms) > 1:
        raise UndriftError(f"give {files[0]} alone, or algorithms; not both")
    if settings != usual:
        raise UndriftError(f"the settings are in {files[0]}; change them by --set NAME=VALUE")
    return files[0]


def go_on(folder: Path, code: Sequence[Path], options: Options) -> None:
    """Resume a study or a sweep."""
    from undrift.runs.identity import last_data_dir
    from undrift.tune.study import Study, stored

    kind, experiment, settings = stored(folder, code)
    known = [last_data_dir(one) for one in sorted(folder.glob(f"{StudyFile.TRIALS}/*"))[:1]]
    options = replace(options, data_dir=options.data_dir or next(iter(known), None))
    if kind == "sweep":
        from undrift.cli.sweep import run_sweep

        run_sweep(experiment, settings["over"], folder, options)
    else:
        run_study(Study(experiment=experiment, **settings), folder, options)


def refuse_tracking(options: Options) -> None:
    """Trackers follow single runs."""
    if options.track:
        raise UndriftError(
            f"--track {' '.join(options.track)}: studies and sweeps are not tracked; track the "
            "best settings with `undrift run`"
        )


def run_study(study: Study, folder: Path, options: Options) -> None:
    """Run a study, or what is left of it, showing what happens."""
    from undrift.data.files.fetch import use_data_dir
    from undrift.tune.running import tune as go

    refuse_tracking(options)
    use_data_dir(options.data_dir)
    happening = go(
        study,
        folder,
        **options.session(),
    )
    show = _show_json if options.json_ else _show
    with resumable(folder), closing(happening):
        show(happening)
    best = sorted(folder.glob("best-*.toml"))
    if options.json_:
        _print({"event": "done", "folder": str(folder)})
    else:
        console = Console()
        console.print(Text(f"report: {folder / RunFile.REPORT}"), soft_wrap=True)
        for path in best:
            console.print(Text(f"best settings: undrift run {path}"), soft_wrap=True)
    if not best:
        end_diverged()


def _show(events: Iterable[Event]) -> None:
    """A line for each result, with the time left, and on a terminal what is under way."""
    from undrift.tune.tables import settings_text

    console = Console(highlight=False)
    status = console.status("") if redraws(console) else nullcontext()
    left = _TimeLeft()
    with status as shown:
        for event in events:
            what = f"{event.label} {event.number}" if event.number >= 0 else f"{event.label}, final"
            if event.kind == "begin":
                left.update(event)
            elif event.kind == "run" and shown is not None and event.inner is not None:
                round = event.inner.round
                shown.update(f"{what}: round {round} of {event.rounds}{left}")
            elif event.kind == "wait" and shown is not None:
                shown.update("waiting for other processes")
            elif event.kind == "trial" and event.result is not None:
                value = event.result.objective
                result = event.result.failure if value is None else f"{value:.4f}"
                text = settings_text(event.settings or {})
                line = f"{what}, {event.rounds} rounds: {result}   {text}{left}"
                console.print(Text(line), soft_wrap=True)
            elif event.kind == "final" and event.final is not None:
                known = [value for value in event.final["test"].values() if value is not None]
                results = ", ".join(f"{value:.4f}" for value in known) or "all seeds failed"
                text = settings_text(event.settings or {})
                line = f"{what}, test data: {results}   {text}{left}"
                console.print(Text(line), soft_wrap=True)
            elif event.kind == "end":
                show_table(console, event.columns or {})
                for note in event.notes:
                    console.print(Text(note))


class _TimeLeft:
    """The time that a study still takes, at the pace of all processes since this one began."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._first, self._text = clock, (0.0, -1.0), ""

    def update(self, event: Event) -> None:
        now = self._clock()
        if self._first[1] < 0:
            self._first = (now, event.done)
        began, before = self._first
        if event.done > before and math.isfinite(event.total):
            seconds = (event.total - event.done) * (now - began) / (event.done - before)
            share = event.done / event.total
            self._text = f"   {share:.0%} done, {span(round(seconds))} left"

    def __str__(self) -> str:
        return self._text


def _show_json(events: Iterable[Event]) -> None:
    for event in events:
        if event.kind in ("begin", "trial", "final"):
            told = asdict(event)
            for kept_back in ("inner", "columns", "notes", "done", "total"):
                del told[kept_back]
            _print({"event": told.pop("kind")} | {k: v for k, v in told.items() if v is not None})


def _print(fields: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()
