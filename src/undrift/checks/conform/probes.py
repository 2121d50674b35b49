"""The probes: small problems, each of which changes one thing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from undrift.checks.conform.frame import Rule
from undrift.checks.conform.problem import Adapter, Quadratic, Scenario
from undrift.checks.conform.rules import FedAvg

CLIENTS, DIMENSION, ROUNDS, BATCH = 5, 3, 4, 3
EVERYBODY = [list(range(CLIENTS))] * ROUNDS
CHANGING = [[0, 1, 2], [2, 3], [0, 3, 4], [1, 2, 4]]
LATE = [[1], [3], [0], [2]]
"""clients of these cohorts that drop out"""

Make = Callable[[], Adapter]
Settings = Mapping[str, float]


@dataclass(frozen=True)
class Probe:
    """A question to an implementation.

    says      what must hold
    scenario  what is played, given the rule and its settings; None if it does not apply
    against   what else the adapter plays, whose result must be that of `back`; if not given, the
              result must be the reference's
    """

    says: str
    scenario: Callable[[type[Rule], Settings], Scenario | None]
    against: Callable[[type[Rule], Scenario], Scenario] | None = None
    back: Callable[[type[Rule], np.ndarray], np.ndarray] = lambda rule, x: x
    states: bool = False
    """whether states are compared, not models"""
    reference: Callable[[type[Rule]], type[Rule]] = lambda rule: rule


def problem(sizes: Sequence[int] = (9,) * CLIENTS, alike: bool = False) -> Scenario:
    """Clients with these numbers of samples, all of them in every round."""
    rng = np.random.default_rng(16)
    clients = []
    for n in sizes:
        inputs = rng.normal(size=(n, DIMENSION))
        optimum = rng.normal(size=DIMENSION) + 1
        clients.append(Quadratic(inputs, inputs @ optimum + 0.3 * rng.normal(size=n)))
    clients = clients[:1] * len(sizes) if alike else clients
    batches = [np.split(np.arange(n), range(BATCH, n, BATCH)) for n in sizes]
    return Scenario(np.array([0.5, -0.4, 0.8]), clients, batches, EVERYBODY)


def _of(base: Scenario) -> Callable[[type[Rule], Settings], Scenario]:
    return lambda rule, settings: replace(base, settings=settings)


def _still(rule: type[Rule], settings: Settings) -> Scenario | None:
    if not rule.rests:
        return None
    base = problem()
    clients = [replace(client, targets=client.inputs @ base.x0) for client in base.clients]
    return replace(base, clients=clients, settings=settings)


def _unequal_steps() -> Scenario:
    base = problem((12,) * CLIENTS)
    return replace(base, batches=[np.array_split(np.arange(12), k) for k in (2, 6, 1, 4, 3)])


def _neutral(rule: type[Rule], settings: Settings) -> Scenario | None:
    if rule.neutral is None or not rule.neutral.keys() <= settings.keys():
        return None
    plain = {"server_lr": 1.0} if "server_lr" in settings else {}
    base = replace(problem(), cohorts=EVERYBODY[: rule.neutral_rounds])
    return replace(base, settings={**settings, **plain, **rule.neutral})


def _fedavg(rule: type[Rule]) -> type[Rule]:
    return type("FedAvg", (FedAvg,), {"weights": rule.weights})


SHIFT = np.array([2.0, -3.0, 1.5])
SCALE = 3.0
NEW = [3, 0, 4, 1, 2]


def _scale(rule: type[Rule]) -> float:
    return SCALE if rule.scales else 1.0


PROBES = {
    "identical clients": Probe(
        "Five clients with the same data are as one.",
        _of(problem(alike=True)),
        against=lambda rule, played: replace(
            played, clients=played.clients[:1], batches=played.batches[:1], cohorts=[[0]] * ROUNDS
        ),
    ),
    "zero gradients": Probe("If all gradients are zero at x, nothing moves.", _still),
    "neutral setting": Probe("With the neutral setting it is FedAvg.", _neutral, reference=_fedavg),
    "translation and scale": Probe(
        "In moved and scaled coordinates, the result is moved and scaled.",
        _of(problem()),
        against=lambda rule, played: played.moved(SHIFT, _scale(rule)),
        back=lambda rule, x: x / _scale(rule) - SHIFT,
    ),
    "permutation": Probe(
        "Results do not depend on how clients are numbered.",
        _of(replace(problem((9, 6, 12, 9, 3)), cohorts=CHANGING)),
        against=lambda rule, played: played.renumbered(NEW),
    ),
    "unequal samples": Probe(
        "Clients have 3 to 24 samples, in mini-batches of 3.",
        _of(problem((9, 3, 24, 6, 12))),
    ),
    "unequal steps": Probe(
        "Clients have 12 samples each, in 1 to 6 mini-batches.",
        _of(_unequal_steps()),
    ),
    "step size decay": Probe(
        "The local step size decays from round to round.",
        _of(replace(problem(), decay=0.6)),
    ),
    "changing cohorts": Probe(
        "Two or three of five clients take part, others in every round.",
        _of(replace(problem(), cohorts=CHANGING)),
    ),
    "dropped clients": Probe(
        "Of those, one in every round delivers nothing.",
        _of(replace(problem(), cohorts=CHANGING, dropped=LATE)),
    ),
    "states": Probe(
        "Statistics of server and clients are those of the method.",
        _of(replace(problem(), cohorts=CHANGING)),
        states=True,
    ),
}
