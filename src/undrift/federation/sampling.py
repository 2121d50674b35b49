"""Samplers: which clients take part in a round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import ClassVar, TypeAlias

from undrift.config import Config, UndriftError, real, whole
from undrift.later import np

Ids: TypeAlias = "np.ndarray"
"""Client ids, as integers."""


@dataclass(frozen=True)
class Cohort:
    """The clients drawn for a round; `weights`, if given, replace the algorithm's."""

    ids: tuple[int, ...]
    weights: Mapping[int, float] | None = None


@dataclass(frozen=True)
class Urn:
    """What a sampler draws from: the clients registered in round t, and their sample counts."""

    t: int
    registered: Ids
    sizes: np.ndarray
    rng: np.random.Generator
    attention: np.ndarray | None = None
    """state of a sampler that learns, one number for each client, registered or not"""
    labels: np.ndarray | None = None
    """samples of each class (columns) of the registered clients, for a sampler that reads them"""


@dataclass(frozen=True)
class Sampler(Config):
    """Draws the cohort of a round from the registered clients."""

    def start(self, clients: int) -> np.ndarray | None:
        """The sampler's state before the first round, for this many clients in total."""
        return None

    def draw(self, urn: Urn) -> Cohort:
        """The cohort of a round."""
        raise NotImplementedError

    def learn(
        self, attention: np.ndarray | None, distances: Mapping[int, float]
    ) -> np.ndarray | None:
        """The sampler's state after a round, given ||θ_i − θ̄|| of the clients that delivered."""
        return attention

    def at_most(self, clients: int) -> Sampler:
        """The sampler that draws no more clients than this, where some are away."""
        return self

    @property
    def learns(self) -> bool:
        """Whether `learn` needs the distances."""
        return False

    reads_labels: ClassVar[bool] = False
    """Whether `draw` needs the labels."""

    @property
    def largest(self) -> int | None:
        """Size of the largest possible cohort, if known in advance."""
        return None


@dataclass(frozen=True)
class FixedSize(Sampler):
    """Base of the samplers that draw a fixed number of clients."""

    clients: int = whole(10, ge=1)

    @property
    def largest(self) -> int:
        return self.clients

    def at_most(self, clients: int) -> FixedSize:
        return self if clients >= self.clients else replace(self, clients=clients)

    def check(self, registered: Ids) -> None:
        if self.clients > len(registered):
            raise UndriftError(
                f"{self}: cannot draw {self.clients} of {len(registered)} clients; "
                f"use at most {len(registered)} clients per round"
            )


@dataclass(frozen=True)
class Uniform(FixedSize):
    """`clients` of the registered clients, with equal probability, without replacement."""

    def draw(self, urn: Urn) -> Cohort:
        self.check(urn.registered)
        return Cohort(_ids(urn.rng.choice(urn.registered, self.clients, replace=False)))


@dataclass(frozen=True)
class Bernoulli(Sampler):
    """Each registered client with probability `rate`; an empty cohort is drawn again."""

    rate: float = real(0.1, gt=0, le=1)

    def draw(self, urn: Urn) -> Cohort:
        _require_clients(self, urn)
        while True:
            ids = urn.registered[urn.rng.random(len(urn.registered)) < self.rate]
            if len(ids):
                return Cohort(_ids(ids))


@dataclass(frozen=True)
class MD(Sampler):
    """`clients` draws with replacement, with probability proportional to samples.

    A client's weight is its share of the draws.

    Reference: Fraboni et al., Clustered sampling, ICML 2021 (multinomial distribution sampling).
    """

    clients: int = whole(10, ge=1)

    @property
    def largest(self) -> int:
        return self.clients

    def draw(self, urn: Urn) -> Cohort:
        _require_clients(self, urn)
        if not urn.sizes.sum():
            raise UndriftError(
                f"{self}: none of the {len(urn.registered)} clients registered in round {urn.t} "
                "has samples; register some that have, or draw with Uniform"
            )
        draws = urn.rng.multinomial(self.clients, urn.sizes / urn.sizes.sum())
        drawn = zip(urn.registered, draws, strict=True)
        weights = {int(i): int(k) / self.clients for i, k in drawn if k}
        return Cohort(tuple(sorted(weights)), weights)


