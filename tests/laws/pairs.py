"""Pairs of algorithms on random problems: are they the same?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.laws.play import play
from tests.laws.reference import Problem, random_problem

TOLERANCE = 1e-12
FULL = {"full_participation": True}
UNEQUAL = {"unequal_steps": True}
FULL_BATCH = {"minibatch": False}


def over_seeds(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test on two seeds."""
    return settings(max_examples=2)(given(seed=st.integers(0, 10**6))(test))


def problem_of(seed: int, **options: Any) -> Problem:
    return random_problem(seed, **{"rounds": 6, "clients": 5} | options)


def with_cohorts_of(size: int, problem: Problem) -> Problem:
    """The same full-batch problem, with this many clients in every round."""
    rng = np.random.default_rng(size)
    cohorts = [sorted(rng.permutation(r)[:size].tolist()) for r in problem.registered]
    return replace(problem, delivering=cohorts, batches=None)


def gap(a: Any, b: Any) -> float:
    return float(np.abs(np.asarray(a) - np.asarray(b)).max())


def equal(a: str, b: str, problem: Problem, *, paths: Sequence[str] = ()) -> None:
    """Two algorithms have the same models, and server statistics by path, in every round."""
    for one, two in zip(play(a, problem), play(b, problem), strict=True):
        assert gap(one.x, two.x) <= TOLERANCE
        assert gap(one.xbar, two.xbar) <= TOLERANCE
        for path in paths:
            assert gap(one.server[path], two.server[path]) <= TOLERANCE


def differ(a: str, b: str, problem: Problem) -> None:
    """Two algorithms end in plainly different models."""
    assert gap(play(a, problem)[-1].x, play(b, problem)[-1].x) > 1e-6
