"""Mistakes in what only one method, or one family of them, has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from undrift.checks.conform.frame import Rule
from undrift.checks.conform.mistakes.lattice import of
from undrift.checks.conform.problem import Vector
from undrift.checks.conform.rules import (
    AdaBest,
    Adaptive,
    FedAdam,
    FedAvgM,
    FedDyn,
    FedExP,
    FedNova,
    FedSAM,
    FedYogi,
    MimeLite,
    Scaffold,
)

# SCAFFOLD


@of(Scaffold)
class PathSign(Scaffold):
    """the opposite sign, y − x for x − y, in the new control variate."""

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


@of(FedDyn)
class MemoryScaled(FedDyn):
    """memories a_i and h of −μ g_i instead of g_i."""

    def learn(self, i: int) -> None:
        self.a_i = self.a_i | {i: self.a_i[i] - self.mu * self.g[i]}

    def total(self) -> Vector:
        return -self.mu * super().total()


@of(AdaBest)
class NoAge(AdaBest):
    """h_i that does not age: h_i ← h_i + g_i."""

    def age(self, i: int) -> float:
        return 1.0


@of(AdaBest)
class AddedPull(AdaBest):
    """FedDyn's pull μ (y − x) added to AdaBest's local steps."""

    def pull(self, i: int, y: Vector) -> Vector:
        return self.mu * (y - self.x)


@of(FedDyn, AdaBest)
class ScaledBySamples(Rule):
    """μ_i = μ n̄/n_i, n̄ the mean number of samples, instead of μ."""

    scale = "oracle"


@of(AdaBest)
class ScaledByBatch(AdaBest):
    """μ_i = μ · epochs · m̄/n_i, m̄ the mean size of the mini-batches so far, instead of μ."""

    sizes: Sequence[float] = ()

    def train(self, i: int) -> Vector:
        y = super().train(i)
        self.sizes = [*self.sizes, self.clients[i].n / len(self.batches[i])]
        return y

    def strength(self, i: int) -> float:
        mean = sum(self.sizes) / max(len(self.sizes), 1)
        return self.mu * self.epochs * mean / self.clients[i].n


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

    def factor(self, i: int) -> float:
        return super().factor(i) / sum(
            self.share(j) * super(ScalesNormalised, self).factor(j) for j in self.P
        )


@of(FedNova)
class ScaledModels(FedNova):
    """scales w_i τ/K_i, which do not sum to one, as weights of models instead of updates."""

    def step(self, d: Vector) -> Vector:
        mean: Vector = self.mean({i: self.factor(i) * y for i, y in self.y.items()})
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
    """a further factor N/|P| of the updates."""

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


@of(FedAvgM)
class FirstRoundLost(FedAvgM):
    """a first round after which nothing has moved."""

    def server(self) -> Vector:
        return self.x if self.t == 1 else super().server()


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
class RateTwice(Adaptive):
    """η_g applied to ḡ as well, before m and v."""

    def mean(self, values: Mapping[int, Any]) -> Any:
        return self.server_lr * super().mean(values)


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
    """a step size √(1 − β₂ᵗ⁺¹)/(1 − β₁ᵗ⁺¹) η_g, a bias correction with t + 1 for t."""

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


@of(FedYogi)
class TinyStart(FedYogi):
    """m₀ = v₀ = 10⁻⁶ instead of 0 and ε²."""

    def prepare(self) -> None:
        self.m = self.v = self.zero + 1e-6


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


# FedSAM and FedExP


@of(FedSAM)
class UphillNotNormalised(FedSAM):
    """a step uphill of ρ ∇L instead of ρ ∇L/||∇L||."""

    def uphill(self, g: Vector) -> Vector:
        return self.rho * g


@of(FedSAM)
class Downhill(FedSAM):
    """a step downhill instead of uphill before the gradient is taken."""

    def uphill(self, g: Vector) -> Vector:
        return -super().uphill(g)


@of(FedSAM)
class StaysUphill(FedSAM):
    """steps from y + e instead of y: the step uphill is not taken back."""

    def direction(self, i: int, y: Vector, rows: np.ndarray) -> Vector:
        e = self.uphill(self.clients[i].grad(y, rows))
        return super().direction(i, y, rows) - e / self.rate()


@of(FedSAM)
class UphillAlongSum(FedSAM):
    """e along the sum of ∇L(y) and the gradient of the client's last step, which is not cleared."""

    def prepare(self) -> None:
        self.last = self.each()

    def direction(self, i: int, y: Vector, rows: np.ndarray) -> Vector:
        grad = self.clients[i].grad
        self.last[i] = grad(y + self.uphill(grad(y, rows) + self.last[i]), rows)
        return self.last[i]


@of(FedExP)
class NotHalved(FedExP):
    """ζ without the 2 below the line."""

    def spread(self) -> float:
        return 2 * super().spread()


@of(FedExP)
class NotMeant(FedExP):
    """Σ ||g_i||² instead of its mean in ζ."""

    def spread(self) -> float:
        return sum(float(g @ g) for g in self.g.values())


@of(FedExP)
class NoEpsilon(FedExP):
    """ζ without ε."""

    def epsilon(self) -> float:
        return 0.0


@of(FedExP)
class EpsilonPerClient(FedExP):
    """|P| ε instead of ε, as in the authors' code."""

    def epsilon(self) -> float:
        return len(self.P) * self.eps


@of(FedExP)
class MayShrink(FedExP):
    """ζ without max(1, ...), which may be less than 1."""

    def least(self) -> float:
        return 0.0
