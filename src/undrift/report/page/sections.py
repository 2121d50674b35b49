"""Sections of the page: which quantities are plotted, in which order and how."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from undrift.measure.quantities import BY_GROUP, MODEL_TITLES, QUANTITIES, Quantity
from undrift.report.read import Run


@dataclass(frozen=True)
class Panel:
    """One plot.

    kind   curves     all algorithms over the chosen x-axis
           heat, fan  a list of values over it, in one small plot per algorithm
           spread     a list of values in the last round, all algorithms
    """

    quantity: Quantity
    title: str
    caption: str
    kind: Literal["curves", "heat", "fan", "spread"] = "curves"

    @property
    def each(self) -> bool:
        """Whether every algorithm has a plot of its own."""
        return self.kind in ("heat", "fan")

    @property
    def models(self) -> bool:
        """Whether the reader can choose which model is shown."""
        return all(f"{model}_{self.quantity.name}" in QUANTITIES for model in MODEL_TITLES)

    @property
    def group(self) -> str | None:
        """The list of its values by parameter group, if there is one."""
        return BY_GROUP.get(self.quantity.name)

    def worth_showing(self, run: Run) -> bool:
        """Whether a run has data for this plot."""
        name = self.quantity.name
        if self.quantity.each:
            return any(arm.sheet(name) is not None for arm in run.arms)
        if name == "dropped":
            return any(bool((curve[name] > 0).any()) for curve in run.curves)
        return run.recorded(name)


def _panels(quantity: Quantity) -> Iterator[Panel]:
    title, about = quantity.title, quantity.about
    if quantity.each == "client":
        yield Panel(
            quantity,
            f"{title}, last round",
            "Clients in the order of their accuracy on their own samples, the worst at the left."
            " A flat line is fair.",
            "spread",
        )
        yield Panel(
            quantity,
            f"{title}, by round",
            "The line is the median client; each shade holds another fifth of the clients around"
            " it, the palest reaches from the worst to the best.",
            "fan",
        )
    else:
        panel = Panel(quantity, title, about, "heat" if quantity.each else "curves")
        yield (
            replace(panel, caption=f"{about} Others can be chosen above.")
            if panel.models
            else panel
        )


def _section(topic: str) -> tuple[str, tuple[Panel, ...]]:
    shown = [q for q in QUANTITIES.values() if q.topic == topic and not q.model and not q.plain]
    return topic, tuple(panel for quantity in shown for panel in _panels(quantity))


SECTIONS = tuple(map(_section, ("Learning", "Fairness", "Stability", "Cohorts", "Participation")))
"""title and panels of each section; costs have none, since they are the x-axes"""
