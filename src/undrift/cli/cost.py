"""`undrift cost`: what algorithms send, keep and compute."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console

from undrift.cli.whole import Whole
from undrift.config import UndriftError
from undrift.config.choices import Convention
from undrift.experiment.registry import algorithm


def cost(
    *algorithms: Annotated[
        str, Parameter(help="Algorithms, such as adabest or 'FedGLAD(fedadam)'.")
    ],
    parameters: Whole | None = None,
    convention: Convention = "paper",
    json_: Annotated[bool, Parameter("--json")] = False,
    markdown_: Annotated[bool, Parameter("--markdown")] = False,
) -> None:
    """Show what algorithms cost; without any, the cost tables of the AdaBest and FedGBO papers.

    Example: undrift cost "FedGLAD(fedadam)" adabest --parameters 91226

    Parameters
    ----------
    parameters
        Size of the model, to see bytes as well (4 per parameter).
    convention
        How FedGBO's tables count a local step: paper (its Table 9), prose (the text beside it) or
        exact_ops (what our code does).
    json_
        Print JSON.
    markdown_
        Print Markdown.
    """
    if parameters is not None and parameters < 1:
        raise UndriftError(f"--parameters {parameters}: must be a whole number >= 1")
    named = [algorithm(name) for name in algorithms]

    # only now, since this takes seconds
    from undrift.cli.costs_shown import Costs, in_markdown, show, sizes_table, work_table
    from undrift.papers.cost_tables import TABLES, table

    data: list[dict[str, Any]]
    if named:
        costs = [Costs.of(made, parameters) for made in named]
        tables = [sizes_table(costs), work_table(costs)]
        data = [one.data() for one in costs]
    else:
        tables = [table(kind, convention) for kind in TABLES]
        data = [dataclasses.asdict(one) for one in tables]
    if json_:
        sys.stdout.write(json.dumps(data, indent=1) + "\n")
    elif markdown_:
        sys.stdout.write("\n\n".join(in_markdown(one) for one in tables) + "\n")
    else:
        console = Console(highlight=False, markup=False)
        for one in tables:
            show(one, console)
