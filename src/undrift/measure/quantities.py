"""Quantities: what a row of metrics.jsonl can hold, with titles, units and digits.

This is the only list of them. The meter measures them, the files of a run hold them by name, and
reports and commands take titles, axes, units and digits from here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Topic = Literal["Learning", "Fairness", "Stability", "Cohorts", "Participation", "Cost"]
Scale = Literal["linear", "log"]
Each = Literal["parameter group", "client"]


@dataclass(frozen=True)
class Quantity:
    """A quantity, by its name in rows.

    about      one sentence for a reader
    axis       label of its axis below a heading that says `title`, without the unit
    symbol     shorter than the title, if it has one
    unit       of the numbers shown; "%" and "points" are stored as shares
    scale      "log" if a plot may use a logarithmic axis
    digits     format of a single value
    magnitude  size that a difference is relative to at least, for values that may be near 0
    model      the model that it is of, if that is not the deployed one
    each       what a list of its values is over: parameter groups, or deciles over clients
    total      whether it is counted from the start of the run
    sum_of     the quantities that it is the sum of; rows hold those instead of the sum
    plain      the quantity that counts samples alike, if this one counts classes alike
    """

    name: str
    topic: Topic
    title: str
    about: str
    axis: str = ""
    symbol: str = ""
    unit: str = ""
    scale: Scale = "linear"
    digits: str = ".4g"
    magnitude: float = 0.0
    model: str = ""
    each: Each | None = None
    total: bool = False
    sum_of: tuple[str, ...] = ()
    plain: str = ""

    @property
    def share(self) -> bool:
        """Whether it is stored as a share, such as that of right answers."""
        return self.unit in ("%", "points")

    @property
    def factor(self) -> float:
        """Factor from stored values to values in the unit."""
        return 100.0 if self.share else 1.0

    def number(self, value: float, sign: str = "") -> str:
        """A stored value in its unit, without the unit; sign "+" shows that of positive ones."""
        return f"{self.factor * value:{sign}{self.digits}}"

    @property
    def short(self) -> str:
        """What a narrow table or a line of progress calls it."""
        return self.symbol or self.title.lower()

    def labelled(self, value: float) -> str:
        """A stored value with name and unit: "accuracy 80.83 %"."""
        return f"{self.short} {self.number(value)} {self.unit}".rstrip()

    @property
    def prefixed(self) -> bool:
        """Whether the unit takes decimal prefixes, as in MB."""
        return self.unit in ("B", "FLOP")

    def axis_title(self, prefix: str = "") -> str:
        """The label of its axis, with the unit."""
        axis = self.axis or self.symbol or self.title
        return f"{axis} ({prefix}{self.unit})" if self.unit else axis

    @property
    def full_title(self) -> str:
        """The label of its axis where no heading says the title."""
        said = self.title.lower() in self.axis_title().lower()
        return self.axis_title() if said else f"{self.title}, {self.axis_title()}"


KEYS = ("algorithm", "label", "seed", "round")
"""columns that identify a row"""

MODEL_TITLES = {"cloud": "Cloud", "aggregate": "Aggregate", "all": "All clients"}
"""models that are tested; the deployed one is one of the first two"""

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
        "balanced_accuracy",
        "Learning",
        "Balanced accuracy",
        "Mean over the classes of the accuracy on their test samples, of the deployed model.",
        unit="%",
        digits=".2f",
        plain="accuracy",
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
    title = f"{one.title}, {MODEL_TITLES[model].lower()}"
    plain = one.plain and f"{model}_{one.plain}"
    return replace(
        one,
        name=f"{model}_{one.name}",
        title=title,
        about=_WHOSE[model],
        model=model,
        plain=plain,
    )


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
    *(same for one in _TESTED for same in (one, *(_of(model, one) for model in MODEL_TITLES))),
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
        "validation_balanced_accuracy",
        "Learning",
        "Balanced validation accuracy",
        "Mean over the classes of the accuracy on the same samples.",
        unit="%",
        digits=".2f",
        plain="validation_accuracy",
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
        symbol="‖x‖",
        scale="log",
    ),
    Quantity(
        "h_norm",
        "Stability",
        "Norm of the correction",
        "The server's estimate of the drift; only for algorithms that keep one.",
        symbol="‖h‖",
        scale="log",
    ),
    Quantity(
        "beta",
        "Stability",
        "Decay of the correction",
        "AdaBest's beta in this round; only where it is chosen from round to round.",
        symbol="β",
        digits=".3f",
        magnitude=1.0,
    ),
    Quantity(
        "h_cosine",
        "Stability",
        "Aim of the correction",
        "Cosine of h and the mean update of the round after it.",
        axis="cos(h, mean update)",
        digits=".3f",
        magnitude=1.0,
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
        "FedGLAD's indicator (GSI): 1 when all updates agree, more the further they point apart.",
        axis="GSI",
        scale="log",
    ),
    Quantity(
        "gsi_mean",
        "Cohorts",
        "Usual diversity",
        "FedGLAD's running mean B of the GSI in the rounds before; mean over parameter groups.",
        axis="B",
        scale="log",
    ),
    Quantity(
        "all_gsi",
        "Cohorts",
        "Diversity of all clients' updates",
        "The indicator of the updates that all clients would have sent in the same round.",
        axis="GSI",
        scale="log",
    ),
    Quantity(
        "cohort_cosine",
        "Cohorts",
        "Aim of the cohort",
        "Cosine of its mean update and that of all clients: 1 if it stands for all of them.",
        axis="cos(cohort, all clients)",
        digits=".3f",
        magnitude=1.0,
    ),
    Quantity(
        "square",
        "Cohorts",
        "Length of the updates",
        "Mean squared length of the updates of the cohort.",
        axis="Squared length",
        scale="log",
    ),
    Quantity(
        "all_square",
        "Cohorts",
        "Length of all clients' updates",
        "The same of the updates that all clients would have sent in the same round.",
        axis="Squared length",
        scale="log",
    ),
    Quantity(
        "square_spread",
        "Cohorts",
        "Spread of the lengths",
        "Standard deviation of the squared lengths of the cohort's updates, over their mean.",
        axis="Standard deviation / mean",
        digits=".3f",
    ),
    Quantity(
        "updates",
        "Cohorts",
        "Effective number of updates",
        "From 1 (all agree) to the clients of the round; only where beta is chosen by it.",
        symbol="G",
        digits=".2f",
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
"""quantities with one number per row; rows of every trial have all of them, perhaps as NaN"""

LISTS = tuple(q.name for q in _TABLE if q.each)
"""quantities with several values per row"""

BY_GROUP = {name: f"group_{name}" for name in METRICS if f"group_{name}" in LISTS}
"""quantity → list of its values by parameter group"""

BALANCED = {q.plain: q.name for q in _TABLE if q.plain}
"""accuracy over samples → accuracy over classes"""

CLOCK = "seconds"
"""the only quantity that differs each time that the same experiment is run"""

AXES = ("round", "bytes", "flops", "seconds")
"""x-axes of curves"""
