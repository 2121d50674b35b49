"""Hints about settings that are allowed, but do not fit the data or each other."""

from __future__ import annotations

from collections.abc import Iterator

from undrift.algorithms import AdaBest
from undrift.core import Algorithm, Part
from undrift.data.federated import FederatedData
from undrift.experiment.experiment import Experiment
from undrift.optim import Adaptive
from undrift.parts import Extrapolate, LocalOpt


def advice(experiment: Experiment, data: FederatedData) -> Iterator[str]:
    """What a user should know before an experiment begins."""
    largest, local = int(data.sizes.max()), experiment.local
    if local.fills and local.batch_size > largest:
        yield (
            f"clients have at most {largest} samples, so {local.batching!r} fills every "
            f"batch of {local.batch_size} up with copies; batching 'keep' takes each sample once, "
            f"or give a batch_size of {largest} or less"
        )
    target = experiment.target
    if target is not None and data.targets.is_floating_point():
        yield f"target={target:g} is not used: it is an accuracy, the targets are numbers"
    cohort = getattr(experiment.sampler, "clients", len(data))
    for made in experiment.algorithms:
        yield from _growing(made, cohort, len(data))
        yield from _misled(made)


def _growing(made: Algorithm, cohort: int, clients: int) -> Iterator[str]:
    """Whether beta is beyond what `undrift.vectors.safe_beta` calls stable."""
    limit = 1 - 1 / (2 * cohort)
    one = made
    while isinstance(one, Part) and not isinstance(one, Extrapolate):
        one = one.inner
    beta = one.beta if isinstance(one, AdaBest | Extrapolate) else 0.0
    if cohort < clients and isinstance(beta, float) and beta > limit:
        yield (
            f"{made!r}: with {cohort} of {clients} clients per round, a beta above "
            f"{limit:.3g} may let the model grow without bound in long runs; watch ‖x‖, or "
            "take beta='auto'"
        )


def _misled(made: Algorithm) -> Iterator[str]:
    """Whether gradients are learnt from updates whose length says nothing of them."""
    one = made
    while isinstance(one, Part):
        if (
            isinstance(one, LocalOpt)
            and one.inner.even_steps
            and isinstance(one.optimiser, Adaptive)
        ):
            yield (
                f"{made!r}: {one.inner!r} takes updates divided by steps and step size for "
                f"gradients, which they are not with {one.optimiser!r}: it may diverge; "
                "SCAFFOLD(option=1) reads gradients themselves"
            )
        one = one.inner
