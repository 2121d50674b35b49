"""Mistakes as versions of a rule's pieces, and the sets of them that can be made together.

The sentence of a mistake completes "the numbers are those of the reference with ...". They were
collected from public implementations and issue trackers, with their nearest relatives. Some are
documented choices: what is called a mistake here is any difference from the method.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

from undrift.checks.conform.frame import Rule

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
    """Whether a mistake changes something: equal weights are none where all are equal."""
    changed = pieces(mistake)
    if not rule.weighted and changed & WEIGHTS:
        return False
    return all(getattr(rule, key) != vars(mistake)[key] for key in ATTRIBUTES & changed)


WEIGHTS = {"weights", "counted", "share"}
ATTRIBUTES = {"weights", "option", "form", "scale"}


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
