"""`undrift list`: what there is to choose from, and all about one of them."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.table import Table
from rich.text import Text

from undrift.cli.described import REQUIRED, Described
from undrift.config import UndriftError, own, unknown
from undrift.experiment.registry import GROUPS, algorithm, around_fedavg

if TYPE_CHECKING:
    from undrift.cli.costs_shown import Costs

KINDS = {
    "algorithms": ("algorithm", "undrift.experiment.registry", "NAMES"),
    "data": ("data set", "undrift.data.sources", "SOURCES"),
    "models": ("model", "undrift.models", "MODELS"),
    "partitions": ("partition", "undrift.data.partition.partitions", "PARTITIONS"),
    "samplers": ("sampler", "undrift.federation.sampling", "SAMPLERS"),
    "stops": ("stop rule", "undrift.measure.stopping", "STOPS"),
    "engines": ("engine", "undrift.engines", "ENGINES"),
}
"""what one of them is called, and where all are"""

TITLES = {
    "algorithms": "Algorithms",
    "parts": "Parts, which go around an algorithm",
    "compositions": "Names for compositions",
    "optimisers": "Optimisers, for ServerOpt, LocalOpt, FedGBO, MFL and Mime; Plateau for AdaBest",
}
"""titles of the groups of algorithms"""


def list_(
    kind: str = "algorithms",
    name: str | None = None,
    *,
    json_: Annotated[bool, Parameter("--json")] = False,
) -> None:
    """List algorithms (with their parts and optimisers), data sets, models, partitions, samplers,
    stop rules or engines.

    Example: undrift list algorithms adabest

    With a name: what it does, its parameters with their defaults, ranges and what `undrift tune`
    searches, what an algorithm costs, and the paper. It may be your own, ./mine.py:Half.

    Parameters
    ----------
    kind
        What to list: algorithms, data, models, partitions, samplers, stops or
        engines. A name will do, too.
    name
        What to describe.
    json_
        Print JSON.
    """
    if name is None and kind not in KINDS:
        kind, name = _kind_of(kind), kind
    elif kind not in KINDS:
        raise UndriftError(unknown("kind", kind, KINDS))
    if name is None:
        _list(kind, json_)
    else:
        _describe(kind, name, json_)


def known(kind: str) -> Mapping[str, Callable[..., Any]]:
    """All there is of a kind, by name."""
    _, module, attribute = KINDS[kind]
    found: Mapping[str, Callable[..., Any]] = getattr(import_module(module), attribute)
    return found


def _kind_of(name: str) -> str:
    """The kind that has this name; users' own are taken for algorithms."""
    if any(own.references(name)):
        return "algorithms"
    for kind in KINDS:
        if _fold(name) in map(_fold, known(kind)):
            return kind
    names = [one for kind in KINDS for one in known(kind)]
    raise UndriftError(unknown("kind or name", name, [*KINDS, *names], KINDS))


def _groups(kind: str) -> Mapping[str, Mapping[str, Callable[..., Any]]]:
    return GROUPS if kind == "algorithms" else {kind: known(kind)}


def _list(kind: str, json_: bool) -> None:
    groups = {
        group: [
            _short(name, names) for name, _ in sorted(names.items(), key=lambda one: one[0].lower())
        ]
        for group, names in _groups(kind).items()
    }
    if json_:
        rows = [
            {"name": one.name, "group": group, "parameters": one.signature, "about": one.about}
            for group, some in groups.items()
            for one in some
        ]
        sys.stdout.write(json.dumps(rows, indent=1) + "\n")
        return
    console = Console(highlight=False, markup=False)
    width = max(len(one.name) for some in groups.values() for one in some)
    for group, some in groups.items():
        if len(groups) > 1:
            console.print(TITLES[group], style="bold underline")
        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column(min_width=width, style="bold")
        table.add_column(overflow="fold")
        table.add_column()
        for one in some:
            table.add_row(one.name, Text(one.signature), Text(one.about))
        console.print(table)
        console.print()
    console.print(f"undrift list {kind} NAME: all about one of them", style="dim")


def _short(name: str, names: Mapping[str, Callable[..., Any]]) -> Described:
    """What there is to say of a name; of a second name, whose it is."""
    about = Described.of(name, names[name])
    first = next(one for one, thing in names.items() if thing is names[name])
    return about if first == name else replace(about, description=f"Another name of {first}.")


def _describe(kind: str, name: str, json_: bool) -> None:
    found = own.REFERENCE.fullmatch(name)
    if found:
        group, thing = kind, own.load(found["place"], found["name"])
        thing = around_fedavg(thing) if kind == "algorithms" else thing
    else:
        name, group, thing = _find(kind, name)
    about = Described.of(name, thing)
    costs = _costs(name) if group in ("algorithms", "parts", "compositions") else None
    made = repr(algorithm(name)) if group == "compositions" else None
    if json_:
        cost = costs.data() if costs else None
        data = {"kind": kind, "group": group, **about.data(), "made_of": made, "cost": cost}
        sys.stdout.write(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
        return
    console = Console(highlight=False, markup=False)
    console.print(name, style="bold")
    console.print(about.description or "There is no docstring.")
    if made:
        console.print(f"Made of: {made}")
    if about.parameters:
        tuned = any(one.tune for one in about.parameters)
        heads = ("parameter", "default", "values", *(["tuned over"] if tuned else []))
        table = Table(*heads, box=None, pad_edge=False)
        for one in about.parameters:
            default = "must be given" if one.default is REQUIRED else repr(one.default)
            table.add_row(*map(Text, (one.name, default, one.values, one.tune)[: len(heads)]))
        console.print()
        console.print(table)
    if costs:
        console.print()
        costs.show(console)
    if about.reference:
        console.print(f"\nReference: {about.reference}")


def _costs(name: str) -> Costs | None:
    """What an algorithm costs; None where it cannot be made or run as it stands."""
    from undrift.cli.costs_shown import Costs  # only now, since this takes seconds

    try:
        return Costs.of(algorithm(name), None)
    except Exception:  # whatever own code may raise; `undrift check` tells it
        return None


def _find(kind: str, name: str) -> tuple[str, str, Callable[..., Any]]:
    for group, names in _groups(kind).items():
        for one, thing in names.items():
            if _fold(one) == _fold(name):
                return one, group, thing
    raise UndriftError(unknown(KINDS[kind][0], name, known(kind)))


def _fold(name: str) -> str:
    return re.sub(r"[\W_]", "", name.lower())