@dataclass(frozen=True)
class AdaFL(FixedSize):
    """Clients whose models end far from the mean are drawn more often.

    attention a_i starts at 1/N; after a round, for clients that delivered,
    a_i ← α a_i + (1−α) (Σ_P a) d_i / Σ_P d, with d_i = ||θ_i − θ̄||. The sum of a never changes.

    Deviations: the cohort does not grow over time; a stays if all distances are 0 or one is
    infinite; clients with a_i = 0 are drawn only if there are too few others.
    Reference: Chen et al., Dynamic attention-based communication-efficient federated
    learning, 2021.
    """

    _: KW_ONLY
    alpha: float = real(0.9, ge=0, le=1)

    @property
    def learns(self) -> bool:
        return True

    def start(self, clients: int) -> np.ndarray:
        return np.full(clients, 1 / clients)

    def draw(self, urn: Urn) -> Cohort:
        self.check(urn.registered)
        assert urn.attention is not None
        chance = np.maximum(urn.attention[urn.registered], np.finfo(float).tiny)
        chance = chance / chance.sum()
        return Cohort(_ids(urn.rng.choice(urn.registered, self.clients, replace=False, p=chance)))

    def learn(
        self, attention: np.ndarray | None, distances: Mapping[int, float]
    ) -> np.ndarray | None:
        ids, d = list(distances), np.array(list(distances.values()))
        if attention is None or not 0 < d.sum() < np.inf:
            return attention
        new = attention.copy()
        new[ids] = (
            self.alpha * attention[ids] + (1 - self.alpha) * attention[ids].sum() * d / d.sum()
        )
        return new


@dataclass(frozen=True)
class RoundRobin(FixedSize):
    """Clients in turn, `clients` in each round: the first ones first, and after the last the first
    again. No chance is involved; it is also called Sequential."""

    def draw(self, urn: Urn) -> Cohort:
        self.check(urn.registered)
        places = (np.arange(self.clients) + (urn.t - 1) * self.clients) % len(urn.registered)
        return Cohort(_ids(urn.registered[places]))


@dataclass(frozen=True)
class Explicit(Sampler):
    """The given cohorts, one tuple of client ids per round, repeated from the start at the end."""

    cohorts: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        cohorts = tuple(tuple(int(i) for i in ids) for ids in self.cohorts)
        object.__setattr__(self, "cohorts", cohorts)
        if not cohorts:
            self.refuse("give at least one cohort, such as ((0, 1), (2, 3))", cohorts=cohorts)
        if any(len(set(ids)) < len(ids) for ids in cohorts):
            self.refuse("a cohort names no client twice", cohorts=cohorts)

    @property
    def largest(self) -> int:
        return max(map(len, self.cohorts))

    def draw(self, urn: Urn) -> Cohort:
        ids = self.cohorts[(urn.t - 1) % len(self.cohorts)]
        missing = sorted(set(ids) - set(urn.registered.tolist()))
        if missing:
            raise UndriftError(
                f"round {urn.t}: clients {missing} are in the cohort but not registered"
            )
        return Cohort(tuple(sorted(ids)))


def _require_clients(sampler: Sampler, urn: Urn) -> None:
    if not len(urn.registered):
        raise UndriftError(f"{sampler}: no clients are registered in round {urn.t}")


def _ids(ids: Ids) -> tuple[int, ...]:
    return tuple(sorted(int(i) for i in ids))


@dataclass(frozen=True)
class OneClass(Uniform):
    """As Uniform, but all clients of one round hold mostly samples of the same class.

    round  the round with the purest such cohort that there is

    Reference: Yang et al., When to trust aggregated gradients, TMLR 2023 (Figure 4).
    """

    _: KW_ONLY
    round: int = whole(40, ge=1)

    reads_labels = True

    def draw(self, urn: Urn) -> Cohort:
        if urn.t != self.round:
            return super().draw(urn)
        self.check(urn.registered)
        assert urn.labels is not None
        shares = urn.labels / np.maximum(urn.labels.sum(axis=1, keepdims=True), 1)
        purest = np.argsort(-shares, axis=0, kind="stable")[: self.clients]
        best = np.take_along_axis(shares, purest, axis=0).sum(axis=0).argmax()
        return Cohort(_ids(urn.registered[purest[:, best]]))


SAMPLERS = {
    "Uniform": Uniform,
    "OneClass": OneClass,
    "Bernoulli": Bernoulli,
    "MD": MD,
    "AdaFL": AdaFL,
    "RoundRobin": RoundRobin,
    "Sequential": RoundRobin,
    "Explicit": Explicit,
}
