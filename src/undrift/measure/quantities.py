"""Quantities: all that a row of metrics.jsonl can hold, and how people read it.

This table is the only place that lists them. The meter measures them, a run's files hold them by
name, and reports take titles, axes, units and digits from here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Topic = Literal["Learning", "Fairness", "Stability", "Cohorts", "Participation", "Cost"]
Scale = Literal["linear", "log"]
Each = Literal["parameter group", "client"]


@dataclass(frozen=True)
class Quantity:
    """A quantity by the name that it has in rows.

    about   one sentence for a reader
    axis    label of its axis below a heading that says `title`, without the unit
    unit    of the numbers shown; "%" and "points" are stored as shares
    scale   "log" if a plot may use a logarithmic axis
    digits  format of a single value
    model   the model that it is of, if that is not the deployed one
    each    what a list of its values is over: parameter groups, or deciles over clients
    total   whether it is counted from the start of the run
    sum_of  the quantities that it is the sum of; rows hold those instead of the sum
    """

    name: str
    topic: Topic
    title: str
    about: str
    axis: str = ""
    unit: str = ""
    scale: Scale = "linear"
    digits: str = ".4g"
    model: str = ""
    each: Each | None = None
    total: bool = False
    sum_of: tuple[str, ...] = ()

    @property
    def factor(self) -> float:
        """What a stored value is multiplied by to be in its unit."""
        return 100.0 if self.unit in ("%", "points") else 1.0

    @property
    def prefixed(self) -> bool:
        """Whether its unit takes decimal prefixes, as in MB."""
        return self.unit in ("B", "FLOP")

    def axis_title(self, prefix: str = "") -> str:
        """The label of its axis, with the unit."""
        axis = self.axis or self.title
        return f"{axis} ({prefix}{self.unit})" if self.unit else axis

    @property
    def full_title(self) -> str:
        """The label of its axis where no heading says the title."""
        said = self.title.lower() in self.axis_title().lower()
        return self.axis_title() if said else f"{self.title}, {self.axis_title()}"


KEYS = ("algorithm", "label", "seed", "round")
"""what tells rows apart"""

MODELS = {"cloud": "Cloud", "aggregate": "Aggregate", "all": "All clients"}
"""models that are tested beside the deployed one, which is one of the first two"""

_TESTED = (
    Quantity(
        "accuracy",
        "Learning",
        "Accuracy",
        "Share of right answers on the test set, of the deployed model.",
        axis="Test accuracy",
        unit="%",
        digits=".2f",
    ),
    Quantity(
        "loss",
        "Learning",
        "Test loss",
        "Mean loss on the test set, of the deployed model.",
        scale="log",
    ),
)
_WHOSE = {
    "cloud": "The same of the model that the server sends to clients.",
    "aggregate": "The same of the mean of the round's client models.",
    "all": "The same of the mean of the last models of all clients.",
}


def _of(model: str, one: Quantity) -> Quantity:
    """A quantity of another model than the deployed one."""
    title = f"{one.title}, {MODELS[model].lower()}"
    return replace(one, name=f"{model}_{one.name}", title=title, about=_WHOSE[model], model=model)


def _over_clients(name: str, title: str, what: str) -> tuple[Quantity, ...]:
    """Mean, worst tenth and standard deviation over clients of a quantity of each."""
    shares = name.endswith("accuracy")
    axis = "Accuracy" if shares else "Loss"
    one = Quantity(name, "Fairness", title, what, axis=axis, digits=".2f" if shares else ".4g")
    value = replace(one, unit="%" if shares else "")
    apart = replace(one, unit="points" if shares else "", axis="Standard deviation")
    worst = "The same over the tenth of the clients with the worst results."
    return (
        replace(value, name=f"{name}_mean", title=f"{title}, mean"),
        replace(value, name=f"{name}_worst", title=f"{title}, worst tenth", about=worst),
        replace(
            apart,
            name=f"{name}_sd",
            title=f"{title}, spread",
            about="Standard deviation over clients.",
        ),
    )


_TABLE = (
    *(same for one in _TESTED for same in (one, *(_of(model, one) for model in MODELS))),
    Quantity(
        "train_loss",
        "Learning",
        "Training loss",
        "Mean over the local steps of the cohort.",
        scale="log",
    ),
    Quantity(
        "validation_accuracy",
        "Learning",
        "Validation accuracy",
        "Of the deployed model on held-out training samples: choose settings by this one.",
        unit="%",
        digits=".2f",
    ),
    Quantity(
        "validation_loss",
        "Learning",
        "Validation loss",
        "Of the deployed model on the same samples.",
        scale="log",
    ),
    Quantity(
        "client_accuracy_worst",
        "Fairness",
        "Worst tenth of the clients",
        "Mean accuracy of the tenth of the clients that the model serves worst.",
        axis="Accuracy",
        unit="%",
        digits=".2f",
    ),
    Quantity(
        "client_accuracy",
        "Fairness",
        "Accuracy over clients",
        "Deciles over clients of the accuracy on their own samples, from the worst to the best.",
        axis="Accuracy",
        unit="%",
        digits=".1f",
        each="client",
    ),
    Quantity(
        "client_accuracy_sd",
        "Fairness",
        "Spread over clients",
        "How far the accuracies of clients lie apart.",
        axis="Standard deviation",
        unit="points",
        digits=".2f",
    ),
    Quantity(
        "client_accuracy_mean",
        "Fairness",
        "Mean over clients",
        "Mean over clients of the accuracy on their own test samples.",
        axis="Accuracy",
        unit="%",
        digits=".2f",
    ),
    *_over_clients(
        "client_loss",
        "Loss of clients",
        "Mean over clients of the loss on their own test samples, where there is no accuracy.",
    ),
    *_over_clients(
        "personal_accuracy",
        "Personal accuracy",
        "Mean over clients of the accuracy on their own samples, each after some local steps.",
    ),
    *_over_clients(
        "personal_loss",
        "Personal loss",
        "Mean over clients of the loss after some local steps, where there is no accuracy.",
    ),
    Quantity(
        "x_norm",
        "Stability",
        "Norm of the model",
        "Euclidean norm of the server's parameters.",
        axis="‖x‖",
        scale="log",
    ),
    Quantity(
        "h_norm",
        "Stability",
        "Norm of the correction",
        "The server's estimate of the drift; only for algorithms that keep one.",
        axis="‖h‖",
        scale="log",
    ),
    Quantity(
        "h_cosine",
        "Stability",
        "Aim of the correction",
        "Cosine of h and the mean update of the round after it.",
        axis="cos(h, mean update)",
        digits=".3f",
    ),
    Quantity(
        "drift",
        "Stability",
        "Client drift",
        "Root mean square distance of the clients' models from their mean.",
        axis="RMS distance",
        scale="log",
    ),
    Quantity(
        "gsi",
        "Cohorts",
        "Diversity of the updates",
        "FedGLAD's similarity indicator: 1 when all updates agree.",
        axis="GSI",
        scale="log",
    ),
    Quantity(
        "factor",
        "Cohorts",
        "Factor of FedGLAD",
        "Mean over parameter groups; only for algorithms that rescale.",
        axis="Factor",
        digits=".3f",
    ),
    Quantity(
        "group_gsi",
        "Cohorts",
        "Diversity by parameter group",
        "The indicator of each group, from the input of the model to its output.",
        axis="GSI",
        digits=".3f",
        each="parameter group",
    ),
    Quantity(
        "group_factor",
        "Cohorts",
        "Factor by parameter group",
        "What FedGLAD multiplies the update of each group with.",
        axis="Factor",
        digits=".3f",
        each="parameter group",
    ),
    Quantity(
        "delivered",
        "Participation",
        "Updates delivered",
        "Clients whose update arrived.",
        axis="Updates per round",
    ),
    Quantity(
        "dropped",
        "Participation",
        "Updates lost",
        "Clients that failed to deliver, counted from the start.",
        axis="Updates in total",
        total=True,
    ),
    Quantity(
        "coverage",
        "Participation",
        "Clients heard so far",
        "Clients that have delivered at least once.",
        axis="Share of all clients",
        unit="%",
        digits=".1f",
        total=True,
    ),
    Quantity(
        "label_similarity",
        "Participation",
        "Labels of the cohort",
        "Label distribution of the cohort against that of all clients.",
        axis="Cosine similarity",
        digits=".3f",
    ),
    Quantity("round", "Cost", "Rounds", "Rounds done.", axis="Round", total=True),
    Quantity(
        "bytes_down",
        "Cost",
        "Traffic down",
        "Bytes that the server sent to clients so far.",
        unit="B",
        total=True,
    ),
    Quantity(
        "bytes_up",
        "Cost",
        "Traffic up",
        "Bytes that clients sent to the server so far.",
        unit="B",
        total=True,
    ),
    Quantity(
        "bytes",
        "Cost",
        "Traffic",
        "Bytes in both directions.",
        axis="Traffic, down and up",
        unit="B",
        total=True,
        sum_of=("bytes_down", "bytes_up"),
    ),
    Quantity(
        "flops",
        "Cost",
        "Compute",
        "Floating-point operations of all clients so far.",
        unit="FLOP",
        total=True,
    ),
    Quantity(
        "seconds",
        "Cost",
        "Seconds",
        "Time that the simulation has taken so far.",
        axis="Time of the simulation",
        unit="s",
        total=True,
    ),
)

QUANTITIES = {quantity.name: quantity for quantity in _TABLE}
"""name → quantity, in the order in which tables and pages show them"""

METRICS = tuple(q.name for q in _TABLE if not q.each and not q.sum_of and q.name not in KEYS)
"""what every trial has in a row, if only as NaN: one number each"""

LISTS = tuple(q.name for q in _TABLE if q.each)
"""what has several values in a round"""

BY_GROUP = {name: f"group_{name}" for name in METRICS if f"group_{name}" in LISTS}
"""quantity → the list that has it by parameter group"""

AXES = ("round", "bytes", "flops", "seconds")
"""what curves can be drawn over"""
