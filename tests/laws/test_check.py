"""`check_algorithm` finds what is wrong with an algorithm, and names the law."""

from dataclasses import dataclass
from typing import Any

import pytest

from undrift import LAWS, Algorithm, FedAvg, LawBroken, Struct, UndriftError, check_algorithm


@dataclass(frozen=True)
class GrowsState(Algorithm):
    def update(self, s: Struct, mean: Struct, round: Any) -> Any:
        return mean.delta, Struct(more=mean.delta)


@dataclass(frozen=True)
class MovesInPlace(Algorithm):
    def move(self, local: Struct, d: Any, down: Struct, client: Any) -> Struct:
        return Struct(y=local.y.sub_(client.lr * d))


@dataclass(frozen=True)
class SpoilsTheMean(Algorithm):
    def update(self, s: Struct, mean: Struct, round: Any) -> Any:
        s.xbar.zero_()
        return mean.delta, Struct(xbar=s.x - mean.delta)


@dataclass(frozen=True)
class LooksAtValues(Algorithm):
    def direction(self, grad: Any, local: Struct, down: Struct, me: Struct, client: Any) -> Any:
        g = grad(local.y)
        return g if float(g.norm()) > 0 else 0 * g


@dataclass(frozen=True)
class DividesByZero(Algorithm):
    def init_client(self, x: Any) -> Struct:
        return Struct(h=0 * x)

    def upload(self, local: Struct, down: Struct, me: Struct, client: Any) -> Any:
        delta = down.x - local.y
        return Struct(delta=delta), Struct(h=delta / delta.norm())


@dataclass(frozen=True)
class RemembersTheOrder(Algorithm):
    seen = []  # noqa: RUF012

    def upload(self, local: Struct, down: Struct, me: Struct, client: Any) -> Any:
        self.seen.append(client.n)
        return Struct(delta=(down.x - local.y) * (1 + len(self.seen))), me


@dataclass(frozen=True)
class KeepsDoubles(Algorithm):
    def init_server(self, x: Any, groups: Any) -> Struct:
        return super().init_server(x, groups) | Struct(h=0 * x.double())


@dataclass(frozen=True)
class HasATypo(Algorithm):
    def update(self, s: Struct, mean: Struct, round: Any) -> Any:
        return mean.dleta, Struct()


@dataclass(frozen=True)
class ComparesModels(Algorithm):
    """Correct, but it rounds as dot products do, which MKL by itself computes by address."""

    def update(self, s: Struct, mean: Struct, round: Any) -> Any:
        return mean.delta * (s.x @ s.xbar), Struct(xbar=s.x - mean.delta)


@dataclass(frozen=True)
class SendsTheRescaled(Algorithm):
    def init_server(self, x: Any, groups: Any) -> Struct:
        return super().init_server(x, groups) | Struct(g=0 * x)

    def download(self, s: Struct) -> Struct:
        return Struct(x=s.x, g=s.g)

    def update(self, s: Struct, mean: Struct, round: Any) -> Any:
        return mean.delta, Struct(g=mean.delta / (round.lr * round.steps))


@dataclass(frozen=True)
class CountsTheFields(Algorithm):
    def update(self, s: Struct, mean: Struct, round: Any) -> Any:
        return mean.delta / len([*mean]), Struct()


@pytest.mark.parametrize(
    ("algorithm", "law"),
    [
        (GrowsState(), "structure"),
        (MovesInPlace(), "purity"),
        (SpoilsTheMean(), "purity"),
        (LooksAtValues(), "storageless"),
        (DividesByZero(), "stillness"),
        (RemembersTheOrder(), "engines"),
        (KeepsDoubles(), "precision"),
        (HasATypo(), "structure"),
        (SendsTheRescaled(), "rescaling"),
        (CountsTheFields(), "rescaling"),
    ],
)
def test_a_broken_law_is_named(algorithm: Algorithm, law: str) -> None:
    with pytest.raises(LawBroken, match=law):
        check_algorithm(algorithm, [law])


def test_every_law_that_is_broken_is_named() -> None:
    with pytest.raises(LawBroken) as broken:
        check_algorithm(HasATypo())
    assert [law for law in LAWS if f"\n  {law}: " not in str(broken.value)] == []


def test_dot_products_of_states_do_not_depend_on_their_addresses() -> None:
    check_algorithm(ComparesModels(), ["addresses"])


def test_the_laws_that_hold_are_returned() -> None:
    told = check_algorithm(FedAvg(), ["repeatable", "order"])
    assert told == {name: LAWS[name].__doc__ for name in ("repeatable", "order")}


def test_what_is_asked_must_make_sense() -> None:
    with pytest.raises(UndriftError, match="did you mean 'order'"):
        check_algorithm(FedAvg(), ["ordre"])
    with pytest.raises(UndriftError, match="not an algorithm"):
        check_algorithm("fedavg")  # type: ignore[arg-type]
