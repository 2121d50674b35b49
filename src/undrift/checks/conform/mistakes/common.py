"""Mistakes in what methods share: weights, local steps, corrections."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from undrift.checks.conform.frame import Rule
from undrift.checks.conform.mistakes.lattice import of
from undrift.checks.conform.problem import Vector
from undrift.checks.conform.rules import (
    AdaBest,
    Adaptive,
    FedAvg,
    FedAvgM,
    FedDyn,
    FedNova,
    FedProx,
    MimeLite,
    Scaffold,
)

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

    def pull(self, i: int, y: Vector) -> Vector:
        length = float(np.linalg.norm(y - self.x))
        return super().pull(i, y) / (2 * length) if length else self.zero


@of(FedProx, FedDyn)
class PullNotSquaredNorHalved(Rule):
    """μ ||y − x|| without square and ½: a constant pull instead of μ (y − x)."""

    def pull(self, i: int, y: Vector) -> Vector:
        length = float(np.linalg.norm(y - self.x))
        return super().pull(i, y) / length if length else self.zero


@of(FedProx, FedDyn)
class PullTwice(Rule):
    """μ ||y − x||² without its ½: a pull of 2 μ (y − x)."""

    def pull(self, i: int, y: Vector) -> Vector:
        return 2 * super().pull(i, y)


@of(FedProx, FedDyn)
class PullHalf(Rule):
    """half the pull, (μ/2) (y − x)."""

    def pull(self, i: int, y: Vector) -> Vector:
        return super().pull(i, y) / 2


@of(FedProx, FedDyn)
class NoPull(Rule):
    """the pull μ (y − x) missing from local steps (or without a gradient)."""

    def pull(self, i: int, y: Vector) -> Vector:
        return self.zero


@of(FedProx, FedDyn)
class PullSign(Rule):
    """a push −μ (y − x) away from x."""

    def pull(self, i: int, y: Vector) -> Vector:
        return -super().pull(i, y)


@of(FedProx, FedDyn)
class PullWithoutY(Rule):
    """−μ x instead of μ (y − x): the term μ y is missing."""

    def pull(self, i: int, y: Vector) -> Vector:
        return super().pull(i, self.zero)


@of(FedProx, FedDyn)
class PullToZero(Rule):
    """μ y, a weight decay, instead of μ (y − x)."""

    def pull(self, i: int, y: Vector) -> Vector:
        return super().pull(i, self.x + y)
