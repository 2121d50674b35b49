"""Known mistakes: each is one piece of a rule, written otherwise.

The sentence of a mistake completes "the numbers are those of the reference with ...". All of them
were found in public implementations or in their issue trackers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np

from undrift.checks.conform.problem import Vector
from undrift.checks.conform.rules import (
    AdaBest,
    Adaptive,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedDyn,
    FedNova,
    FedProx,
    FedYogi,
    MimeLite,
    Rule,
    Scaffold,
)

Mistake = type[Rule]
_WHERE: dict[Mistake, tuple[type[Rule], ...]] = {}


def of(*rules: type[Rule]) -> Callable[[Mistake], Mistake]:
    """Declare a mistake of these rules and their subclasses."""

    def register(mistake: Mistake) -> Mistake:
        _WHERE[mistake] = rules
        return mistake

    return register


def mistakes(rule: type[Rule]) -> list[Mistake]:
    """The mistakes that can be made with a rule."""
    return [one for one, rules in _WHERE.items() if issubclass(rule, rules) and _differs(one, rule)]


def _differs(mistake: Mistake, rule: type[Rule]) -> bool:
    """Whether a mistake in an attribute changes it: equal weights are none where all are equal."""
    return all(getattr(rule, key) != vars(mistake)[key] for key in ATTRIBUTES & pieces(mistake))


ATTRIBUTES = {"weights", "option", "form"}


def pieces(mistake: Mistake) -> set[str]:
    """What a mistake replaces."""
    own = [one for one in mistake.__mro__ if one in _WHERE]
    return {name for one in own for name in vars(one) if not name.startswith("__")}


def made(rule: type[Rule], some: Sequence[Mistake]) -> Rule:
    """The rule with some mistakes."""
    return type(rule.__name__, (*some, rule), {})() if some else rule()


def lattice(rule: type[Rule], size: int) -> list[tuple[Mistake, ...]]:
    """All sets of `size` mistakes that replace different pieces."""
    return [
        some
        for some in combinations(mistakes(rule), size)
        if all(pieces(a).isdisjoint(pieces(b)) for a, b in combinations(some, 2))
    ]


def said(some: Sequence[Mistake]) -> str:
    return "; and ".join((one.__doc__ or "").rstrip(".") for one in some)


# Weights


@of(Rule)
class EqualWeights(Rule):
    """equal weights of the clients instead of n_i / Σ n_j."""

    weights = "uniform"


@of(Rule)
class SampleWeights(Rule):
    """weights n_i / Σ n_j instead of equal ones."""

    weights = "samples"


@of(Rule)
class PlannedCohort(Rule):
    """weights over the planned cohort instead of the clients that delivered."""

    def counted(self) -> Sequence[int]:
        return self.planned


@of(Rule)
class AllClients(Rule):
    """weights over all clients instead of the cohort, so that they do not sum to one."""

    def counted(self) -> Sequence[int]:
        return range(len(self.clients))


@of(Rule)
class Summed(Rule):
    """the sum of the updates instead of their mean."""

    def share(self, i: int) -> float:
        return 1.0


@of(FedAvg, Scaffold, FedAvgM, Adaptive)
class StepOnModels(Rule):
    """the server's step applied to models, η_g Σ w_i y_i, instead of to updates."""

    def step(self, d: Vector) -> Vector:
        return self.server_lr * self.mean(self.y)


@of(FedAvg, FedProx, Scaffold, FedDyn, AdaBest, MimeLite)
class PlannedModels(PlannedCohort):
    """a mean of models with weights over the planned cohort, so that x shrinks."""

    def step(self, d: Vector) -> Vector:
        return self.mean(self.y)


@of(FedAvg, FedProx, Scaffold, FedDyn, AdaBest, MimeLite)
class AllClientsModels(AllClients):
    """a mean of models with weights over all clients, so that x shrinks."""

    def step(self, d: Vector) -> Vector:
        return self.mean(self.y)


# Local steps, their number and size


@of(Rule)
class OneBatch(Rule):
    """one mini-batch per epoch instead of a whole pass."""

    def walk(self, i: int) -> Sequence[np.ndarray]:
        return [self.batches[i][0]] * self.epochs


@of(Rule)
class OneEpoch(Rule):
    """one local epoch, whatever was asked for."""

    def walk(self, i: int) -> Sequence[np.ndarray]:
        return self.batches[i]


@of(Rule)
class UndecayedSteps(Rule):
    """local steps of the first round's size in all rounds."""

    def rate(self) -> float:
        return self.lrs[0]


@of(Scaffold)
class UndecayedRate(Rule):
    """η of the first round (undecayed) in (x − y) / (K η)."""

    def eta(self) -> float:
        return self.lrs[0]


@of(Scaffold)
class PreviousRate(Rule):
    """η of the round before in (x − y) / (K η)."""

    def eta(self) -> float:
        return self.lrs[-2:][0]


@of(Scaffold, FedNova)
class Epochs(Rule):
    """K = epochs instead of local steps."""

    def K(self, i: int) -> float:
        return self.epochs


