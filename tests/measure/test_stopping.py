"""Stop rules as functions of rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from undrift.config import UndriftError
from undrift.measure.stopping import (
    Budget,
    Patience,
    Rows,
    StopRule,
    Target,
    first_to_stop,
    stop_rules,
)


def measured(*accuracies: float | None, name: str = "accuracy") -> list[dict[str, Any]]:
    """Rows of evaluations every 5 rounds, which cost the same each time."""
    return [
        {"round": 5 * k, "bytes_down": 600 * k, "bytes_up": 400 * k, "flops": 1e6 * k, name: value}
        | {"seconds": 0.5 * k}
        for k, value in enumerate(accuracies, start=1)
    ]


def end(rule: StopRule, rows: Rows) -> int | None:
    """How many rows a trial has when the rule ends it."""
    return next((k for k in range(1, len(rows) + 1) if rule.stops(rows[:k])), None)


@pytest.mark.parametrize(
    ("rule", "accuracies", "expected"),
    [
        (Target(0.5), (0.4, 0.5, 0.4), 2),
        (Target(0.5), (0.4, 0.49), None),
        (Target(0.5, evaluations=2), (0.5, 0.4, 0.5, 0.6, 0.7), 4),
        (Target(0.5, evaluations=2), (0.9,), None),
        (Target(0.5, evaluations=2), (0.5, None, math.nan, 0.5), 4),  # no evaluations in between
        (Patience(2), (0.1, 0.2, 0.2, 0.2, 0.3), 4),
        (Patience(2), (0.1, 0.2, 0.1, 0.3, 0.2), None),
        (Patience(2, delta=0.1), (0.1, 0.15, 0.2, 0.3), 3),
        (Patience(1), (None, None), None),
        (Budget(bytes=2500), (0.1,) * 4, 3),
        (Budget(bytes="2 kB"), (0.1,) * 4, 2),
        (Budget(bytes="2 KiB"), (0.1,) * 4, 3),
        (Budget(flops=2e6), (0.1,) * 4, 2),
        (Budget(rounds=11), (0.1,) * 4, 3),
        (Budget(seconds=0.6), (0.1,) * 4, 2),
        (Budget(rounds=100, flops=1), (0.1,), 1),
    ],
    ids=repr,
)
def test_where_a_rule_stops(
    rule: StopRule, accuracies: tuple[float | None, ...], expected: int | None
) -> None:
    assert end(rule, measured(*accuracies)) == expected
    assert stop_rules([repr(rule)]) == (rule,)


def test_rules_judge_held_out_clients_if_asked_to() -> None:
    rows = [row | {"accuracy": 0.9} for row in measured(0.1, 0.5, 0.5, name="validation_accuracy")]
    assert end(Target(0.5, on="validation"), rows) == 2
    assert end(Patience(1, on="validation"), rows) == 3


def test_patience_judges_losses_where_there_is_no_accuracy() -> None:
    assert end(Patience(2), measured(3.0, 2.0, 2.5, 2.1, 1.0, name="loss")) == 4


RULES = [Target(0.5, evaluations=2), Patience(3, delta=0.05), Budget(rounds=40, bytes="6 kB")]


@given(st.lists(st.none() | st.floats(0, 1), max_size=12), st.lists(st.floats(0, 1), max_size=6))
def test_rows_after_a_stop_do_not_matter(before: list[float | None], after: list[float]) -> None:
    for rule in RULES:
        alone, more = end(rule, measured(*before)), end(rule, measured(*before, *after))
        assert more == alone or (alone is None and more is not None and more > len(before))


def test_the_first_rule_that_applies_is_named() -> None:
    rows = measured(0.9)
    assert first_to_stop([Patience(), Budget(rounds=5), Target(0.5)], rows) == Budget(rounds=5)
    assert first_to_stop([Patience()], rows) is None


@dataclass(frozen=True)
class Broken(StopRule):
    def stops(self, rows: Rows) -> bool:
        return bool(rows[-1]["mood"])


def test_an_error_of_an_own_rule_names_the_rule() -> None:
    with pytest.raises(UndriftError, match=r"Broken\(\): KeyError: 'mood'"):
        first_to_stop([Broken()], measured(0.1))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("Target(0.9)", "give a list"),
        (["Target(90)"], "accuracy must be a number > 0 and <= 1"),
        (["Target"], "accuracy must be given"),
        (["Tarjet(0.9)"], "no stop rule is called 'Tarjet'"),
        (["Target(0.9, on='training')"], "on must be one of 'test', 'validation'"),
        (["Patience(0)"], "evaluations must be a whole number >= 1"),
        (["Budget()"], "give a limit"),
        (["Budget(bytes='2 apples')"], "bytes must be a number > 0, or a text such as '2 GB'"),
        (["Budget(bytes='0 GB')"], "bytes must be a number > 0"),
        (["Budget(bytes=True)"], "bytes must be a number > 0"),
        ([0.9], "0.9 is not a stop rule"),
    ],
)
def test_wrong_rules_are_refused(wrong: Any, said: str) -> None:
    with pytest.raises(UndriftError) as error:
        stop_rules(wrong)
    assert said in str(error.value)
