"""What a study leaves: the ledger of its trials, the best settings as files, and a table."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undrift.report.estimate import Estimate
from undrift.runs.columns import Floats
from undrift.runs.layout import RunFile, StudyFile
from undrift.system.files import replace_file
from undrift.tune.figures import figures
from undrift.tune.noise import by_seed, estimate, gap, parts
from undrift.tune.page import write_page
from undrift.tune.schedule import best
from undrift.tune.store import Record, trial_name
from undrift.tune.study import Arm
from undrift.tune.tables import markdown, table, tex
from undrift.tune.verdicts import said

if TYPE_CHECKING:
    from undrift.tune.running import Desk

NEAR = 0.01
"""how much worse than the best is still about as good: one point of accuracy"""


@dataclass(frozen=True)
class Outcome:
    """The result of tuning one algorithm.

    winner           its best trial; None if all failed
    tuned, defaults  results on fresh seeds, as in the store; None without them
    near             share of all trials within one point of the best (1 % of it, of a loss)
    parts            trial with all rounds → parts of the validation clients in its result
    chosen           the winner's result, with its interval over validation clients
    """

    arm: Arm
    records: list[Record]
    winner: Record | None
    tuned: dict[str, Any] | None
    defaults: dict[str, Any] | None
    near: float
    parts: dict[int, Floats]
    chosen: Estimate | None

    @property
    def lead(self) -> Estimate | None:
        """The winner's result minus that of the defaults, over the same validation clients."""
        own = [one.number for one in self.records if one.settings == self.arm.defaults]
        if self.winner is None or not own or self.winner.number in own:
            return None
        return gap(self.parts.get(self.winner.number), self.parts.get(own[0]))

    @property
    def tied(self) -> int | None:
        """Trials with all rounds that validation clients cannot tell from the winner, with it."""
        if self.winner is None or self.winner.number not in self.parts:
            return None
        gaps = [gap(self.parts[self.winner.number], one) for one in self.parts.values()]
        ends = [one.interval for one in gaps if one]
        return sum(one is not None and one[0] <= 0 <= one[1] for one in ends)

    @property
    def gain(self) -> Estimate | None:
        """Test result of the tuned settings minus that of the defaults, seed by seed."""
        if not self.tuned or not self.defaults or self.tuned is self.defaults:
            return None
        return by_seed(self.tuned, self.defaults)


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
        known = {
            one.number: some for one in records if (some := _parts(here, arm, one)) is not None
        }
        chosen = estimate(known.get(winner.number), here.score) if winner else None
        near = _near(here, records, winner)
        found.append(Outcome(arm, records, winner, tuned, defaults, near, known, chosen))
    return found


def _parts(here: Desk, arm: Arm, record: Record) -> Floats | None:
    """What each validation client adds to the result of a trial; None if it has not all rounds."""
    result = record.results.get(here.study.rungs[-1])
    if result is None or result.objective is None:
        return None
    run = here.folder / StudyFile.TRIALS / trial_name(arm, record.number)
    return parts(run, result.objective, here.score)


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
            line["run"] = f"{StudyFile.TRIALS}/{trial_name(arm, record.number)}"
            lines.append(((record.number, place), line))
    text = "".join(json.dumps(line) + "\n" for _, line in sorted(lines, key=lambda one: one[0]))
    replace_file(here.folder / StudyFile.LEDGER, text.encode())


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