@of(Scaffold, FedNova)
class Samples(Rule):
    """K = epochs × samples instead of local steps."""

    def K(self, i: int) -> float:
        return self.epochs * self.clients[i].n


@of(Scaffold)
class OnePass(Rule):
    """K = mini-batches of one epoch, whatever the number of epochs."""

    def K(self, i: int) -> float:
        return len(self.batches[i])


@of(Scaffold)
class FirstClientSteps(Rule):
    """K of client 0 for all clients."""

    def K(self, i: int) -> float:
        return super().K(0)


# Corrections of local steps


@of(Scaffold, FedDyn, AdaBest)
class CorrectionSign(Rule):
    """the client's correction added with the opposite sign."""

    def correction(self, i: int) -> Vector:
        return -super().correction(i)


@of(Scaffold, FedDyn, AdaBest)
class NoCorrection(Rule):
    """the client's correction missing from local steps (or without a gradient)."""

    def correction(self, i: int) -> Vector:
        return self.zero


@of(Scaffold, FedDyn)
class CohortForN(Rule):
    """|P| for N in the server's statistic."""

    def N(self) -> float:
        return len(self.P)


@of(FedProx, FedDyn)
class PullNotSquared(Rule):
    """(μ/2) ||y − x|| without its square: a constant pull instead of μ (y − x)."""

    def pull(self, y: Vector) -> Vector:
        length = float(np.linalg.norm(y - self.x))
        return super().pull(y) / (2 * length) if length else self.zero


@of(FedProx, FedDyn)
class PullNotSquaredNorHalved(Rule):
    """μ ||y − x|| without square and ½: a constant pull instead of μ (y − x)."""

    def pull(self, y: Vector) -> Vector:
        length = float(np.linalg.norm(y - self.x))
        return super().pull(y) / length if length else self.zero


@of(FedProx, FedDyn)
class PullTwice(Rule):
    """μ ||y − x||² without its ½: a pull of 2 μ (y − x)."""

    def pull(self, y: Vector) -> Vector:
        return 2 * super().pull(y)


@of(FedProx, FedDyn)
class PullHalf(Rule):
    """half the pull, (μ/2) (y − x)."""

    def pull(self, y: Vector) -> Vector:
        return super().pull(y) / 2


@of(FedProx, FedDyn)
class NoPull(Rule):
    """the pull μ (y − x) missing from local steps (or without a gradient)."""

    def pull(self, y: Vector) -> Vector:
        return self.zero


@of(FedProx, FedDyn)
class PullSign(Rule):
    """a push −μ (y − x) away from x."""

    def pull(self, y: Vector) -> Vector:
        return -super().pull(y)


@of(FedProx, FedDyn)
class PullWithoutY(Rule):
    """−μ x instead of μ (y − x): the term μ y is missing."""

    def pull(self, y: Vector) -> Vector:
        return super().pull(self.zero)


@of(FedProx, FedDyn)
class PullToZero(Rule):
    """μ y, a weight decay, instead of μ (y − x)."""

    def pull(self, y: Vector) -> Vector:
        return super().pull(self.x + y)


# SCAFFOLD


@of(Scaffold)
class PathSign(Scaffold):
    """y − x for x − y in the new control variate."""

    def path(self, i: int) -> Vector:
        return -super().path(i)


@of(Scaffold)
class ControlsAtModel(Scaffold):
    """control variates that start at the model's weights instead of 0."""

    def prepare(self) -> None:
        self.c, self.c_i = self.x, dict.fromkeys(self.each(), self.x)


@of(Scaffold)
class FrozenControl(Scaffold):
    """a server's control variate that never moves."""

    def total_change(self) -> Vector:
        return self.zero


@of(Scaffold)
class ChangeBySamples(Scaffold):
    """Δc_i weighted by samples."""

    def total_change(self) -> Vector:
        n = {i: self.clients[i].n for i in self.P}
        total: Vector = sum(n[i] * change for i, change in self.change.items())
        return len(n) * total / sum(n.values())


@of(Scaffold)
class ControlWithoutC(Scaffold):
    """c_i ← c_i + (x − y)/(K η), without − c."""

    def control(self, i: int) -> Vector:
        return super().control(i) + self.c


@of(Scaffold)
class ControlIsPath(Scaffold):
    """c_i ← (x − y)/(K η), without c_i − c."""

    def control(self, i: int) -> Vector:
        return self.path(i)


@of(Scaffold)
class GradientAtX(Scaffold):
    """option 1, c_i ← ∇L_i(x), instead of option 2."""

    option = 1


# FedDyn and AdaBest


@of(FedDyn)
class SumMinusX(FedDyn):
    """(Σ y_i) − x instead of Σ (y_i − x) in the server's statistic."""

    def total(self) -> Vector:
        return super().total() - (len(self.P) - 1) * self.x


@of(FedDyn)
class MeanForSum(FedDyn):
    """the mean update for the sum of updates in the server's statistic."""

    def total(self) -> Vector:
        return super().total() / len(self.P)


@of(FedDyn)
class NoServerStatistic(FedDyn):
    """x ← mean y_i, without the server's − h."""

    def server(self) -> Vector:
        return super().server() + self.h


