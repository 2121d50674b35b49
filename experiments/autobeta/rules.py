"""Rules for beta that were compared before one was chosen: `./rules.py:Root(relax=1.0)`.

Each says how long the server remembers a mean update, 1/(1 - beta), from

    G    effective number of updates, between 1 and p
    p    clients of the round
    age  mean over clients of the rounds since they last took part
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, replace

from undrift.algorithms import AdaBest
from undrift.core import Client, RoundFacts, Struct, Vector, flag, real


@dataclass(frozen=True)
class Rule(AdaBest):
    """AdaBest whose beta follows from `memory`."""

    def memory(self, G: float, p: int, age: float) -> float:
        raise NotImplementedError

    def init_server(self, x: Vector, groups: tuple[int, ...]) -> Struct:
        return super().init_server(x, groups) | Struct(beta=0.0)

    def upload(
        self, local: Struct, down: Struct, me: Struct, client: Client
    ) -> tuple[Struct, Struct]:
        up, kept = super().upload(local, down, me, client)
        return up | Struct(square=up.delta @ up.delta, age=client.t - me.t), kept

    def update(self, s: Struct, mean: Struct, round: RoundFacts) -> tuple[Vector, Struct]:
        p, length = round.cohort, float(mean.raw @ mean.raw)
        G = min(max(float(mean.square) / length, 1.0), p) if length > 0 else p
        beta = max(0.0, 1 - 1 / self.memory(G, p, float(mean.age)))
        d, changes = AdaBest.update(replace(self, beta=beta), s, mean, round)
        return d, changes | Struct(beta=beta)


@dataclass(frozen=True)
class Over(Rule):
    """Over-relaxation of G by one factor, as long as clients that come back allow it."""

    _: KW_ONLY
    omega: float = real(1.5, gt=0)
    damp: float = real(1e9, gt=0)

    def memory(self, G: float, p: int, age: float) -> float:
        return min(self.omega * G, self.damp * math.sqrt(age * G))


@dataclass(frozen=True)
class Root(Rule):
    """√G (relax + √min(G, age))."""

    _: KW_ONLY
    relax: float = real(1.0, ge=0)

    def memory(self, G: float, p: int, age: float) -> float:
        return math.sqrt(G) * (self.relax + math.sqrt(min(G, age)))


@dataclass(frozen=True)
class Cohort(Rule):
    """As Root, of the number of clients instead of that of updates."""

    _: KW_ONLY
    relax: float = real(1.0, ge=0)

    def memory(self, G: float, p: int, age: float) -> float:
        return math.sqrt(p) * (self.relax + math.sqrt(min(p, age)))


@dataclass(frozen=True)
class Bounded(Rule):
    """p + more, but at most 2 √(G min(G, age)), or 2 √(G age) if not `strict`."""

    _: KW_ONLY
    more: float = real(0.5, ge=0)
    strict: bool = flag(True)

    def memory(self, G: float, p: int, age: float) -> float:
        return min(p + self.more, 2 * math.sqrt(G * (min(G, age) if self.strict else age)))
