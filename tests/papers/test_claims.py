"""Claims: the rules by which verdicts are given."""

from __future__ import annotations

import math

import pytest

from undrift.config import UndriftError
from undrift.papers.claims import Claim, judge_value, rule
from undrift.report.estimate import Estimate

ROWS = ("A", "B", "A + G")


def judge(test: str, tolerance: float = 1.0, **scores: list[float]) -> str:
    seeds = {name.replace("_", " + "): dict(enumerate(some)) for name, some in scores.items()}
    return Claim.of(test, ROWS, ["m"]).judge(seeds, seeds, tolerance).word


def test_an_order_is_judged_seed_by_seed() -> None:
    """Large differences between seeds do not hide a small one that all of them show."""
    a, b = [10.0, 50.0, 90.0], [9.0, 49.1, 88.9]
    assert judge("A > B", A=a, B=b) == "agrees"
    assert judge("A < B", A=a, B=b) == "disagrees"
    assert judge("B < A", A=a, B=b) == "agrees"
    assert judge("A > B", A=a, B=[9.0, 51.0, 89.0]) == "cannot tell"


def test_equality_is_within_the_tolerance() -> None:
    a, b = [10.0, 50.0, 90.0], [9.9, 50.1, 90.0]
    assert judge("A ~ B", A=a, B=b) == "agrees"
    assert judge("A ~ B", tolerance=0.01, A=a, B=b) == "cannot tell"
    assert judge("A ~ B", A=a, B=[0.0, 40.1, 80.0]) == "disagrees"


def test_sides_may_be_numbers_and_differences() -> None:
    scores = {"A": [1.0, 2.0, 3.0], "A_G": [2.0, 3.1, 4.0]}
    assert judge("A + G - A > 0.5", **scores) == "agrees"
    assert judge("A < 10", **scores) == "agrees"
    assert judge("A > 10", **scores) == "disagrees"


def test_what_lacks_results_is_not_run_and_two_seeds_are_too_few() -> None:
    assert judge("A > B", A=[1.0, 2.0, 3.0]) == "not run"
    assert judge("A > B", A=[3.0, 3.0], B=[1.0, 1.0]) == "cannot tell"


def test_a_trial_that_diverged_loses() -> None:
    nan = math.nan
    assert judge("A > B", A=[1.0, 2.0, 3.0], B=[nan, nan, nan]) == "agrees"
    assert judge("A > B", A=[nan, nan, nan], B=[1.0, 2.0, 3.0]) == "disagrees"
    assert judge("A > B", A=[1.0, 2.0, 3.0], B=[nan, 1.0, 4.0]) == "cannot tell"
    assert judge("A > B", A=[nan] * 3, B=[nan] * 3) == "cannot tell"
    assert judge("A ~ B", A=[1.0, 2.0, nan], B=[1.0, 2.0, 3.0]) == "cannot tell"


@pytest.mark.parametrize(
    ("interval", "sign", "word"),
    [
        ((0.1, 0.2), ">", "agrees"),
        ((-0.1, 0.2), ">", "cannot tell"),
        ((-0.2, -0.1), ">", "disagrees"),
        ((-0.2, -0.1), "<", "agrees"),
        ((-0.9, 0.9), "~", "agrees"),
        ((0.9, 1.1), "~", "cannot tell"),
        ((1.1, 2.0), "~", "disagrees"),
        ((-3.0, 3.0), "~", "cannot tell"),
    ],
)
def test_rules(interval: tuple[float, float], sign: str, word: str) -> None:
    assert rule(interval, sign, 1.0) == word


def test_a_value_agrees_if_the_interval_of_its_difference_is_within_the_tolerance() -> None:
    ours = Estimate.of([94.1, 94.3, 94.2, 94.0, 94.4])
    assert judge_value(ours, (94.28, 0.07), 5, 1.0).word == "agrees"
    assert judge_value(ours, (96.0, 0.07), 5, 1.0).word == "disagrees"
    assert judge_value(ours, (95.2, 0.07), 5, 1.0).word == "cannot tell"
    assert judge_value(ours, (94.28, 3.0), 5, 1.0).word == "cannot tell"
    assert judge_value(Estimate.of([94.0, 94.1]), (94.28, None), 5, 1.0).word == "cannot tell"
    assert judge_value(None, (94.28, None), 5, 1.0).word == "not run"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"test": "A > B", "cell": "x"},
            "no part of a claim is called 'cell'; did you mean 'cells'",
        ),
        ({"test": "A > B", "measure": "speed"}, "no measure is called 'speed'"),
        ("A >= B", "is not a test"),
        ("A - B - A > 1", "give a row, or a difference of two"),
    ],
)
def test_claims_that_make_no_sense_are_refused(given: object, says: str) -> None:
    with pytest.raises(UndriftError, match=says):
        Claim.of(given, ROWS, ["m"])
