"""The contract: what an algorithm is.

    s       what the server keeps: x (the cloud model), xbar (the aggregate model), ...
    down    what the server sends
    me      what a client remembers between rounds
    local   a client's variables in a round: y, ...
    up      what a client sends: delta = x - y, ...
    client  facts of this client in this round (`Client`)
    round   facts of this round, for the server (`RoundFacts`)

All of them but the facts are `Struct`s of vectors. An algorithm is a frozen dataclass of pure
functions over these; `Algorithm` itself is FedAvg, and every other one says only where it differs.
Client methods are written for one client and never branch on values, so that an engine may run
them one by one, in threads, vectorised or compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from inspect import isfunction
from typing import Any, ClassVar, Literal

from undrift.config import Config as Config
from undrift.config import UndriftError as UndriftError
from undrift.config import choice as choice
from undrift.config import flag as flag
from undrift.config import member as member
from undrift.config import real as real
from undrift.config import whole as whole

Vector = Any
"""A flat tensor of parameters. Algorithms use its arithmetic only, so no framework is named."""

Grad = Callable[[Vector], Vector]
"""The gradient of a loss (weight decay included) as a function of the parameters."""

Weights = Literal["samples", "uniform"]

Regime = Literal["federated", "local", "central"]
"""Clients with a server; every client alone, with its model in `me.y`; all samples in one place."""


class Struct:
    """An immutable record of vectors, numbers and further records: `s.x`, `s | Struct(x=x)`."""

    __slots__ = ("_fields",)
    _fields: dict[str, Any]

    def __init__(self, **fields: Any) -> None:
        object.__setattr__(self, "_fields", fields)

    def __getattr__(self, name: str) -> Any:
        try:
            return self._fields[name]
        except KeyError:
            raise AttributeError(f"no field {name!r} in {self}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a Struct is immutable; write s | Struct({name}=...)")

    def __or__(self, other: Struct) -> Struct:
        return Struct(**(self._fields | other._fields))

    def __contains__(self, name: str) -> bool:
        return name in self._fields

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __repr__(self) -> str:
        return f"Struct({', '.join(self._fields)})"

    def __getstate__(self) -> dict[str, Any]:
        return self._fields

    def __setstate__(self, fields: dict[str, Any]) -> None:
        object.__setattr__(self, "_fields", fields)

    def items(self) -> Iterator[tuple[str, Any]]:
        """Pairs of name and value, one level deep."""
        return iter(self._fields.items())

    def leaves(self, prefix: str = "") -> Iterator[tuple[str, Any]]:
        """Pairs of dotted path and value over all levels: ("fedglad.B", ...)."""
        for name, value in self._fields.items():
            if isinstance(value, Struct):
                yield from value.leaves(f"{prefix}{name}.")
            else:
                yield prefix + name, value

    def map(self, function: Callable[..., Any], *others: Struct) -> Struct:
        """Apply a function to the corresponding leaves of this and other records."""
        fields = {}
        for name, value in self._fields.items():
            rest = [other._fields[name] for other in others]
            inner = isinstance(value, Struct)
            fields[name] = value.map(function, *rest) if inner else function(value, *rest)
        return Struct(**fields)


@dataclass(frozen=True)
class Client:
    """What a client knows of itself and the round.

    t           round, from 1
    n           its samples, n_i
    steps       its local steps this round, K_i
    lr          local step size this round, eta_t
    lr0         local step size before any decay, eta
    n_mean      mean samples over all registered clients
    full_grad   gradient over all its samples, a function of the parameters
    first_grad  gradient over the first mini-batch of the round, likewise
    """

    t: int
    n: int
    steps: int
    lr: float
    lr0: float
    n_mean: float
    full_grad: Grad
    first_grad: Grad


@dataclass(frozen=True)
class RoundFacts:
    """What the server knows of a round when it updates.

    t           round, from 1
    lr          local step size this round, eta_t
    lr0         local step size before any decay, eta
    steps       weighted mean of the delivering clients' local steps, K
    cohort      clients that delivered, p = |P^t|
    population  clients registered, N = |S^t|
    n_mean      mean samples over the clients that delivered
    groups      sizes of the parameter groups, in order
    """

    t: int
    lr: float
    lr0: float
    steps: float
    cohort: int
    population: int
    n_mean: float
    groups: tuple[int, ...]


@dataclass(frozen=True)
class Algorithm(Config):
    """One federated optimiser. As it stands, FedAvg."""

    @property
    def weights(self) -> Weights:
        """How the uploads are weighted: by each client's samples, or all alike."""
        return "samples"

    @property
    def holistic(self) -> bool:
        """Whether `reweigh` and `combine` need all uploads of a round at once."""
        return False

    @property
    def surveys(self) -> bool:
        """Whether a first exchange, `survey`, precedes local training."""
        return False

    @property
    def quorum(self) -> float:
        """Uploads that a round needs for what the algorithm promises; inf is those of all."""
        return 1

    @property
    def even_steps(self) -> bool:
        """Whether it relies on local steps of size eta, as it divides updates by K or K eta."""
        return False

    @property
    def plain_mean(self) -> bool:
        """Whether clients take the next x for the mean of their models."""
        return False

    @property
    def unweighted(self) -> tuple[str, ...]:
        """Fields of the upload in which all clients count alike, whatever their weights."""
        return ()

    @property
    def deploys(self) -> Literal["cloud", "aggregate"]:
        """Which model is the result: "cloud" is server.x, "aggregate" server.xbar."""
        return "cloud"

    @property
    def regime(self) -> Regime:
        """Who trains with whom; only if "federated" is anything sent."""
        return "federated"

    def init_server(self, x: Vector, groups: tuple[int, ...]) -> Struct:
        """What the server keeps at the start, given the model and its parameter groups."""
        return Struct(x=x, xbar=x)

    def init_client(self, x: Vector) -> Struct:
        """What a client remembers before its first round."""
        return Struct()

    def download(self, s: Struct) -> Struct:
        """What the server sends to every client of the cohort."""
        return Struct(x=s.x)

    def survey(self, down: Struct, me: Struct, client: Client) -> Struct:
        """What a client answers before training; the mean joins `down` and, later, `mean`."""
        return Struct()

    def begin(self, down: Struct, me: Struct, client: Client) -> Struct:
        """The client's variables before its first step; y is its model."""
        return Struct(y=down.x)

    def direction(
        self, grad: Grad, local: Struct, down: Struct, me: Struct, client: Client
    ) -> Vector:
        """The gradient that the client trusts, at y, from the mini-batch gradient function."""
        return grad(local.y)

    def move(self, local: Struct, d: Vector, down: Struct, client: Client) -> Struct:
        """The client's variables after a step along that direction."""
        return local | Struct(y=local.y - client.lr * d)

    def upload(
        self, local: Struct, down: Struct, me: Struct, client: Client
    ) -> tuple[Struct, Struct]:
        """What the client sends, and what it will remember if that is accepted."""
        return Struct(delta=down.x - local.y), me

    def receive(self, s: Struct, up: Struct, groups: tuple[int, ...]) -> Struct:
        """What the server makes of one upload on arrival, before the mean."""
        return up

    def reweigh(self, s: Struct, ups: Sequence[Struct], w: Vector) -> Vector:
        """New weights from all uploads (holistic algorithms only)."""
        return w

    def combine(self, ups: Sequence[Struct], w: Vector) -> Struct:
        """All uploads as one (holistic algorithms only): their weighted mean."""
        return weighted_mean(ups, w)

    def update(self, s: Struct, mean: Struct, round: RoundFacts) -> tuple[Vector, Struct]:
        """The server's descent direction d (x becomes x - d), and what else of its state changes.

        `mean.delta` is the mean update; `mean.raw` is the same before FedGLAD's rescaling.
        """
        return mean.delta, Struct(xbar=s.x - mean.delta)

    def correction(self, s: Struct) -> Vector | None:
        """The server's estimate of the drift, to be measured; None where there is none."""
        return None


