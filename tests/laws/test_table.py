"""Every algorithm and composition of the table obeys every law, and its name is its repr."""

from inspect import isclass

import pytest
import torch

from tests.laws.table import TABLE
from undrift import algorithms, parts
from undrift.checks.laws import LAWS, check_algorithm
from undrift.core import Client
from undrift.engines.native.kernel import lower
from undrift.engines.native.passes import optimise
from undrift.engines.native.step import trace_step
from undrift.experiment.registry import algorithm


def test_every_algorithm_and_part_is_in_the_table() -> None:
    made = "".join(map(repr, map(algorithm, TABLE)))
    names = [*algorithms.__all__, *(name for name in parts.__all__ if isclass(vars(parts)[name]))]
    missing = [name for name in names if f"{name}(" not in made]
    assert missing == [], f"tests/laws/table.py has no line for {missing}"


@pytest.mark.parametrize("law", [law for law in LAWS if law != "repeatable"])  # `restore` says more
@pytest.mark.parametrize("name", TABLE)
def test_law(name: str, law: str) -> None:
    check_algorithm(algorithm(name), [law])


@pytest.mark.parametrize("name", TABLE)
def test_repr_is_the_name(name: str) -> None:
    made = algorithm(name)
    assert repr(made) == name
    assert algorithm(repr(made)) == made


@pytest.mark.parametrize("name", TABLE)
def test_local_steps_can_be_compiled(name: str) -> None:
    """The law `engines` holds as well for what runs in Python instead."""
    made, x = algorithm(name), torch.ones(4)
    facts = Client(3, 50, 20, 0.1, 0.2, 40.0, full_grad=torch.sin, first_grad=torch.sin)
    down, me = made.download(made.init_server(x, (4,))), made.init_client(x)
    down |= made.survey(down, me, facts)
    step = trace_step(made, made.begin(down, me, facts), down, me, facts, weight_decay=1e-4)
    assert lower(optimise(step.graph)).instructions
