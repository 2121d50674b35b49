"""Who takes part: our engines by name, and the rules that are compared on the fastest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.workloads import Workload
from undrift import engines
from undrift.algorithms import MFL, SCAFFOLD, AdaBest, FedAvg, FedDyn, FedGBO, MimeLite
from undrift.core import Algorithm
from undrift.data import FederatedData
from undrift.federation.rounds import Round, rounds
from undrift.federation.sampling import Explicit
from undrift.optim import Adam, RMSProp, SGDm
from undrift.training.task import Task

ENGINES: dict[str, dict[str, Any]] = {
    "Sequential": {},
    "Threads": {"workers": 2},
    "Compiled": {"workers": 2},
}
"""Engines of `undrift.engines` and their settings; those that it lacks do not take part."""

RULES: dict[str, Algorithm] = {
    "FedAvg": FedAvg(),
    "AdaBest": AdaBest(),
    "SCAFFOLD": SCAFFOLD(),
    "FedDyn": FedDyn(),
    "FedGBO (SGDm)": FedGBO(SGDm()),
    "FedGBO (RMSProp)": FedGBO(RMSProp(lr=0.01)),
    "FedGBO (Adam)": FedGBO(Adam(lr=0.01)),
    "MimeLite": MimeLite(SGDm()),
    "MFL": MFL(SGDm()),
}


def present() -> list[str]:
    """The engines that there are."""
    return [name for name in ENGINES if hasattr(engines, name)]


def workers(engine: str) -> int:
    """The cores that an engine uses."""
    return int(ENGINES[engine].get("workers", 1))


def player(
    work: Workload,
    engine: str,
    data: FederatedData,
    algorithm: Algorithm | None = None,
    cohorts: Sequence[Sequence[int]] | None = None,
) -> Callable[[], int]:
    """A function that plays the next round and returns the steps made.

    cohorts  who takes part in one round after the other; everybody in all if not given
    """
    _, model = work.models()
    federation = rounds(
        algorithm or FedAvg(),
        Task(model, work.loss),
        data,
        total=10**9,
        sampler=Explicit(cohorts or (range(len(data)),)),
        local=work.local,
        engine=getattr(engines, engine)(**ENGINES[engine]),
    )

    def play() -> int:
        round: Round = next(federation)
        assert not round.dropped, f"{work.name}, {engine}: {dict(round.dropped)}"
        return round.steps

    return play
