"""Notes below the tables: how to read them, and what their numbers leave out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from undrift.report.estimate import LEAST_SEEDS
from undrift.report.read import Run
from undrift.report.summary import SummaryRow
from undrift.report.units import percent

BEST = "★"

FALLEN = 0.8
"""a final accuracy below this share of the best one is worth a note; so is a loss above"""


def joined(names: Iterable[str]) -> str:
    """Distinct names in order: several only if the runs have different tasks."""
    return " or ".join(dict.fromkeys(names))


def has_intervals(rows: Sequence[SummaryRow]) -> bool:
    """Whether any algorithm has enough seeds for an interval."""
    return any(row.final and row.final.interval for row in rows)


def seed_note(rows: Sequence[SummaryRow]) -> str:
    """How to read the table of intervals."""
    text = f"Below {LEAST_SEEDS} seeds there are no 95 % intervals."
    if has_intervals(rows):
        scaled = dict.fromkeys(row.score.scaled for row in rows if row.score.scaled)
        brackets = "Brackets hold 95 % intervals of the mean over seeds, by Student's t."
        text = " ".join([brackets, *scaled, text])
    baselines = dict.fromkeys(row.baseline.label for row in rows if row.baseline)
    if baselines:
        text += (
            f" Differences are to {', '.join(baselines)}, on the seeds that both finished; a win is"
            " a seed on which the algorithm ends better."
        )
    return text


def notes(row: SummaryRow) -> str:
    """What the numbers of a row leave out."""
    said = [f"{row.diverged}/{row.seeds} seeds diverged"] if row.diverged else []
    if row.stopped:
        which = f"{len(row.stopped)}/{row.seeds} seeds " if len(row.stopped) < row.seeds else ""
        said.append(f"{which}stopped after {rounds_said(row.stopped)} of {row.arm.rounds}")
    if row.under_way:
        said.append(f"{row.unfinished}/{row.seeds} seeds unfinished ({_so_far(row)})")
    lost = row.seeds - row.diverged - row.unfinished - (row.final.n if row.final else 0)
    if lost > 0:
        said.append(f"{lost}/{row.seeds} seeds ended without a finite {row.score.name}")
    if row.final and row.peak:
        worse, better = row.final.mean, row.peak.mean
        if row.score.lower and FALLEN * worse > better > 0:
            said.append(f"rose from {row.score.number(better)}")
        elif not row.score.lower and worse < FALLEN * better:
            said.append(f"fell from {percent(better)} %")
    return ", ".join(said)


def _so_far(row: SummaryRow) -> str:
    """Rounds done by the unfinished seeds, and their latest result."""
    first, last = min(row.under_way), max(row.under_way)
    text = f"{rounds_said(row.under_way)} of {row.arm.rounds}"
    if row.latest is None:
        return text
    at = "" if first == last == row.latest_round else f" in round {row.latest_round}"
    return f"{text}, {row.score.said(row.score.numbers(row.latest))}{at}"


def rounds_said(reached: Sequence[int]) -> str:
    """The last rounds of several trials."""
    first, last = min(reached), max(reached)
    return f"round {last}" if first == last else f"rounds {first} to {last}"


def footnote(run: Run, rows: Sequence[SummaryRow]) -> str:
    """How to read the table, in a sentence or two."""
    spread = "mean ± sd over seeds" if len(run.seeds) > 1 else "one seed, so without a spread"
    if 1 < len(run.seeds) < LEAST_SEEDS:
        spread = f"mean ± sd over {len(run.seeds)} seeds, too few for 95 % intervals"
    problems = " on the same problem" if len({arm.problem for arm in run.arms}) > 1 else ""
    text = (
        f"{joined(row.score.about for row in rows)}, {spread}; {BEST} marks the best of those that"
    )
    text += f" finished{problems}."
    if run.target is not None:
        text += (
            f" Costs are those of all clients up to the first evaluated round with at least"
            f" {percent(run.target)} %, averaged over the seeds that got there."
        )
    return text
