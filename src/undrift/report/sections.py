"""Sections: what the page plots, in which order, and what a reader should look for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from undrift.report.read import Run
from undrift.runs.reading import LISTS


@dataclass(frozen=True)
class Panel:
    """One plot: which metric, how its axis is called and what a reader should look for.

    kind   curves     all algorithms over the x-axis that the reader chose
           heat, fan  a list of values over it, in one small plot for each algorithm
           spread     a list of values in the last round, all algorithms
    group  the list that has this metric by parameter group, for the reader to choose from
    exact  a count since the start, which smoothing would only delay
    """

    metric: str
    title: str
    axis: str
    caption: str
    kind: Literal["curves", "heat", "fan", "spread"] = "curves"
    group: str | None = None
    digits: str = ".4~g"
    models: bool = False
    exact: bool = False
    positive: bool = False

    @property
    def each(self) -> bool:
        """Whether every algorithm has a plot of its own."""
        return self.kind in ("heat", "fan")

    def worth_showing(self, run: Run) -> bool:
        """Whether a run has anything to show in this plot."""
        if self.metric in LISTS:
            return any(arm.sheet(self.metric) is not None for arm in run.arms)
        if self.metric == "dropped":
            return any(bool((curve["dropped"] > 0).any()) for curve in run.curves)
        return run.recorded(self.metric)


LEARNING = (
    Panel(
        "accuracy",
        "Accuracy",
        "Test accuracy (%)",
        "Of the model each algorithm deploys, unless another is chosen above.",
        digits=".2f",
        models=True,
    ),
    Panel(
        "loss",
        "Test loss",
        "Test loss",
        "Of the deployed model, unless another is chosen above.",
        models=True,
        positive=True,
    ),
    Panel(
        "train_loss",
        "Training loss",
        "Training loss",
        "Mean over the local steps of the cohort.",
        positive=True,
    ),
    Panel(
        "validation_accuracy",
        "Validation accuracy",
        "Validation accuracy (%)",
        "Of the deployed model on held-out training samples: choose settings by this one.",
        digits=".2f",
    ),
    Panel(
        "validation_loss",
        "Validation loss",
        "Validation loss",
        "Of the deployed model on the same samples.",
        positive=True,
    ),
)

FAIRNESS = (
    Panel(
        "client_accuracy",
        "Accuracy over clients, last round",
        "Accuracy (%)",
        "Clients in the order of their accuracy on their own samples, the worst at the left."
        " A flat line is fair.",
        kind="spread",
        digits=".1f",
    ),
    Panel(
        "client_accuracy_worst",
        "Worst tenth of the clients",
        "Accuracy (%)",
        "Mean accuracy of the tenth of the clients that the model serves worst.",
        digits=".2f",
    ),
    Panel(
        "client_accuracy",
        "Accuracy over clients, by round",
        "Accuracy (%)",
        "The line is the median client; each shade holds another fifth of the clients around it,"
        " the palest reaches from the worst to the best.",
        kind="fan",
        digits=".1f",
    ),
    Panel(
        "client_accuracy_sd",
        "Spread over clients",
        "Standard deviation (points)",
        "How far the accuracies of clients lie apart.",
        digits=".2f",
    ),
)

STABILITY = (
    Panel(
        "x_norm",
        "Norm of the model",
        "‖x‖",
        "Euclidean norm of the server's parameters.",
        positive=True,
    ),
    Panel(
        "h_norm",
        "Norm of the correction",
        "‖h‖",
        "The server's estimate of the drift; only for algorithms that keep one.",
        positive=True,
    ),
    Panel(
        "h_cosine",
        "Aim of the correction",
        "cos(h, mean update)",
        "Cosine of h and the mean update of the round after it.",
        digits=".3f",
    ),
    Panel(
        "drift",
        "Client drift",
        "RMS distance",
        "Root mean square distance of the clients' models from their mean.",
        positive=True,
    ),
)

COHORTS = (
    Panel(
        "gsi",
        "Diversity of the updates",
        "GSI",
        "FedGLAD's similarity indicator: 1 when all updates agree.",
        group="group_gsi",
    ),
    Panel(
        "factor",
        "Factor of FedGLAD",
        "Factor",
        "Mean over parameter groups; only for algorithms that rescale.",
        group="group_factor",
        digits=".3f",
    ),
    Panel(
        "group_gsi",
        "Diversity by parameter group",
        "GSI",
        "One row a group, from the input of the model at the top to its output.",
        kind="heat",
        digits=".3f",
    ),
    Panel(
        "group_factor",
        "Factor by parameter group",
        "Factor",
        "What FedGLAD multiplies the update of each group with.",
        kind="heat",
        digits=".3f",
    ),
)

PARTICIPATION = (
    Panel("delivered", "Updates delivered", "Updates per round", "Clients whose update arrived."),
    Panel(
        "dropped",
        "Updates lost",
        "Updates in total",
        "Clients that failed to deliver, counted from the start.",
        exact=True,
    ),
    Panel(
        "coverage",
        "Clients heard so far",
        "Share of all clients (%)",
        "Clients that have delivered at least once.",
        digits=".1f",
        exact=True,
    ),
    Panel(
        "label_similarity",
        "Labels of the cohort",
        "Cosine similarity",
        "Label distribution of the cohort against that of all clients.",
        digits=".3f",
    ),
)

SECTIONS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    ("Learning", LEARNING),
    ("Fairness", FAIRNESS),
    ("Stability", STABILITY),
    ("Cohorts", COHORTS),
    ("Participation", PARTICIPATION),
)
