"""Every algorithm and composition of the table obeys every law, and its name is its repr."""

import pytest

from tests.laws.table import TABLE
from undrift.checks.laws import LAWS, check_algorithm
from undrift.experiment.registry import algorithm


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("law", LAWS)
def test_law(name: str, law: str) -> None:
    check_algorithm(algorithm(name), [law])


@pytest.mark.parametrize("name", TABLE)
def test_repr_is_the_name(name: str) -> None:
    made = algorithm(name)
    assert repr(made) == name
    assert algorithm(repr(made)) == made
