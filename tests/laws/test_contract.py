"""The contract has one list of hooks, and whoever repeats it has it whole."""

import re
from dataclasses import fields
from doctest import DocTestParser, DocTestRunner
from inspect import getdoc, signature
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import undrift
from undrift import Algorithm, Part, algorithms, parts
from undrift.core import FACTS, HOOKS

ROOT = Path(__file__).parents[2]
HOWTO = ROOT / "docs" / "howto" / "algorithm.md"

NAMES = {name: getattr(room, name) for room in (algorithms, parts) for name in room.__all__}
CLASSES = [made for made in NAMES.values() if isinstance(made, type)]


class Echo(Algorithm):
    """Answers every question with the question."""

    def __getattribute__(self, name: str) -> Any:
        if name in FACTS:
            return name
        return (lambda *given: (name, given)) if name in HOOKS else super().__getattribute__(name)


def parameters(hook: Any) -> list[str]:
    return list(signature(hook).parameters)[1:]


def test_hooks_and_facts_are_what_an_algorithm_has() -> None:
    assert {"init_server", "direction", "update"} <= {*HOOKS}
    assert {"weights", "holistic", "deploys"} <= {*FACTS}


@pytest.mark.parametrize("name", HOOKS)
def test_a_part_passes_on_every_hook(name: str) -> None:
    given = tuple(parameters(getattr(Algorithm, name)))
    assert getattr(Part(Echo()), name)(*given) == (name, given)


@pytest.mark.parametrize("name", FACTS)
def test_a_part_passes_on_every_fact(name: str) -> None:
    assert getattr(Part(Echo()), name) == name


@pytest.mark.parametrize("kind", [Part, *CLASSES], ids=lambda kind: kind.__name__)
def test_hooks_have_the_parameters_of_the_contract(kind: type[Algorithm]) -> None:
    for name in HOOKS:
        assert parameters(getattr(kind, name)) == parameters(getattr(Algorithm, name)), name


def test_the_guide_for_authors_lists_every_hook() -> None:
    text = HOWTO.read_text(encoding="utf-8")
    assert [name for name in HOOKS if f"`{name}`" not in text] == []


@pytest.mark.parametrize("name", NAMES)
def test_docstrings_lead_to_the_paper_and_their_example_runs(name: str) -> None:
    text = getdoc(NAMES[name]) or ""
    link = re.search(r"https://(arxiv\.org/abs|doi\.org)/\S", text)
    assert link, f"{name}: Reference: needs an https://arxiv.org/abs/ or https://doi.org/ address"
    example = DocTestParser().get_doctest(text, {"undrift": undrift}, name, None, None)
    shown = "".join(line.source for line in example.examples).lower().replace("/", "")
    assert name.lower() in shown, f"{name}: the docstring needs an example that names it"
    told: list[str] = []
    assert DocTestRunner().run(example, out=told.append).failed == 0, "".join(told)


def test_the_example_for_contributors_keeps_the_laws_and_its_steps_lead_somewhere() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Adding an alg")[2]
    (code,) = re.findall(r'^    """Recall:.*?(?=^\S)', text, flags=re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {"__name__": __name__}
    exec(dedent(code), names)
    undrift.check_algorithm(names["Recall"](), ["structure", "purity", "stillness", "rescaling"])
    paths = {*re.findall(r"`((?:src|tests)/\S+\.py)`", text)} - {"src/undrift/algorithms/recall.py"}
    assert len(paths) == 7
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("facts", [undrift.Client, undrift.RoundFacts])
def test_help_describes_every_fact(facts: type) -> None:
    described = re.findall(r"^(\w+) {2,}\S", getdoc(facts) or "", flags=re.MULTILINE)
    assert described == [field.name for field in fields(facts)]
