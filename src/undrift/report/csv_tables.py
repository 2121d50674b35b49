"""Tables of the summary as CSV, with all numbers."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from undrift.report.estimate import Estimate
from undrift.report.read import Run
from undrift.report.summary import SummaryRow, finals, first_hit, tail

_ESTIMATES = (
    *("final", "behind", "difference", "tail", "peak"),
    *("rounds_to", "bytes_to", "flops_to", "bytes", "flops", "latest", "clients", "personal"),
    "balanced",
)

_SINCE = ("bytes_to", "flops_to", "bytes", "flops")
"""costs that count the whole past of a fork"""


def csv_table(run: Run, rows: Sequence[SummaryRow]) -> str:
    """All numbers to 10 digits: accuracies as shares, traffic in bytes, compute in operations."""
    heads = ["run", "algorithm", "label", "seeds", "diverged", "unfinished", "leads"]
    heads += ["target", "reached", "baseline", "wins", "losses"]
    heads += ["metric", "rounds", "done", "latest_round"]
    heads += [f"{name}_{part}" for name in _ESTIMATES for part in ("mean", "sd", "low", "high")]
    heads += ["fork_round", *(f"{name}_since_fork" for name in _SINCE)]
    lines = []
    for row in rows:
        line = [row.arm.run, row.arm.name, row.arm.label, row.seeds, row.diverged, row.unfinished]
        line += [int(row.leads), run.target, row.reached]
        line += [row.baseline.label, row.wins, row.losses] if row.baseline else [None] * 3
        line += [row.score.name, row.arm.rounds, row.done, row.latest_round]
        for name in _ESTIMATES:
            one: Estimate | None = getattr(row, name)
            line += [None] * 4 if one is None else [one.mean, one.sd, *(one.interval or [None] * 2)]
        line += [row.arm.fork.round if row.arm.fork else None]
        line += [one.mean if (one := row.since.get(name)) else None for name in _SINCE]
        lines.append(line)
    return _csv(heads, lines)


def seeds_csv(run: Run, rows: Sequence[SummaryRow]) -> str:
    """One line per algorithm and seed: the values behind the means, and why it ended early."""
    heads = ["run", "algorithm", "label", "seed", "rounds", "final", "tail", "peak", "difference"]
    lines = []
    for row in rows:
        done, score = finals(row.arm), row.score
        for seed, curve in row.arm.curves.items():
            line = [row.arm.run, row.arm.name, row.arm.label, seed, int(curve.rounds[-1])]
            line += [done.get(seed), tail(score, curve) if seed in done else None]
            line += [score.peak(curve)]
            hit = first_hit(curve, run.target)
            costs = [None if hit is None else curve[x][hit] for x in ("round", "bytes", "flops")]
            failure = row.arm.failures.get(seed)
            ends = [failure.reason if failure else None, row.arm.stops.get(seed)]
            lines.append([*line, row.gaps.get(seed), *costs, *ends])
    return _csv([*heads, "rounds_to", "bytes_to", "flops_to", "failure", "stopped"], lines)


def _csv(heads: list[str], lines: Sequence[Sequence[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heads)
    for line in lines:
        writer.writerow([f"{cell:.10g}" if isinstance(cell, float) else cell for cell in line])
    return text.getvalue()
