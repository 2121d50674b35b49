"""Where the algorithms end on quadratics whose clients differ in Hessian and in optimum.

L_i(x) = (x - x_i)' A_i (x - x_i) / 2, with full batches, so that the limits are known exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from undrift.checks.plan import Plan
from undrift.checks.replay import Snapshot, replay
from undrift.core import Struct
from undrift.data.federated import FederatedData
from undrift.experiment.registry import algorithm
from undrift.federation.rounds import rounds, start
from undrift.federation.sampling import MD, Sampler, Uniform
from undrift.training.task import Task
from undrift.training.work import Local

Array = np.ndarray

SEEDS = st.integers(0, 10**6)
CONVERGED = 1e-8


@dataclass(frozen=True)
class Quadratics:
    """Clients with Hessians A_i, optima x_i and sample counts that are multiples of dim."""

    hessians: list[Array]
    optima: list[Array]
    copies: Sequence[int]

    @classmethod
    def random(
        cls,
        seed: int,
        clients: int = 3,
        dim: int = 3,
        eigenvalues: tuple[float, float] = (0.5, 1.5),
        copies: Sequence[int] | None = None,
    ) -> Quadratics:
        rng = np.random.default_rng(seed)
        bases = [np.linalg.qr(rng.normal(size=(dim, dim)))[0] for _ in range(clients)]
        hessians = [(base * rng.uniform(*eigenvalues, dim)) @ base.T for base in bases]
        optima = [rng.normal(size=dim) for _ in range(clients)]
        return cls(hessians, optima, copies or [1] * clients)

    @property
    def dim(self) -> int:
        return len(self.optima[0])

    def samples(self) -> list[tuple[Array, Array]]:
        """Least-squares data of each client: rows X with X'X/n = A_i, targets X x_i."""
        pairs = []
        for A, x, copies in zip(self.hessians, self.optima, self.copies, strict=True):
            rows = np.tile(np.sqrt(self.dim) * np.linalg.cholesky(A).T, (copies, 1))
            pairs.append((rows, rows @ x))
        return pairs

    def gradient(self, i: int, x: Array) -> Array:
        return self.hessians[i] @ (x - self.optima[i])

    def solve(self, matrices: Sequence[Array], shares: Sequence[float]) -> Array:
        """The x with Σ shares_i M_i (x - x_i) = 0."""
        total = sum(share * M for share, M in zip(shares, matrices, strict=True))
        pulls = (s * M @ x for s, M, x in zip(shares, matrices, self.optima, strict=True))
        return np.linalg.solve(total, sum(pulls))

    def optimum(self, shares: Sequence[float] = ()) -> Array:
        """Where the mean objective, uniform if no shares are given, is least."""
        return self.solve(self.hessians, shares or [1] * len(self.optima))

    def model(self) -> nn.Module:
        return nn.Linear(self.dim, 1, bias=False)

    def run(self, name: str, cohorts: Sequence[Sequence[int]], **options: Any) -> list[Snapshot]:
        return replay(
            algorithm(name),
            self.samples(),
            [Plan(cohort) for cohort in cohorts],
            model=self.model(),
            loss="squared_error",
            **{"start": np.zeros(self.dim), "lr": 0.3, "steps": 3} | options,
        )


def everyone(clients: int, rounds: int) -> list[range]:
    return [range(clients)] * rounds


def gap(a: Any, b: Any) -> float:
    return float(np.abs(np.asarray(a) - np.asarray(b)).max())


@given(seed=SEEDS, steps=st.integers(1, 9))
def test_local_descent_has_a_closed_form(seed: int, steps: int) -> None:
    """K gradient steps end at x_1 + (I - ηA)^K (x - x_1)."""
    q = Quadratics.random(seed, clients=1)
    x = np.random.default_rng(seed).normal(size=q.dim)
    (end,) = q.run("fedavg", [[0]], start=x, steps=steps, lr=0.4)
    power = np.linalg.matrix_power(np.eye(q.dim) - 0.4 * q.hessians[0], steps)
    assert gap(end.x, q.optima[0] + power @ (x - q.optima[0])) <= 1e-12


@settings(max_examples=2)
@given(seed=SEEDS)
@pytest.mark.parametrize("weights", ["uniform", "samples"])
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_fedavg_ends_at_its_own_fixed_point(weights: str, steps: int, seed: int) -> None:
    """Σ w_i [I - (I - ηA_i)^K] (x - x_i) = 0, which is the optimum only for K = 1."""
    q = Quadratics.random(seed, copies=(1, 2, 4))
    shares = q.copies if weights == "samples" else (1, 1, 1)
    powers = [np.linalg.matrix_power(np.eye(q.dim) - 0.6 * A, steps) for A in q.hessians]
    fixed = q.solve([np.eye(q.dim) - power for power in powers], shares)
    name = f"fedavg(weights='{weights}')"
    (stays,) = q.run(name, everyone(3, 1), start=fixed, steps=steps, lr=0.6)
    assert gap(stays.x, fixed) <= 1e-12
    rounds = 60 // steps
    assert gap(q.run(name, everyone(3, rounds), steps=steps, lr=0.6)[-1].x, fixed) <= CONVERGED
    bias = gap(fixed, q.optimum(shares))
    assert bias <= 1e-12 if steps == 1 else bias > 1e-4


