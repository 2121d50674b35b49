"""The exact identities between algorithms, numbered as in the specification (4).

7 and 13 speak of quadratics and are tested in `test_fixed_points`, the similarity of 12 as a
function of the updates in `test_parts`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.laws.pairs import (
    FULL,
    FULL_BATCH,
    TOLERANCE,
    UNEQUAL,
    differ,
    equal,
    gap,
    over_seeds,
    problem_of,
    with_cohorts_of,
)
from tests.laws.play import play
from tests.laws.reference import Problem, gradient
from undrift.algorithms import FedAvg, FedGBO
from undrift.checks.replay import Snapshot
from undrift.core import Client, RoundFacts, Struct, Vector
from undrift.optim import SGD, Adam, HeavyBall, Optimiser, RMSProp, SGDm
from undrift.parts import IDA, FedGLAD, ServerOpt

# 1, 2


@over_seeds
def test_adabest_without_its_terms_is_fedavg(seed: int) -> None:
    problem = problem_of(seed, **UNEQUAL, changing_population=True, with_void_round=True)
    equal("adabest(mu=0.0, beta=0.0)", "fedavg(weights='uniform')", problem)


@pytest.mark.parametrize("scale", ["none", "oracle"])
@over_seeds
def test_adabest_text_is_box_for_constant_mu(scale: str, seed: int) -> None:
    options = f"mu=0.3, scale='{scale}', prox=0.5"
    problem = problem_of(seed, with_void_round=True)
    equal(f"adabest({options})", f"adabest({options}, form='box')", problem, paths=["h"])


def test_adabest_text_is_not_box_where_mu_changes() -> None:
    differ("adabest(mu=0.3)", "adabest(mu=0.3, form='box')", problem_of(0))


# 3, 4


@pytest.mark.parametrize("name", ["adabest(beta=0.7)", "feddyn", "fedglad+adabest(beta=0.7)"])
@over_seeds
def test_aggregates_move_by_h_and_the_mean_update(name: str, seed: int) -> None:
    """Remark 2: θ̄^{t-1} - θ̄^t = h^{t-1} + ĝ^t, with ĝ = ζ ḡ under FedGLAD."""
    problem = problem_of(seed)
    xbar, h = problem.start, np.zeros_like(problem.start)
    for now in play(name, problem):
        assert gap(xbar - now.xbar, h + factor(now, problem) * now.mean) <= TOLERANCE
        xbar, h = now.xbar, now.server["h"]


@over_seeds
def test_h_of_adabest_is_a_decaying_sum(seed: int) -> None:
    """Remark 3: h^t = Σ β^{t-τ+1} ḡ^τ."""
    run, beta = play("adabest(mu=0.1, beta=0.7)", problem_of(seed)), 0.7
    for t, now in enumerate(run, 1):
        terms = [beta ** (t - tau + 1) * run[tau - 1].mean for tau in range(1, t + 1)]
        assert gap(now.server["h"], sum(terms)) <= TOLERANCE


def factor(now: Snapshot, problem: Problem) -> Any:
    if "fedglad.factor" not in now.server:
        return 1.0
    return np.repeat(now.server["fedglad.factor"], problem.groups)


# 5


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("adabest(mu=0.1, beta=1.0, prox=1.0, scale='oracle')", "feddyn(mu=0.1)"),
        ("adabest(mu=0.1, beta=1.0, scale='none')", "feddyn(mu=0.1, prox=0.0, scale='none')"),
        ("adabest(mu=0.1)", "adabest(mu=0.1, discount=False)"),
        ("adabest(mu=0.1, scale='progressive')", "adabest(mu=0.1, scale='oracle')"),
    ],
)
@over_seeds
def test_adabest_with_everybody_in_every_round(a: str, b: str, seed: int) -> None:
    equal(a, b, problem_of(seed, **FULL, **UNEQUAL), paths=["h"])


def test_the_discount_acts_once_a_client_was_away() -> None:
    problem = problem_of(0, **FULL, with_void_round=True)
    differ("adabest(mu=0.1)", "adabest(mu=0.1, discount=False)", problem)


@over_seeds
def test_progressive_mean_counts_every_past_participation(seed: int) -> None:
    problem = problem_of(seed, with_void_round=True)
    sizes: list[int] = []
    for now, cohort in zip(play("adabest", problem), problem.delivering, strict=True):
        sizes += [len(problem.ys[i]) for i in cohort]
        assert now.server["events"] == len(sizes)
        assert gap(now.server["n_mean"], np.mean(sizes)) <= TOLERANCE


# 6


@over_seeds
def test_h_of_feddyn_is_the_mean_of_the_memories(seed: int) -> None:
    for now in play("feddyn", problem_of(seed, **UNEQUAL, with_void_round=True)):
        memories = sum(memory["a"] for memory in now.clients.values())
        assert gap(now.server["h"], memories / 5) <= TOLERANCE


def test_theorem_1_is_an_equivalence() -> None:
    """‖h‖ shrinks exactly when cos∠(h, ḡ) <= -(p/2N) ‖ḡ‖/‖h‖; both cases must occur."""
    outcomes = []
    for seed in range(4):
        problem = problem_of(seed, rounds=60, loss="least_squares")
        h = np.zeros_like(problem.start)
        run = play("feddyn(mu=0.5)", problem)
        for now, cohort in zip(run, problem.delivering, strict=True):
            old, new, g = (np.linalg.norm(v) for v in (h, now.server["h"], now.mean))
            if old > 0:
                margin = h @ now.mean / (g * old) + len(cohort) / (2 * 5) * g / old
                assert (new**2 <= old**2) == (margin <= 0) or abs(margin) < 1e-9
                outcomes.append(bool(margin <= 0))
            h = now.server["h"]
    assert 20 < sum(outcomes) < len(outcomes) - 20


# 8


@pytest.mark.parametrize("option", [1, 2])
@over_seeds
def test_c_of_scaffold_is_the_mean_of_the_memories(option: int, seed: int) -> None:
    problem = problem_of(seed, **UNEQUAL, with_void_round=True)
    for now in play(f"scaffold(option={option})", problem):
        memories = sum(memory["c"] for memory in now.clients.values())
        assert gap(now.server["c"], memories / 5) <= TOLERANCE


@over_seeds
def test_scaffold_m_is_scaffold_for_equal_steps(seed: int) -> None:
    problem = problem_of(seed, changing_population=True, with_void_round=True)
    equal("scaffoldm", "scaffold", problem, paths=["c"])
    alone = with_cohorts_of(1, problem_of(seed, **UNEQUAL))
    equal("scaffoldm", "scaffold", alone, paths=["c"])


def test_scaffold_m_is_not_scaffold_for_unequal_steps() -> None:
    differ("scaffoldm", "scaffold", problem_of(1, **UNEQUAL))


@over_seeds
def test_scaffold_m_as_printed_is_right_for_one_client_a_round(seed: int) -> None:
    problem = problem_of(seed)
    alone = with_cohorts_of(1, problem)
    equal("scaffoldm(form='printed')", "scaffoldm", alone, paths=["c"])
    differ("scaffoldm(form='printed')", "scaffoldm", with_cohorts_of(2, problem))


# 9


@pytest.mark.parametrize(
    ("a", "b", "kind"),
    [
        ("fedprox(mu=0.0)", "fedavg", UNEQUAL),
        ("fedavgm(beta=0.0)", "fedavg", UNEQUAL),
        ("fedavgm(0.8, 0.3, form='ema')", "fedavgm(0.8, 0.06)", UNEQUAL),
        ("fednova", "fedavg", {}),
        ("fednova(momentum=0.7)", "LocalOpt(FedAvg(), HeavyBall(beta=0.7))", {}),
        ("fednova(mu=0.7)", "fedprox(mu=0.7)", {}),
    ],
)
@over_seeds
def test_special_cases_of_fedavg(a: str, b: str, kind: dict[str, Any], seed: int) -> None:
    equal(a, b, problem_of(seed, **kind))


@over_seeds
def test_fedprox_has_no_pull_in_a_single_step(seed: int) -> None:
    equal("fedprox(mu=0.7)", "fedavg", single_step(seed, full_participation=False))


def test_fednova_is_not_fedavg_for_unequal_steps() -> None:
    differ("fednova", "fedavg", problem_of(1, **UNEQUAL))


# 10


@dataclass(frozen=True)
class Recording(FedGBO):
    """FedGBO whose clients also send the sum of their gradients, so that `truth` is known."""

    def init_server(self, x: Vector, groups: tuple[int, ...]) -> Struct:
        s = super().init_server(x, groups)
        return s | Struct(truth=s.stats)

    def begin(self, down: Struct, me: Struct, client: Client) -> Struct:
        return super().begin(down, me, client) | Struct(sum=0 * down.x)

    def move(self, local: Struct, d: Vector, down: Struct, client: Client) -> Struct:
        return super().move(local, d, down, client) | Struct(sum=local.sum + d)

    def upload(
        self, local: Struct, down: Struct, me: Struct, client: Client
    ) -> tuple[Struct, Struct]:
        up, me = super().upload(local, down, me, client)
        return up | Struct(sum=local.sum), me

    def update(self, s: Struct, mean: Struct, round: RoundFacts) -> tuple[Vector, Struct]:
        d, changes = super().update(s, mean, round)
        truth = self.optimiser.track(s.stats, mean.sum / round.steps)
        return d, changes | Struct(truth=truth)


@pytest.mark.parametrize("around", ["nothing", "FedGLAD", "ServerOpt"])
@pytest.mark.parametrize(
    "optimiser",
    [SGDm(beta=0.7), RMSProp(), Adam(), Adam(v0=0.0), HeavyBall(beta=0.7), SGDm(lr=0.5)],
    ids=repr,
)
@pytest.mark.parametrize("weights", ["uniform", "samples"])
@settings(max_examples=2)
@given(seed=st.integers(0, 10**6))
def test_fedgbo_recovers_the_mean_gradient_of_all_paths(
    weights: Any, optimiser: Optimiser, around: str, seed: int
) -> None:
    inner = Recording(optimiser, weights=weights)
    made = {
        "nothing": inner,
        "FedGLAD": FedGLAD(inner, gamma=0.5),
        "ServerOpt": ServerOpt(inner, SGD(lr=0.5)),
    }[around]
    problem = problem_of(seed, rounds=4, **UNEQUAL)
    for now in play(made, problem):
        for name in ("m", "v"):
            if f"stats.{name}" in now.server:
                assert gap(now.server[f"stats.{name}"], now.server[f"truth.{name}"]) <= TOLERANCE


# 11


def single_step(seed: int, **options: Any) -> Problem:
    """One full-batch step a round with, unless said otherwise, everybody taking part."""
    return replace(problem_of(seed, **FULL_BATCH | FULL | options), steps=1)


def mean_gradient(problem: Problem, x: np.ndarray, weights: str) -> np.ndarray:
    sizes = [len(y) if weights == "samples" else 1 for y in problem.ys]
    terms = [n * gradient(problem, i, x) for i, n in enumerate(sizes)]
    return sum(terms) / sum(sizes)


def centralised(problem: Problem, optimiser: Optimiser, moving: bool) -> list[np.ndarray]:
    """The optimiser on the mean objective: steps with old statistics, or with moving ones."""
    x = torch.from_numpy(problem.start)
    stats = optimiser.init(x, v0=1.0)
    path = []
    for t in range(len(problem.delivering)):
        g = torch.from_numpy(mean_gradient(problem, x.numpy(), "uniform"))
        d, new = optimiser.step(stats, g)
        d = d if moving else optimiser.use(stats, g)
        x, stats = x - problem.lr * problem.lr_decay**t * d, new
        path.append(x.numpy())
    return path


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("fedavg", "samples"),
        ("fedavg(weights='uniform')", "uniform"),
        ("fedprox(mu=0.5)", "samples"),
        ("fednova", "samples"),
        ("scaffold", "uniform"),
        ("scaffold(option=1)", "uniform"),
        ("scaffoldm", "uniform"),
    ],
)
@over_seeds
def test_a_single_full_step_is_gradient_descent(name: str, weights: str, seed: int) -> None:
    problem = single_step(seed)
    x = problem.start
    for t, now in enumerate(play(name, problem)):
        x = x - problem.lr * problem.lr_decay**t * mean_gradient(problem, x, weights)
        assert gap(now.x, x) <= TOLERANCE


@pytest.mark.parametrize("name", ["fedgbo", "mimelite", "mime"])
@pytest.mark.parametrize("optimiser", [SGDm(), RMSProp(), Adam()], ids=repr)
@over_seeds
def test_a_single_full_step_is_centralised(optimiser: Optimiser, name: str, seed: int) -> None:
    problem = single_step(seed)
    run = play(f"{name}({optimiser!r})", problem)
    for now, x in zip(run, centralised(problem, optimiser, moving=False), strict=True):
        assert gap(now.x, x) <= TOLERANCE


@over_seeds
def test_a_single_full_step_of_mfl_is_centralised_for_momentum_only(seed: int) -> None:
    problem = single_step(seed)
    run = play("mfl(SGDm())", problem)
    for now, x in zip(run, centralised(problem, SGDm(), moving=True), strict=True):
        assert gap(now.x, x) <= TOLERANCE
    last = centralised(problem, RMSProp(), moving=True)[-1]
    assert gap(play("mfl(RMSProp())", problem)[-1].x, last) > 1e-6


@over_seeds
def test_one_mini_batch_is_enough_for_mimelite_if_it_is_full(seed: int) -> None:
    problem = problem_of(seed, **FULL_BATCH)
    equal("mimelite(gradient='batch')", "mimelite", problem, paths=["stats.m"])


# 12


BASES = [
    "fedavg",
    "fedprox(mu=0.1)",
    "fedavgm",
    "fedadam(0.1)",
    "scaffold",
    "scaffoldm",
    "feddyn",
    "adabest",
    "fedgbo",
    "fednova",
    "ida+fedavg",
    "Krum(FedAvg(), f=1, m=2)",
]


@pytest.mark.parametrize("base", BASES)
@over_seeds
def test_fedglad_without_room_or_with_one_client_is_its_base(base: str, seed: int) -> None:
    problem = problem_of(seed, rounds=4)
    equal(f"fedglad(gamma=0.0)+{base}", base, problem)
    equal(f"fedglad(gamma=0.5)+{base}", base, with_cohorts_of(1, problem))


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("groups", ["parameter", "universal"])
def test_fedglad_changes_nothing_in_the_first_round(base: str, groups: str) -> None:
    text = f"fedglad(gamma=0.5, groups='{groups}')+{base}"
    problem = problem_of(3, rounds=3, **FULL)
    run = play(text, problem)
    assert np.array_equal(run[0].x, play(base, problem)[0].x)
    assert (run[0].server["fedglad.factor"] == 1).all()
    assert (run[-1].server["fedglad.factor"] != 1).all()


# 14


@over_seeds
def test_ida_with_equal_distances_is_the_plain_mean(seed: int) -> None:
    problem = with_cohorts_of(2, problem_of(seed))  # two are equally far from their mean
    equal("ida+fedavg", "fedavg(weights='uniform')", problem)
    one = [problem.xs[0]] * 5, [problem.ys[0]] * 5
    twins = replace(problem_of(seed, **FULL, **FULL_BATCH), xs=one[0], ys=one[1])
    equal("ida+fedavg", "fedavg(weights='uniform')", twins)


def test_ida_does_not_tell_apart_what_only_rounding_does() -> None:
    point = torch.linspace(-1, 1, 7, dtype=torch.float64)
    nearby = [Struct(delta=point + k * 1e-14) for k in (0, 1, 5)]
    shares = IDA(FedAvg()).reweigh(Struct(), nearby, [0.2, 0.3, 0.5])
    assert gap([float(share) for share in shares], [1 / 3] * 3) <= TOLERANCE


@pytest.mark.parametrize("optimiser", [SGD(lr=0.3), HeavyBall(beta=0.8), SGDm(lr=2.0, beta=0.6)])
@pytest.mark.parametrize("steps", [1, 7])
def test_the_gain_is_the_mean_length_of_steps(optimiser: Optimiser, steps: int) -> None:
    g = torch.ones(1, dtype=torch.float64)
    went, q = 0 * g, optimiser.init(g, v0=0.0)
    for _ in range(steps):
        d, q = optimiser.step(q, g)
        went += optimiser.lr * d
    assert float(went) == pytest.approx(steps * optimiser.gain(steps), rel=1e-14)
