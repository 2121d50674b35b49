"""`undrift list`: what there is to choose from."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from rich.console import Console
from rich.table import Table

KINDS = {
    "algorithms": ("undrift.experiment.registry", "NAMES"),
    "data": ("undrift.data.sources", "SOURCES"),
    "models": ("undrift.models", "MODELS"),
    "partitions": ("undrift.data.partition.partitions", "PARTITIONS"),
    "samplers": ("undrift.federation.sampling", "SAMPLERS"),
}
"""where the lists are"""


def list_(
    kind: Literal["algorithms", "data", "models", "partitions", "samplers"] = "algorithms",
    *,
    json_: Annotated[bool, Parameter("--json")] = False,
) -> None:
    """List algorithms (with their parts and optimisers), data sets, models, partitions or samplers.

    Example: undrift list partitions

    Parameters
    ----------
    kind
        What to list.
    json_
        Print JSON.
    """
    rows = [
        {
            "name": name,
            "parameters": _signature(made),
            "about": (inspect.getdoc(made) or "").split("\n")[0],
        }
        for name, made in known(kind).items()
    ]
    if json_:
        sys.stdout.write(json.dumps(rows, indent=1) + "\n")
        return
    table = Table("name", box=None, pad_edge=False)
    table.add_column("parameters", overflow="fold")
    table.add_column("about")
    for row in rows:
        table.add_row(f"[bold]{row['name']}[/]", row["parameters"], row["about"])
    Console().print(table)


def known(kind: str) -> Mapping[str, Any]:
    """All there is of a kind, by name."""
    module, attribute = KINDS[kind]
    found: Mapping[str, Any] = getattr(import_module(module), attribute)
    return found


def _signature(made: Any) -> str:
    shown = []
    for name, parameter in inspect.signature(made).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        default = parameter.default
        shown.append(name if default is parameter.empty else f"{name}={default!r}")
    return ", ".join(shown)
