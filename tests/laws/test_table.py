"""Every algorithm and composition of the table obeys every law, and its name is its repr."""

from inspect import isclass

import pytest

from tests.laws.table import TABLE
from undrift import algorithms, parts
from undrift.checks.laws import LAWS, check_algorithm
from undrift.experiment.registry import algorithm


def test_every_algorithm_and_part_is_in_the_table() -> None:
    made = "".join(map(repr, map(algorithm, TABLE)))
    names = [*algorithms.__all__, *(name for name in parts.__all__ if isclass(vars(parts)[name]))]
    missing = [name for name in names if f"{name}(" not in made]
    assert missing == [], f"tests/laws/table.py has no line for {missing}"


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("law", LAWS)
def test_law(name: str, law: str) -> None:
    check_algorithm(algorithm(name), [law])


@pytest.mark.parametrize("name", TABLE)
def test_repr_is_the_name(name: str) -> None:
    made = algorithm(name)
    assert repr(made) == name
    assert algorithm(repr(made)) == made
