"""Notes below the tables: how to read them, and what their numbers leave out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from undrift.later import np
from undrift.report.estimate import LEAST_SEEDS
from undrift.report.read import Run
from undrift.report.summary import SummaryRow
from undrift.report.units import percent

BEST = "★"

FALLEN = 0.8
"""a final accuracy below this share of the best one is worth a note; so is a loss above"""

FLUCTUATIONS = 3
"""times the usual change between two evaluations that a fall must exceed, or it may be noise"""

LEAST_EVALUATIONS = 5
"""evaluations without which fluctuations are unknown"""


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
            f" Differences are to {'; '.join(baselines)}, on the seeds that both finished; a win is"
            " a seed on which the algorithm ends better."
        )
    return text


def notes(row: SummaryRow) -> str:
    """What the numbers of a row leave out."""
    said = [row.arm.fork.said(row.arm.name)] if row.arm.fork else []
    if row.early:
        said.append("at the target when first evaluated")
    if row.diverged:
        said.append(f"{row.diverged}/{row.seeds} seeds diverged")
    if row.stopped:
        which = f"{len(row.stopped)}/{row.seeds} seeds " if len(row.stopped) < row.seeds else ""
        said.append(f"{which}stopped after {rounds_said(row.stopped)} of {row.arm.rounds}")
    if row.under_way:
        said.append(f"{row.unfinished}/{row.seeds} seeds unfinished ({_so_far(row)})")
    lost = row.seeds - row.diverged - row.unfinished - (row.final.n if row.final else 0)
    if lost > 0:
        said.append(f"{lost}/{row.seeds} seeds ended without a finite {row.score.name}")
    if row.final and row.peak and _worsened(row):
        best = row.score.number(row.peak.mean)
        said.append(f"{'rose' if row.score.lower else 'fell'} from {best} {row.score.unit}".strip())
    return ", ".join(said)


def _worsened(row: SummaryRow) -> bool:
    """Whether the mean over seeds ends clearly below its best: by more than it fluctuates."""
    curve = row.score.along(row.arm)
    curve = curve[np.isfinite(curve)]
    if curve.size < LEAST_EVALUATIONS:
        return False
    last, best = float(curve[-1]), float(curve.min() if row.score.lower else curve.max())
    relative = FALLEN * last > best > 0 if row.score.lower else last < FALLEN * best
    usual = float(np.median(np.abs(np.diff(curve))))
    return relative and abs(best - last) > FLUCTUATIONS * usual


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
    problems = " on the same problem" if len({arm.problem for arm in run.arms}) > 1 else ""
    about = joined(row.score.about for row in rows)
    aside = "" if all(row.arm.federated for row in rows) else ", Centralised aside"
    what = "best accuracy" if run.imbalanced else "best"
    best = f"{BEST} marks the {what} of those that finished{problems}{aside}"
    text = f"{about}, {_spread(rows)}; {best}."
    text += _chance(rows)
    if run.experiment.get("test_subset"):
        text += f" Tested on {run.experiment['test_subset']} samples of the test set."
    if run.imbalanced:
        text += _flatters(run)
    if run.target is not None:
        text += (
            f" Costs are those of all clients up to the first evaluated round with at least"
            f" {percent(run.target)} %, averaged over the seeds that got there."
        )
    if any(row.clients for row in rows):
        text += " Own tests: mean over clients, each on its own test samples."
    if any(row.personal for row in rows):
        steps = run.experiment.get("personal_steps", "some")
        text += f" Personal: mean over clients on their own samples, after {steps} local steps."
    if any(any(row.since.values()) for row in rows):
        text += " Costs of forks: since the fork, of those since the first round."
    return text


def _flatters(run: Run) -> str:
    """Whom accuracy favours, where test classes differ in size."""
    shares = [
        100 * size / sum(labels.test) for labels in run.imbalanced for size in labels.test if size
    ]
    return (
        f" The classes have {min(shares):.2g} to {max(shares):.2g} % of the test samples, so"
        " accuracy flatters models that favour the large ones; balanced accuracy is the mean of the"
        " accuracies on each class."
    )


def _spread(rows: Sequence[SummaryRow]) -> str:
    counts = [row.seeds for row in rows]
    if max(counts) == 1:
        return "one seed, so without a spread"
    few = ", too few for 95 % intervals" if max(counts) < LEAST_SEEDS else ""
    return f"mean ± sd over {seeds_said(counts)}{few}"


def seeds_said(counts: Sequence[int]) -> str:
    """How many seeds several algorithms have."""
    least, most = min(counts), max(counts)
    if least < most:
        return f"{least} to {most} seeds"
    return f"{most} seed{'s' if most > 1 else ''}"


def _chance(rows: Sequence[SummaryRow]) -> str:
    """Whose distance from the best may be chance: 0 is in the interval of the paired gaps."""
    behind = [(row, row.behind) for row in rows if row.behind is not None and row.complete]
    if not behind:
        return ""
    if all(row.seeds < LEAST_SEEDS for row in rows):
        return " With so few seeds, differences cannot be told from chance."
    few = [row.arm.label for row, gap in behind if gap.interval is None]
    close = [row.arm.label for row, gap in behind if gap.interval and gap.interval[0] <= 0]
    told = {
        "Not told from the best by the 95 % interval of the paired differences": close,
        "Too few seeds in common with the best to tell differences from chance": few,
    }
    return "".join(f" {said}: {'; '.join(names)}." for said, names in told.items() if names)
