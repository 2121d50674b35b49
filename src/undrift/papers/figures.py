"""Figures of outcomes: results beside the paper's values, and claims with their verdicts."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

from undrift.papers.claims import AGREES, DISAGREES, UNCLEAR
from undrift.papers.judging import CellOutcome, Judged, Outcome
from undrift.papers.layers import matches
from undrift.papers.tables import place_of, setting_of
from undrift.report.drawing import draw_grid, styled
from undrift.report.palette import ink
from undrift.system.extras import require

COLUMNS = 3
VERDICT_COLOURS = {AGREES: "#009E73", DISAGREES: "#D55E00", UNCLEAR: "#8A9099"}


def draw_outcome(outcome: Outcome, cells: str = "*") -> Any:
    """A panel for each setting that was run, with a line for each row; None if there is none.

    cells  which settings, as for `undrift paper run`
    """
    require("matplotlib", "report", "the papers' figures")
    from matplotlib.figure import Figure

    some = [scales for id, scales in outcome.cells.items() if matches(id, cells)]
    run = [one for scales in some for one in scales if one.run]
    if not run:
        return None
    labels = list(dict.fromkeys(row.label for one in run for row in one.cell.rows))
    columns = min(COLUMNS, len(run))
    height = 0.55 + math.ceil(len(run) / columns) * (0.6 + 0.17 * len(labels))
    with styled():
        figure = Figure(figsize=(9.0, height), layout="constrained")
        draw_grid(figure, [_panel(outcome, one, labels) for one in run], columns)
        for place, axes in enumerate(figure.axes):
            if place % columns:
                axes.set_yticklabels([])
        figure.supxlabel(_axis(outcome), fontsize=8)
    return figure


def draw_claims(outcomes: Sequence[Outcome]) -> Any:
    """Every claim about an order in points that was run: how far it holds; None if there is none.

    Differences are turned so that those right of zero are as the paper says.
    """
    require("matplotlib", "report", "the papers' figures")
    from matplotlib.figure import Figure

    shown = [(one, claim) for one in outcomes for claim in one.claims if _in_points(one, claim)]
    if not shown:
        return None
    with styled():
        figure = Figure(figsize=(9.0, 0.8 + 0.15 * len(shown)), layout="constrained")
        axes = figure.subplots()
        for y, (_, judged) in enumerate(shown):
            gap, claim, word = judged.verdict.difference, judged.claim, judged.verdict.word
            assert gap is not None
            assert gap.interval is not None
            assert claim is not None
            turn = -1 if claim.sign == "<" else 1
            axes.plot([turn * end for end in gap.interval], [y, y], color=VERDICT_COLOURS[word])
            axes.plot([turn * gap.mean], [y], "o", color=VERDICT_COLOURS[word], markersize=3.5)
        for word, colour in VERDICT_COLOURS.items():
            axes.plot([], [], "o-", color=colour, markersize=3.5, label=word)
        axes.axvline(0, color="#444444", linewidth=0.8)
        axes.set_xscale("symlog", linthresh=1.0)
        low, high = axes.get_xlim()
        ticks = [one for one in (-30, -10, -3, -1, 0, 1, 3, 10, 30) if low <= one <= high]
        axes.set_xticks(ticks, [f"{tick:+d}" if tick else "0" for tick in ticks])
        axes.set_xticks([], minor=True)
        labels = [f"{one.item.id}, {place_of(judged)}: {judged.what}" for one, judged in shown]
        axes.set_yticks(range(len(shown)), labels, fontsize=6)
        axes.set_ylim(len(shown) - 0.5, -0.5)
        axes.set_xlabel("points, with 95 % interval; right of 0 is as the paper says")
        figure.legend(loc="outside upper right", ncols=len(VERDICT_COLOURS))
    return figure


def _in_points(outcome: Outcome, judged: Judged) -> bool:
    """Whether a claim is about an order of accuracies, and has an interval."""
    claim = judged.claim
    if claim is None or claim.sign == "~" or judged.verdict.difference is None:
        return False
    measure = outcome.item.measures[claim.measure or outcome.item.main[0]]
    return measure.unit in ("%", "points") and not claim.right.number


def svg(figure: Any) -> str:
    """A figure as an element of a page."""
    with styled(), io.StringIO() as file:
        figure.savefig(file, format="svg", metadata={"Date": None})
        return file.getvalue()[file.getvalue().index("<svg") :]


def _axis(outcome: Outcome) -> str:
    name, measure = outcome.item.main
    unit = f" ({measure.unit})" if measure.unit else ""
    return f"{name}{unit}: ours with 95 % interval (●), the paper's (◇)"


def _panel(outcome: Outcome, cell: CellOutcome, labels: list[str]) -> Any:
    printed = outcome.item.printed.get(cell.cell.id, {})

    def draw(axes: Any) -> None:
        for y, label in enumerate(labels):
            colour = ink(y).colour
            found = row.estimate(*outcome.item.main) if (row := cell.rows.get(label)) else None
            if found is not None:
                low, high = found.interval or (found.mean, found.mean)
                axes.plot([low, high], [y, y], color=colour, linewidth=1.6)
                axes.plot([found.mean], [y], "o", color=colour, markersize=4.5)
            if label in printed:
                axes.plot([printed[label][0]], [y], "D", color=colour, fillstyle="none", ms=4)
        axes.set_yticks(range(len(labels)), labels)
        axes.set_ylim(len(labels) - 0.5, -0.5)
        axes.set_title(setting_of(cell))

    return draw
