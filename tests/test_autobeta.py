"""The experiment behind docs/autobeta.md."""

from __future__ import annotations

from experiments.autobeta.rules import Bounded
from experiments.autobeta.summary import PAGE, page
from tests.laws.pairs import gap, over_seeds, problem_of
from tests.laws.play import play


def test_the_page_has_the_tables_of_the_results() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page(text) == text


@over_seeds
def test_the_rule_that_was_chosen_is_the_one_that_ships(seed: int) -> None:
    problem = problem_of(seed, with_void_round=True)
    for one, two in zip(
        play(Bounded(beta="auto"), problem), play("adabest(beta='auto')", problem), strict=True
    ):
        assert gap(one.x, two.x) == 0
