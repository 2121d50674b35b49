"""What a study leaves: the ledger of its trials, the best settings as files, and a table."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undrift.report.estimate import Estimate
from undrift.report.tables import escape_latex, escape_markdown
from undrift.runs.layout import RunFile
from undrift.system.files import replace_file
from undrift.tune.figures import figures
from undrift.tune.page import write_page
from undrift.tune.schedule import best
from undrift.tune.store import Record
from undrift.tune.study import Arm, Settings

if TYPE_CHECKING:
    from undrift.tune.running import Desk

LEDGER = "ledger.jsonl"
NEAR = 0.01
"""how much worse than the best is still about as good: one point of accuracy"""


@dataclass(frozen=True)
class Outcome:
    """The result of tuning one algorithm.

    winner           its best trial; None if all failed
    tuned, defaults  results on fresh seeds, as in the store; None without them
    near             share of all trials within one point of the best (1 % of it, of a loss)
    """

    arm: Arm
    records: list[Record]
    winner: Record | None
    tuned: dict[str, Any] | None
    defaults: dict[str, Any] | None
    near: float

    @property
    def gain(self) -> Estimate | None:
        """Test result of the tuned settings minus that of the defaults, seed by seed."""
        if not self.tuned or not self.defaults or self.tuned is self.defaults:
            return None
        return _gap(self.tuned, self.defaults)


def _gap(one: dict[str, Any], other: dict[str, Any]) -> Estimate | None:
    both = [seed for seed in one["test"] if seed in other["test"]]
    pairs = [(one["test"][seed], other["test"][seed]) for seed in both]
    return Estimate.of([a - b for a, b in pairs if a is not None and b is not None])


def outcomes(here: Desk) -> list[Outcome]:
    """The results of all algorithms."""
    found = []
    for arm in here.study.arms:
        records, finals = here.store.records(arm), here.store.finals(arm)
        winner = best(records, here.study.rungs, here.lower)
        tuned = defaults = None
        if winner and here.study.final_seeds:
            tuned = finals.get(here.study.final(arm, winner.settings).hash)
            defaults = finals.get(here.study.final(arm, arm.defaults).hash)
            if winner.settings == arm.defaults:
                defaults = tuned
        found.append(Outcome(arm, records, winner, tuned, defaults, _near(here, records, winner)))
    return found


def _near(here: Desk, records: list[Record], winner: Record | None) -> float:
    """Share of the trials at all rounds within NEAR of the best; those stopped early are not."""
    if winner is None or winner.last is None or winner.last.objective is None:
        return 0.0
    top, rounds = winner.last.objective, here.study.rungs[-1]
    room = NEAR * abs(top) if here.lower else NEAR
    values = [one.results[rounds].objective for one in records if rounds in one.results]
    close = [one for one in values if one is not None and abs(one - top) <= room]
    return len(close) / len(records)


def write_ledger(here: Desk) -> None:
    """One line for each trial with a result, in the order of their numbers."""
    from undrift.tune.running import TRIALS, trial_name

    lines = []
    for place, arm in enumerate(here.study.arms):
        for record in here.store.records(arm):
            if record.last is None:
                continue
            line: dict[str, Any] = {"algorithm": arm.label, "number": record.number}
            line |= {"settings": record.settings, "metric": f"validation {here.score.name}"}
            line |= {"objective": record.last.objective, "rounds": record.last.rounds}
            line["seeds"] = list(record.last.seeds)
            line["failure"] = record.last.failure
            line["rungs"] = {str(r): one.objective for r, one in sorted(record.results.items())}
            line["cost"] = record.last.cost
            line["run"] = f"{TRIALS}/{trial_name(arm, record.number)}"
            lines.append(((record.number, place), line))
    text = "".join(json.dumps(line) + "\n" for _, line in sorted(lines, key=lambda one: one[0]))
    replace_file(here.folder / LEDGER, text.encode())


def best_file(folder: Path, arm: Arm) -> Path:
    """The winner of an algorithm, for `undrift run`."""
    return folder / f"best-{arm.name}.toml"


def write_outcome(here: Desk) -> tuple[dict[str, list[str]], list[str]]:
    """Write ledger, best settings, tables and page of a study; returns the table and its notes."""
    write_ledger(here)
    found = outcomes(here)
    for one in found:
        if one.winner:
            made = here.study.final(one.arm, one.winner.settings)
            replace_file(best_file(here.folder, one.arm), made.to_toml().encode())
    columns, notes = table(here, found), said(here, found)
    title = f"Tuning {', '.join(one.arm.label for one in found)}"
    write_page(here.folder / RunFile.REPORT, title, columns, notes, figures(here, found))
    replace_file(here.folder / RunFile.TABLE_MD, markdown(columns, notes).encode())
    replace_file(here.folder / RunFile.TABLE_TEX, tex(columns, notes).encode())
    return columns, notes


def table(here: Desk, found: list[Outcome]) -> dict[str, list[str]]:
    """Heading → cells, one row for each algorithm."""
    unit = here.score.heading
    columns = {
        "Algorithm": [one.arm.label for one in found],
        "Trials": [f"{len(one.records)}{_failed(one)}" for one in found],
        "Best settings": [settings_text(one.winner.settings) if one.winner else "–"
                          for one in found],
        f"Validation {unit}": [_validation(here, one) for one in found],
    }  # fmt: skip
    if here.study.final_seeds:
        columns[f"Test {unit}, tuned"] = [_tested(here, one.tuned) for one in found]
        columns[f"Test {unit}, defaults"] = [_tested(here, one.defaults) for one in found]
    columns["Within a point" if not here.lower else "Within 1 %"] = [
        f"{100 * one.near:.0f} %" for one in found
    ]
    return columns


def settings_text(settings: Settings) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items())


def _failed(one: Outcome) -> str:
    count = sum(record.last is not None and record.last.failure is not None
                for record in one.records)  # fmt: skip
    return f" ({count} failed)" if count else ""


def _validation(here: Desk, one: Outcome) -> str:
    if one.winner is None or one.winner.last is None:
        return "all failed"
    known = [value for value in one.winner.last.seeds if value is not None]
    return _estimate(here, Estimate.of(known, here.score.bounds))


def _tested(here: Desk, result: dict[str, Any] | None) -> str:
    if result is None:
        return "–"
    known = [value for value in result["test"].values() if value is not None]
    lost = f" ({len(result['failures'])} failed)" if result["failures"] else ""
    return _estimate(here, Estimate.of(known, here.score.bounds)) + lost


def _estimate(here: Desk, one: Estimate | None) -> str:
    if one is None:
        return "–"
    number = here.score.number
    ends = [number(end) for end in one.interval or ()]
    return f"{number(one.mean)} [{', '.join(ends)}]" if ends else number(one.mean)


def said(here: Desk, found: list[Outcome]) -> list[str]:
    """What the table means, in sentences."""
    study = here.study
    notes = [
        f"Settings were chosen by the {here.score.name} on {study.experiment.validation} "
        f"validation clients after {study.rungs[-1]} rounds, mean of {len(study.experiment.seeds)} "
        f"seed{'s' * (len(study.experiment.seeds) > 1)}; the test data had no part in it."
    ]
    if not study.final_seeds:
        return notes
    notes.append(
        f"Test results are those of {study.final_seeds} fresh seeds, run once; in brackets, 95 % "
        "intervals by Student's t (from three seeds on)."
    )
    for one in found:
        if one.winner is not None and one.tuned is not None and one.tuned == one.defaults:
            notes.append(f"{one.arm.label}: nothing better than its defaults was found.")
        elif one.gain is not None:
            notes.append(_verdict(here, f"{one.arm.label}, tuned", "its defaults", one.gain))
    tested = [one for one in found if one.tuned is not None and one.tuned["test"]]
    tested.sort(key=lambda one: -here.score.rank(_mean(one.tuned)))
    for other in tested[1:]:
        first = tested[0]
        assert first.tuned is not None
        assert other.tuned is not None
        if gap := _gap(first.tuned, other.tuned):
            notes.append(_verdict(here, first.arm.label, other.arm.label, gap))
    return notes


def _mean(result: dict[str, Any] | None) -> float:
    found = Estimate.of([v for v in (result or {"test": {}})["test"].values() if v is not None])
    return found.mean if found else math.nan


def _verdict(here: Desk, one: str, other: str, gap: Estimate) -> str:
    """Whether one is better than the other, from their difference seed by seed."""
    score = here.score
    ends = gap.interval
    shown = f"{score.number(gap.mean, '+')} {score.gap or score.name}"
    if ends is None:
        return (
            f"{one} against {other}: {shown}, without an interval; --final-seeds 3 or more give one"
        )
    shown += f" [{score.number(ends[0], '+')}, {score.number(ends[1], '+')}]"
    if ends[0] <= 0 <= ends[1]:
        return f"These seeds cannot tell {one} from {other}: {shown}."
    better = score.rank(gap.mean) > 0
    return f"{one} is {'better' if better else 'worse'} than {other}: {shown}."


def markdown(columns: dict[str, list[str]], notes: list[str]) -> str:
    """A table with its notes, as Markdown."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "|".join(":--" for _ in columns) + "|"]
    for cells in zip(*columns.values(), strict=True):
        lines.append("| " + " | ".join(map(escape_markdown, cells)) + " |")
    return "\n".join([*lines, "", *(escape_markdown(note) + "\n" for note in notes)])


def tex(columns: dict[str, list[str]], notes: list[str]) -> str:
    """A table as LaTeX, with its notes as comments."""
    lines = [r"% needs \usepackage{booktabs}", *(f"% {escape_latex(note)}" for note in notes)]
    lines += [rf"\begin{{tabular}}{{{'l' * len(columns)}}}", r"\toprule"]
    lines += [" & ".join(map(escape_latex, columns)) + r" \\", r"\midrule"]
    for cells in zip(*columns.values(), strict=True):
        lines.append(" & ".join(map(escape_latex, cells)) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])
