"""Sweep: every combination of some settings, on the test data, as in the papers' figures.

It shows how much settings matter. To choose them, and then say how good they are, tune.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from undrift.config import UndriftError
from undrift.experiment.experiment import Experiment
from undrift.experiment.registry import labels
from undrift.report.estimate import Estimate
from undrift.report.palette import ink
from undrift.report.read import read_run
from undrift.report.score import Score
from undrift.runs.layout import RunFile, StudyFile
from undrift.runs.runner import Event as RunEvent
from undrift.runs.runner import run
from undrift.system.files import replace_file
from undrift.system.lock import Lock, holder
from undrift.tune.knobs import knobs, refuse_unknown
from undrift.tune.page import Figure, log_scale, write_page
from undrift.tune.running import WAIT, tested
from undrift.tune.search import grid
from undrift.tune.space import space
from undrift.tune.store import trial_name
from undrift.tune.study import Arm, Settings, begin, lock
from undrift.tune.tables import markdown, settings_text, tex


@dataclass(frozen=True)
class Point:
    """One algorithm with one combination of settings."""

    arm: Arm
    number: int
    settings: Settings

    @property
    def name(self) -> str:
        return trial_name(self.arm, self.number)


@dataclass(frozen=True)
class SweepEvent:
    """Something that happened at a point: it begins, its run says something, or it has ended."""

    kind: Literal["begin", "run", "point"]
    point: Point
    inner: RunEvent | None = None
    final: dict[str, Any] | None = None


def points(experiment: Experiment, over: Mapping[str, Any]) -> list[Point]:
    """All combinations, algorithm by algorithm; of settings that an algorithm does not have, none.

    An algorithm that has none of them is run once.
    """
    spaces = {name: space(one) for name, one in over.items()}
    if not spaces:
        raise UndriftError("say what to vary, such as --over local.lr=0.03,0.1,0.3")
    for name, one in spaces.items():
        if one.kind != "values":
            raise UndriftError(f"{name}={one}: a sweep takes values, such as {name}=0.1,0.2,0.4")
    alone = [replace(experiment, algorithms=(made,)) for made in experiment.algorithms]
    refuse_unknown(alone, spaces)
    arms = [
        Arm(label, one, knobs(one, spaces))
        for label, one in zip(labels(experiment.algorithms), alone, strict=True)
    ]
    return [Point(arm, k, settings) for arm in arms for k, settings in enumerate(grid(arm))]


def sweep(
    experiment: Experiment, over: Mapping[str, Any], folder: str | Path, **options: Any
) -> Generator[SweepEvent, None, None]:
    """Run every combination in a folder, or those that are left; yields events.

    options  those of `undrift.runs.runner.run`

    Several processes may do so at once, and any may be killed.
    """
    folder, left = Path(folder), points(experiment, over)
    for point in left:
        point.arm.at(point.settings)  # raises for a combination that cannot be, before all others
    experiment.check()
    plain = {name: list(space(one).values) for name, one in over.items()}
    begin(folder, "sweep", experiment, {"over": plain})
    everything = list(left)
    while left:
        free = [point for point in left if holder(folder / ".claims" / point.name) is None]
        for point in free[:1]:
            try:
                claim = Lock(folder / ".claims" / point.name)
            except UndriftError:  # another process was faster
                continue
            with closing(claim):
                yield SweepEvent("begin", point)
                there = folder / StudyFile.TRIALS / point.name
                with closing(run(point.arm.at(point.settings), there, **options)) as happening:
                    for event in happening:
                        yield SweepEvent("run", point, event)
                left.remove(point)
            run_ = read_run(there)
            yield SweepEvent("point", point, final=tested(there, run_.score))
        if not free:
            time.sleep(WAIT)
    with lock(folder):
        _write(folder, everything)


def _write(folder: Path, done: list[Point]) -> None:
    """Ledger, tables and page."""
    found = []
    for point in done:
        there = folder / StudyFile.TRIALS / point.name
        score = read_run(there).score
        found.append((point, score, tested(there, score)))
    lines = [
        {"algorithm": point.arm.label, "number": point.number, "settings": point.settings}
        | {"metric": f"test {score.name}", "seeds": result["test"]}
        | {"validation": result["validation"], "failures": result["failures"]}
        | {"run": f"{StudyFile.TRIALS}/{point.name}"}
        for point, score, result in found
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    replace_file(folder / StudyFile.LEDGER, text.encode())
    score = found[0][1]
    columns = {
        "Algorithm": [point.arm.label for point, _, _ in found],
        "Settings": [settings_text(point.settings) for point, _, _ in found],
        f"Test {score.heading}": [_told(score, result) for _, score, result in found],
    }
    notes = ["Means over seeds, ± one standard deviation, after the last round, on the test data: "
             "do not choose settings by them and then report them; undrift tune chooses "
             "on validation clients."]  # fmt: skip
    replace_file(folder / RunFile.TABLE_MD, markdown(columns, notes).encode())
    replace_file(folder / RunFile.TABLE_TEX, tex(columns, notes).encode())
    names = list(dict.fromkeys(name for point in done for name in point.settings))
    figures = [
        Figure(
            name,
            f"Test {score.heading} against {name}; one line for each algorithm and combination of "
            "the other settings, with a bar of one standard deviation over seeds.",
            [partial(_draw, name=name, found=found, score=score)],
            wide=5.2,
        )
        for name in names
    ]
    write_page(folder / RunFile.REPORT, "Sweep", columns, notes, figures)


def _values(result: dict[str, Any]) -> list[float]:
    return [value for value in result["test"].values() if value is not None]


def _told(score: Score, result: dict[str, Any]) -> str:
    one = Estimate.of(_values(result), score.bounds)
    lost = f" ({len(result['failures'])} failed)" if result["failures"] else ""
    return ("–" if one is None else score.numbers(one)) + lost


def _draw(ax: Any, name: str, found: list[tuple[Point, Score, dict[str, Any]]],
          score: Score) -> None:  # fmt: skip
    """One setting on the x-axis."""
    lines: dict[str, list[tuple[Any, Estimate | None]]] = {}
    for point, _, result in found:
        if name in point.settings:
            rest = {key: one for key, one in point.settings.items() if key != name}
            label = " ".join(filter(None, [point.arm.label, settings_text(rest)]))
            known = Estimate.of(_values(result), score.bounds)
            lines.setdefault(label, []).append((point.settings[name], known))
    numbers = all(isinstance(x, int | float) for line in lines.values() for x, _ in line)
    factor = score.quantity.factor
    for place, (label, line) in enumerate(lines.items()):
        xs = [x if numbers else str(x) for x, _ in line]
        ys = [factor * one.mean if one else math.nan for _, one in line]
        sds = [factor * (one.sd or 0.0) if one else 0.0 for _, one in line]
        style = ink(place)
        ax.errorbar(xs, ys, sds, color=style.colour, linestyle=style.line, marker="o", markersize=3,
                    label=label, capsize=2, elinewidth=0.7)  # fmt: skip
    every = [x for line in lines.values() for x, _ in line]
    if numbers and min(every) > 0 and max(every) / min(every) >= 10:
        log_scale(ax, "x")
    ax.set(xlabel=name, ylabel=f"Test {score.heading}")
    ax.legend()