@settings(max_examples=1)
@given(seed=SEEDS)
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("scaffold", {}),
        ("scaffold(option=1)", {}),
        ("scaffoldm", {}),
        ("scaffold", {"lr_decay": 0.99}),
        ("ServerOpt(SCAFFOLD(), SGD(lr=0.7))", {}),
        ("feddyn(mu=1.0)", {}),
        ("feddyn(mu=1.0, prox=0.5)", {}),
        ("mime(SGDm(beta=0.5))", {}),
        ("adabest(mu=1.0, beta=1.0, prox=1.0)", {}),
        ("scaffnew", {}),
        ("scaffnew", {"lr_decay": 0.99}),
        ("SCAFFOLD-M(alpha=0.5)", {}),
        ("fedspeed(mu=1.0, rho=0.0)", {}),
        ("feddc(mu=0.5)", {}),
    ],
)
def test_corrected_algorithms_reach_the_optimum(
    name: str, options: dict[str, Any], seed: int
) -> None:
    q = Quadratics.random(seed, eigenvalues=(0.8, 1.2))
    assert gap(q.run(name, everyone(3, 60), **options)[-1].x, q.optimum()) <= CONVERGED


@settings(max_examples=1)
@given(seed=SEEDS)
@pytest.mark.parametrize(
    "name", ["scaffold", "scaffold(option=1)", "scaffoldm", "SCAFFOLD-M(alpha=0.5)"]
)
def test_scaffold_reaches_the_optimum_with_few_clients_a_round(name: str, seed: int) -> None:
    q = Quadratics.random(seed, clients=5, eigenvalues=(0.8, 1.2))
    rng = np.random.default_rng(seed)
    cohorts = [rng.permutation(5)[:2].tolist() for _ in range(100)]
    assert gap(q.run(name, cohorts)[-1].x, q.optimum()) <= CONVERGED


@pytest.mark.parametrize(
    ("name", "sampler"),
    [
        ("scaffold", MD(3)),
        ("scaffold(option=1)", MD(3)),
        ("scaffold(weights='samples')", Uniform(2)),
    ],
)
def test_scaffold_reaches_the_optimum_however_models_are_weighted(
    name: str, sampler: Sampler
) -> None:
    """c moves by the plain sum of Δc_i; a weighted one would leave it apart from the mean c_i."""
    q = Quadratics.random(0, clients=5, copies=(1, 2, 3, 4, 5))
    task = Task(q.model(), "squared_error", dtype=torch.float64)
    task.x0 = torch.zeros(q.dim, dtype=torch.float64)
    data = FederatedData.of_clients(q.samples())
    local = Local(lr=0.3, steps=3, batching="full")
    *_, end = rounds(algorithm(name), task, data, total=150, sampler=sampler, local=local)
    assert gap(end.server.c, sum(me.c for me in end.clients.values()) / 5) <= 1e-12
    assert gap(end.server.x, q.optimum()) <= CONVERGED


@settings(max_examples=5)
@given(seed=SEEDS)
@pytest.mark.parametrize("name", ["scaffold", "scaffold(option=1)", "scaffoldm"])
def test_the_optimum_is_a_fixed_point_of_scaffold(name: str, seed: int) -> None:
    """Started there with c_i = ∇L_i, whoever takes part, nothing moves."""
    q = Quadratics.random(seed, clients=5)
    scaffold, sampler = algorithm(name), Uniform(2)
    task = Task(q.model(), "squared_error", dtype=torch.float64)
    task.x0 = torch.from_numpy(q.optimum())
    data = FederatedData.of_clients(q.samples())
    state = start(scaffold, task, data, sampler)
    gradients = {i: torch.from_numpy(q.gradient(i, q.optimum())) for i in range(5)}
    for i, gradient in gradients.items():
        state.clients.put(i, Struct(c=gradient))
    local = Local(lr=0.3, steps=4, batching="full")
    for round in rounds(
        scaffold, task, data, total=5, sampler=sampler, local=local, state=state, seed=seed
    ):
        assert gap(round.server.x, q.optimum()) <= 1e-12
        assert gap(round.server.c, np.zeros(q.dim)) <= 1e-12
        for i in range(5):
            assert gap(round.clients[i].c, gradients[i]) <= 1e-12


@settings(max_examples=1)
@given(seed=SEEDS)
@pytest.mark.parametrize("scale", ["none", "oracle"])
def test_feddyn_with_exact_local_solves(scale: str, seed: int) -> None:
    """Then μ_i a_i = ∇L_i(θ_i), and the limit minimises the mean over clients or over samples."""
    q = Quadratics.random(seed, eigenvalues=(0.9, 1.1), copies=(4, 5, 6))
    run = q.run(f"feddyn(mu=1.0, scale='{scale}')", everyone(3, 30), lr=0.49, steps=18)
    old = {i: np.zeros(q.dim) for i in range(3)}
    x = np.zeros(q.dim)
    for snapshot in run:
        for i, memory in snapshot.clients.items():
            mu = 5 / q.copies[i] if scale == "oracle" else 1.0
            delivered = x - (memory["a"] - old[i])
            assert gap(mu * memory["a"], q.gradient(i, delivered)) <= 1e-12
            old[i] = memory["a"]
        x = snapshot.x
    shares = q.copies if scale == "oracle" else (1, 1, 1)
    assert gap(x, q.optimum(shares)) <= CONVERGED
    assert gap(x, q.optimum((1, 1, 1) if scale == "oracle" else q.copies)) > 1e-3
