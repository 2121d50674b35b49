"""Palette: colour and line style of each algorithm, the same in every figure.

The first colours are those of Okabe and Ito, which are distinct under all common kinds of colour
blindness (without yellow, which is hard to see on white); the others, mostly darker, are by Paul
Tol. Line styles differ as well, for print in grey.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from undrift.report.read import Arm

_COLOURS = (  # on white, on a dark page
    ("#0072B2", "#4FA8E0"),
    ("#D55E00", "#F28444"),
    ("#009E73", "#35C79B"),
    ("#CC79A7", "#E39CC4"),
    ("#E69F00", "#F2B632"),
    ("#56B4E9", "#9AD4F5"),
    ("#4D4D4D", "#C4C8CE"),
    ("#882255", "#D56BA0"),
    ("#332288", "#8F83E0"),
    ("#999933", "#C9C95C"),
    ("#117733", "#4FB870"),
    ("#8C510A", "#C98D45"),
    ("#44AA99", "#7FD6C8"),
    ("#AA4499", "#DB86CE"),
)
_LINES: tuple[tuple[Any, str], ...] = (  # matplotlib, plotly
    ("-", "solid"),
    ((0, (5, 1.2)), "7px,2px"),
    ((0, (5, 1.2, 1, 1.2)), "7px,2px,2px,2px"),
    ((0, (1.2, 1)), "2px,2px"),
    ((0, (8, 1.5)), "12px,3px"),
    ((0, (3, 1, 1, 1, 1, 1)), "5px,2px,2px,2px,2px,2px"),
    ((0, (3, 1.2)), "4px,2px"),
    ((0, (8, 1.5, 1, 1.5)), "12px,3px,2px,3px"),
)


@dataclass(frozen=True)
class Ink:
    """How one algorithm is drawn."""

    colour: str
    dark: str
    line: Any
    dash: str


def ink(index: int, kind: int | None = None) -> Ink:
    """Colour and line style number `index`; the first 56 are distinct.

    kind  index of the line style, if it is another one
    """
    colour, dark = _COLOURS[index % len(_COLOURS)]
    line, dash = _LINES[(index if kind is None else kind) % len(_LINES)]
    return Ink(colour, dark, line, dash)


def by_run(arms: Sequence[Arm]) -> bool:
    """Whether colours tell algorithms and line styles tell runs, if there are enough of both."""
    names, runs = {arm.name for arm in arms}, {arm.run for arm in arms}
    enough = len(runs) * math.ceil(len(names) / len(_COLOURS)) <= len(_LINES)
    return 1 < len(names) < len(arms) and enough


def inks(arms: Sequence[Arm]) -> list[Ink]:
    """One ink per arm. An algorithm keeps its colour in all runs; line styles distinguish runs."""
    if not by_run(arms):
        return [ink(place) for place in range(len(arms))]
    names = list(dict.fromkeys(arm.name for arm in arms))
    runs = list(dict.fromkeys(arm.run for arm in arms))
    places = [(names.index(arm.name), runs.index(arm.run)) for arm in arms]
    return [ink(name, run + len(runs) * (name // len(_COLOURS))) for name, run in places]
