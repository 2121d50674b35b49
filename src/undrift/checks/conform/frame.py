"""The frame of all methods: FedAvg, cut into small pieces.

    x, y_i   server's and client's model        g_i = x − y_i   a client's update
    P, N     clients that delivered, all clients
    n_i, K_i a client's samples and local steps

A method replaces some pieces, and a mistake (`mistakes`) is another version of one of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from undrift.checks.conform.problem import Batches, Quadratic, Vector


class Rule:
    """FedAvg, and the frame of all others."""

    equations: ClassVar[Mapping[str, str]] = {"x": "x ← x − η_g Σ_P w_i g_i,  w_i = n_i / Σ_P n_j"}
    """quantity → how it is defined; all but x are states"""
    settings: ClassVar[Mapping[str, float]] = {}
    """what `start` must take, with the values that are used"""
    optional: ClassVar[Mapping[str, float]] = {"server_lr": 0.7}
    """what `start` may take"""
    neutral: ClassVar[Mapping[str, float] | None] = None
    """settings with which the method is FedAvg; None if there are none"""
    neutral_rounds = 4
    """rounds in which it is"""
    scales = True
    """whether scaling the problem scales the result"""
    rests = True
    """whether the method is defined where gradients are zero"""
    weights = "samples"
    weighted = True
    """whether the server takes a weighted mean"""
    server_lr = 1.0
    scale = "none"
    mu = 0.0

    def start(self, x0: Vector, clients: Sequence[Quadratic], **settings: float) -> None:
        self.x, self.clients, self.t = x0, clients, 0
        self.zero, self.lrs = 0 * x0, list[float]()
        vars(self).update(settings)
        self.prepare()

    def round(
        self,
        cohort: Sequence[int],
        batches: Sequence[Batches],
        lr: float,
        epochs: int,
        dropped: Sequence[int] = (),
    ) -> Vector:
        self.t += 1
        self.lrs.append(lr)
        self.lr, self.epochs, self.batches, self.planned = lr, epochs, batches, list(cohort)
        self.P = [i for i in cohort if i not in dropped]
        self.survey()
        self.y = {i: self.train(i) for i in self.P}
        self.g = {i: self.x - self.y[i] for i in self.P}
        for i in self.P:
            self.learn(i)
        self.x = self.server()
        return self.x

    def states(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.state_names()}

    @classmethod
    def state_names(cls) -> list[str]:
        return [name for name in cls.equations if name != "x"]

    # what methods and mistakes change

    def prepare(self) -> None:
        """The states at the start."""

    def survey(self) -> None:
        """What is asked of clients before they train."""

    def direction(self, i: int, y: Vector, rows: np.ndarray) -> Vector:
        return self.clients[i].grad(y, rows) + self.correction(i) + self.pull(i, y)

    def correction(self, i: int) -> Vector:
        """What is added to all gradients of a client in a round."""
        return self.zero

    def pull(self, i: int, y: Vector) -> Vector:
        """What depends on where the client is."""
        return self.zero

    def strength(self, i: int) -> float:
        """μ_i."""
        n = [client.n for client in self.clients]
        return self.mu * (sum(n) / len(n) / n[i] if self.scale == "oracle" else 1.0)

    def learn(self, i: int) -> None:
        """The states of a client that trained."""

    def server(self) -> Vector:
        """The server's next model."""
        return self.step(self.mean(self.g))

    # what they are made of

    def train(self, i: int) -> Vector:
        y = self.x
        for rows in self.walk(i):
            y = y - self.rate() * self.direction(i, y, rows)
        return y

    def walk(self, i: int) -> Sequence[np.ndarray]:
        """The mini-batches of a client's local steps."""
        return [*self.batches[i]] * self.epochs

    def step(self, d: Vector) -> Vector:
        return self.x - self.server_lr * d

    def mean(self, values: Mapping[int, Any]) -> Any:
        return sum(self.share(i) * value for i, value in values.items())

    def share(self, i: int) -> float:
        return self.mass(i) / sum(self.mass(j) for j in self.counted())

    def mass(self, i: int) -> float:
        return float(self.clients[i].n) if self.weights == "samples" else 1.0

    def counted(self) -> Sequence[int]:
        """Clients over which weights sum to 1."""
        return self.P

    def N(self) -> float:
        return len(self.clients)

    def K(self, i: int) -> float:
        return self.epochs * len(self.batches[i])

    def rate(self) -> float:
        """The step size of local steps."""
        return self.lr

    def eta(self) -> float:
        """The step size by which updates are divided."""
        return self.lr

    def each(self) -> dict[int, Vector]:
        """A zero vector for each client."""
        return dict.fromkeys(range(len(self.clients)), self.zero)
