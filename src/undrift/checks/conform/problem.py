"""Problems on which every quantity is known: clients with least squares in float64."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

Vector = Any
"""an array of float64, one number for each parameter"""

Batches = Sequence[np.ndarray]
"""mini-batches of one pass over a client's samples, in order; each has positions of samples"""


@dataclass(frozen=True, eq=False)
class Quadratic:
    """A client's samples and its loss L(x) = ½ mean (inputs·x − targets)², without a bias.

    inputs   (n, d)
    targets  (n,)
    """

    inputs: np.ndarray
    targets: np.ndarray

    @property
    def n(self) -> int:
        """Number of samples."""
        return len(self.targets)

    def grad(self, x: Vector, rows: np.ndarray | None = None) -> Vector:
        """The gradient over some samples, or all of them."""
        a, b = (
            (self.inputs, self.targets) if rows is None else (self.inputs[rows], self.targets[rows])
        )
        return a.T @ (a @ x - b) / len(b)


class Adapter(Protocol):
    """An implementation under test. `states` is optional, and so is `dropped` in `round`.

    start   begins anew from the model x0, with the method's settings (`undrift conform --methods`)
    round   plays one round and returns the server's model. Every client of `cohort` makes `epochs`
            passes over `batches[i]`, so K_i = epochs · len(batches[i]) steps of size `lr`. Clients
            in `dropped` were asked to take part, and nothing of theirs arrives
    states  statistics after a round, by the names of the method: {"c": vector, "c_i": {0: vector}}
    """

    def start(self, x0: Vector, clients: Sequence[Quadratic], **settings: float) -> None: ...

    def round(
        self,
        cohort: Sequence[int],
        batches: Sequence[Batches],
        lr: float,
        epochs: int,
        dropped: Sequence[int] = (),
    ) -> Vector: ...


@dataclass(frozen=True)
class Scenario:
    """What an adapter is asked to play.

    batches  of each client
    cohorts  clients asked in each round
    dropped  those of them whose results do not arrive, in each round
    """

    x0: Vector
    clients: Sequence[Quadratic]
    batches: Sequence[Batches]
    cohorts: Sequence[Sequence[int]]
    dropped: Sequence[Sequence[int]] = ()
    settings: Mapping[str, float] = field(default_factory=dict)
    lr: float = 0.1
    decay: float = 1.0
    epochs: int = 2

    def lr_at(self, t: int) -> float:
        """The step size of round t, from 1."""
        return self.lr * self.decay ** (t - 1)

    def moved(self, shift: Vector, scale: float) -> Scenario:
        """The same in the coordinates scale · (x + shift)."""
        clients = [
            replace(client, targets=scale * (client.targets + client.inputs @ shift))
            for client in self.clients
        ]
        return replace(self, x0=scale * (self.x0 + shift), clients=clients)

    def renumbered(self, new: Sequence[int]) -> Scenario:
        """The same with client i called new[i]."""
        old = [list(new).index(i) for i in range(len(new))]
        return replace(
            self,
            clients=[self.clients[i] for i in old],
            batches=[self.batches[i] for i in old],
            cohorts=[[new[i] for i in cohort] for cohort in self.cohorts],
        )


@dataclass(frozen=True)
class Record:
    """Model and statistics after a round."""

    x: Vector
    states: Mapping[str, Any] = field(default_factory=dict)


def play(adapter: Adapter, scenario: Scenario) -> Iterator[Record]:
    """One round of a scenario after the other."""
    adapter.start(scenario.x0.copy(), scenario.clients, **scenario.settings)
    states = getattr(adapter, "states", dict)
    for t, cohort in enumerate(scenario.cohorts, 1):
        given = (list(cohort), scenario.batches, scenario.lr_at(t), scenario.epochs)
        late: dict[str, Any] = (
            {"dropped": list(scenario.dropped[t - 1])} if scenario.dropped else {}
        )
        x = vector(adapter.round(*given, **late))
        yield Record(x, {name: _state(name, value) for name, value in (states() or {}).items()})


def vector(values: Any) -> Vector:
    return np.array(values, dtype=np.float64).reshape(-1)


def _state(name: str, value: Any) -> Any:
    """A copy: client → vector for names that end in _i, else a vector."""
    if not name.endswith("_i"):
        return vector(value)
    return {
        i: vector(one)
        for i, one in (value.items() if isinstance(value, Mapping) else enumerate(value))
    }