HOOKS = tuple(name for name, hook in vars(Algorithm).items() if isfunction(hook) and name[0] != "_")
"""the functions of an algorithm, in the order of a round"""

FACTS = tuple(name for name, fact in vars(Algorithm).items() if isinstance(fact, property))
"""what an algorithm says of itself"""


def weighted_mean(ups: Sequence[Struct], w: Sequence[Any]) -> Struct:
    """Sum of w_i * up_i, field by field, added in the order given."""
    total = ups[0].map(lambda value: w[0] * value)
    for up, weight in zip(ups[1:], w[1:], strict=True):
        total = total.map(lambda a, b, weight=weight: a + weight * b, up)
    return total


@dataclass(frozen=True)
class Part(Algorithm):
    """An algorithm around another: it changes some hooks and passes on all others.

    A part keeps its variables in a record under its own name, so parts never meet by accident.
    """

    inner: Algorithm = member(Algorithm)

    rank: ClassVar[float] = 0
    """how far outside it belongs: 0 local training (0.5 the size of its steps), 1 weighing,
    2 server optimiser, 3 rescaling of the mean update"""

    def __post_init__(self) -> None:
        super().__post_init__()
        inner: Algorithm = self.inner
        while isinstance(inner, Part):
            if type(inner) is type(self):
                self._refuse_order(f"{type(self).__name__} can be used only once")
            if inner.rank > self.rank:
                self._refuse_order(f"{type(inner).__name__} must stand outside")
            if inner.rank == self.rank == 1:
                self._refuse_order("only one part may weigh the updates")
            if inner.rank == self.rank == 3:
                self._refuse_order("only one part may rescale the mean update")
            inner = inner.inner
        if 1 <= self.rank <= 3 and inner.plain_mean:
            name = type(inner).__name__
            self._refuse_order(f"clients of {name} take the next x for the mean of their models")

    def _refuse_order(self, reason: str) -> None:
        self.refuse(reason, inner=self.inner)

    @property
    def core(self) -> Algorithm:
        """The algorithm inside all parts."""
        inner = self.inner
        return inner.core if isinstance(inner, Part) else inner

    @property
    def weights(self) -> Weights:
        return self.inner.weights

    @property
    def holistic(self) -> bool:
        return self.inner.holistic

    @property
    def surveys(self) -> bool:
        return self.inner.surveys

    @property
    def quorum(self) -> float:
        return self.inner.quorum

    @property
    def even_steps(self) -> bool:
        return self.inner.even_steps

    @property
    def plain_mean(self) -> bool:
        return self.inner.plain_mean

    @property
    def unweighted(self) -> tuple[str, ...]:
        return self.inner.unweighted

    @property
    def deploys(self) -> Literal["cloud", "aggregate"]:
        return self.inner.deploys

    @property
    def regime(self) -> Regime:
        return self.inner.regime

    def init_server(self, x: Vector, groups: tuple[int, ...]) -> Struct:
        return self.inner.init_server(x, groups)

    def init_client(self, x: Vector) -> Struct:
        return self.inner.init_client(x)

    def download(self, s: Struct) -> Struct:
        return self.inner.download(s)

    def survey(self, down: Struct, me: Struct, client: Client) -> Struct:
        return self.inner.survey(down, me, client)

    def begin(self, down: Struct, me: Struct, client: Client) -> Struct:
        return self.inner.begin(down, me, client)

    def direction(
        self, grad: Grad, local: Struct, down: Struct, me: Struct, client: Client
    ) -> Vector:
        return self.inner.direction(grad, local, down, me, client)

    def move(self, local: Struct, d: Vector, down: Struct, client: Client) -> Struct:
        return self.inner.move(local, d, down, client)

    def upload(
        self, local: Struct, down: Struct, me: Struct, client: Client
    ) -> tuple[Struct, Struct]:
        return self.inner.upload(local, down, me, client)

    def receive(self, s: Struct, up: Struct, groups: tuple[int, ...]) -> Struct:
        return self.inner.receive(s, up, groups)

    def reweigh(self, s: Struct, ups: Sequence[Struct], w: Vector) -> Vector:
        return self.inner.reweigh(s, ups, w)

    def combine(self, ups: Sequence[Struct], w: Vector) -> Struct:
        return self.inner.combine(ups, w)

    def update(self, s: Struct, mean: Struct, round: RoundFacts) -> tuple[Vector, Struct]:
        return self.inner.update(s, mean, round)

    def correction(self, s: Struct) -> Vector | None:
        return self.inner.correction(s)
