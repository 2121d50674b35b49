"""AdaBest's beta from round to round, and the same server rule as a part."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.laws.pairs import (
    TOLERANCE,
    equal,
    gap,
    over_seeds,
    problem_of,
    with_cohorts_of,
)
from tests.laws.play import play
from undrift.config import UndriftError
from undrift.experiment.registry import algorithm
from undrift.vectors import effective_updates, safe_beta

SELDOM = 1e6
"""rounds after which clients come back that in effect never do"""


def beta_of(updates: torch.Tensor, age: float = SELDOM) -> float:
    """The rule, of the rows of a matrix."""
    p, square = len(updates), (updates * updates).sum(1).mean()
    return safe_beta(effective_updates(square, updates.mean(0), p), p, age)


@pytest.mark.parametrize("p", [1, 2, 5, 100])
def test_updates_that_agree_and_updates_that_have_nothing_in_common(p: int) -> None:
    rows = torch.eye(p, 200, dtype=torch.float64)
    assert beta_of(rows) == pytest.approx(1 - 1 / (p + 0.5))
    assert beta_of(rows[:1].expand(p, -1)) == pytest.approx(1 - 1 / min(p + 0.5, 2))


def test_updates_that_cancel_count_no_more_than_they_are() -> None:
    opposite = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    almost = torch.tensor([[1.0, 1e-9], [-1.0, 0.0]])
    assert beta_of(opposite) == beta_of(almost) == pytest.approx(1 - 1 / 2.5)
    assert beta_of(0 * opposite) == pytest.approx(1 - 1 / 2.5)


@pytest.mark.parametrize(("age", "memory"), [(1, 20), (4, 40), (25, 100), (26, 100.5)])
def test_clients_that_come_back_soon_shorten_the_memory(age: float, memory: float) -> None:
    assert beta_of(torch.eye(100), age) == pytest.approx(1 - 1 / memory)


@given(
    seed=st.integers(0, 10**6),
    p=st.integers(1, 8),
    scale=st.floats(1e-3, 1e3),
    age=st.floats(1, 1e6),
)
def test_it_is_within_its_bounds_whatever_the_scale(
    seed: int, p: int, scale: float, age: float
) -> None:
    rows = torch.from_numpy(np.random.default_rng(seed).normal(size=(p, 5)))
    beta, updates = beta_of(rows, age), effective_updates((rows**2).sum() / p, rows.mean(0), p)
    assert 0 <= beta < 1 - 1 / (2 * p)  # beyond which p orthogonal updates grow without bound
    assert 1 / (1 - beta) <= 2 * updates + 1e-9
    assert beta_of(scale * rows, age) == pytest.approx(beta, rel=1e-9)
    assert beta <= beta_of(rows, 2 * age)


@over_seeds
def test_clients_tell_how_long_they_were_away(seed: int) -> None:
    """The memory of a lone client is constant, that of all clients no longer than 2 √p."""
    for p, longest in (1, 1.5), (5, 2 * 5**0.5):
        run = play("adabest(beta='auto')", with_cohorts_of(p, problem_of(seed)))
        memories = [1 / (1 - now.server["beta"]) for now in run]
        assert max(memories) <= longest + 1e-9
        assert p > 1 or memories == pytest.approx([1.5] * len(run))


@pytest.mark.parametrize("beta", ["0.7", "'auto'"])
@over_seeds
def test_adabest_without_mu_is_extrapolated_fedavg(beta: str, seed: int) -> None:
    problem = problem_of(seed, unequal_steps=True, with_void_round=True)
    fedavg = f"extrapolate(fedavg(weights='uniform'), beta={beta})"
    equal(f"adabest(mu=0.0, beta={beta})", fedavg, problem)


@pytest.mark.parametrize("inner", ["fedavg", "scaffold", "fedgbo(Adam())", "fednova"])
@over_seeds
def test_no_extrapolation_is_the_inner_algorithm(inner: str, seed: int) -> None:
    equal(f"extrapolate({inner}, beta=0)", inner, problem_of(seed))


@over_seeds
def test_the_rescaling_of_fedglad_does_not_enter(seed: int) -> None:
    """With the same updates, beta is the same whatever gamma."""
    problem = problem_of(seed, rounds=2)  # the updates of a third round differ
    runs = [play(f"fedglad(adabest(beta='auto'), gamma={gamma})", problem) for gamma in (0, "inf")]
    first, second = ([now.server["beta"] for now in run] for run in runs)
    assert first == second
    plain = play("adabest(beta='auto')", problem)
    assert gap(first, [now.server["beta"] for now in plain]) <= TOLERANCE


@pytest.mark.parametrize("inner", ["adabest", "feddyn", "fedadam", "clip(feddyn, norm=1)"])
def test_servers_that_go_on_by_themselves_are_refused(inner: str) -> None:
    with pytest.raises(UndriftError, match=r"by itself|of its own"):
        algorithm(f"extrapolate({inner})")


def test_a_wrong_beta_is_told() -> None:
    with pytest.raises(UndriftError, match=r"beta must be a number >= 0 and <= 1, or 'auto'"):
        algorithm("adabest(beta='best')")