@of(AdaBest)
class NoAge(AdaBest):
    """h_i that does not age: h_i ← h_i + g_i."""

    def age(self, i: int) -> float:
        return 1.0


@of(AdaBest)
class AddedPull(AdaBest):
    """FedDyn's pull μ (y − x) added to AdaBest's local steps."""

    def pull(self, y: Vector) -> Vector:
        return self.mu * (y - self.x)


@of(AdaBest)
class FromCloudModel(AdaBest):
    """h ← β (x − θ̄), from the cloud model instead of the aggregate before."""

    def server(self) -> Vector:
        self.xbar = self.x
        return super().server()


# FedNova


@of(FedNova)
class ScalesNormalised(FedNova):
    """scales w_i τ/K_i divided by their sum, so that τ cancels."""

    def scale(self, i: int) -> float:
        return super().scale(i) / sum(
            self.share(j) * super(ScalesNormalised, self).scale(j) for j in self.P
        )


@of(FedNova)
class ScaledModels(FedNova):
    """scales w_i τ/K_i, which do not sum to one, as weights of models instead of updates."""

    def step(self, d: Vector) -> Vector:
        mean: Vector = self.mean({i: self.scale(i) * y for i, y in self.y.items()})
        return mean


@of(FedNova)
class NoWork(FedNova):
    """updates per step that are not multiplied by τ."""

    def work(self) -> float:
        return 1.0


@of(FedNova)
class PlainWork(FedNova):
    """τ as the plain mean of K_i instead of the weighted one."""

    def work(self) -> float:
        return sum(map(self.K, self.P)) / len(self.P)


@of(FedNova)
class TimesPopulation(FedNova):
    """updates multiplied by N/|P| once too often."""

    def work(self) -> float:
        return super().work() * self.N() / len(self.P)


# Server optimisers


@of(FedAvgM)
class Ema(FedAvgM):
    """m ← β m + (1−β) ḡ, an exponential mean, instead of β m + ḡ."""

    form = "ema"


@of(FedAvgM)
class NoMomentum(FedAvgM):
    """momentum that is never used."""

    def prepare(self) -> None:
        self.m, self.beta = self.zero, 0.0


@of(FedAvgM)
class Nesterov(FedAvgM):
    """Nesterov's step, β m + ḡ with the new m."""

    def step(self, d: Vector) -> Vector:
        mean: Vector = self.mean(self.g)
        return super().step(self.beta * d + self.gain() * mean)


@of(FedAdam)
class VFromM(FedAdam):
    """v from m² instead of ḡ²."""

    def squared(self, g: Vector) -> Vector:
        return self.m * self.m


@of(Adaptive)
class VFromZero(Adaptive):
    """v₀ = 0 instead of ε²."""

    def v0(self) -> float:
        return 0.0


@of(Adaptive)
class EpsilonInside(Adaptive):
    """√(v + ε) instead of √v + ε."""

    def ratio(self) -> Vector:
        return self.m / np.sqrt(self.v + self.eps)


@of(FedAdam)
class BiasCorrection(FedAdam):
    """Adam's bias correction of m and v."""

    ahead = 0

    def ratio(self) -> Vector:
        m = self.m / (1 - self.beta1 ** (self.t + self.ahead))
        return m / (np.sqrt(self.v / (1 - self.beta2 ** (self.t + self.ahead))) + self.eps)


@of(FedAdam)
class BiasCorrectedRate(FedAdam):
    """a step size √(1 − β₂ᵗ)/(1 − β₁ᵗ) η_g, Adam's bias correction without that of ε."""

    ahead = 0

    def ratio(self) -> Vector:
        k = self.t + self.ahead
        return float(np.sqrt(1 - self.beta2**k) / (1 - self.beta1**k)) * super().ratio()


@of(FedAdam)
class BiasCorrectedRateLate(BiasCorrectedRate):
    """a step size √(1 − β₂ᵗ⁺¹)/(1 − β₁ᵗ⁺¹) η_g, a bias correction by one round too many."""

    ahead = 1


@of(FedYogi)
class YogiSign(FedYogi):
    """v ← v + (1−β₂) ḡ² sign(v − ḡ²)."""

    def second(self, q: Vector) -> Vector:
        return 2 * self.v - super().second(q)


@of(FedYogi)
class YogiIsAdam(FedAdam):
    """Adam's v ← β₂ v + (1−β₂) ḡ² instead of Yogi's."""

    def second(self, q: Vector) -> Vector:
        return self.beta2 * self.v + (1 - self.beta2) * q


# Mime


@of(MimeLite)
class HeavyBall(MimeLite):
    """m ← β m + c and steps along β m + ∇L, without 1 − β."""

    form = "heavy_ball"


@of(MimeLite)
class MovingStatistics(MimeLite):
    """momentum that moves during local steps instead of being held still."""

    def train(self, i: int) -> Vector:
        m = self.m
        y = super().train(i)
        self.m = m
        return y

    def direction(self, i: int, y: Vector, rows: np.ndarray) -> Vector:
        self.m = super().direction(i, y, rows)
        return self.m
