"""`undrift cost`: what algorithms send, keep and compute."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from typing import Annotated, Any

from cyclopts import Parameter
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from undrift.config import UndriftError
from undrift.core import Algorithm
from undrift.cost import Operations, Size, formula, messages, operations, storage
from undrift.cost_tables import LEGEND, TABLES, Convention, Row, Table, markdown, table, text
from undrift.names import algorithm


def cost(
    *algorithms: Annotated[
        str, Parameter(help="Algorithms, such as adabest or 'FedGLAD(fedadam)'.")
    ],
    parameters: int | None = None,
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
    data: list[dict[str, Any]]
    if algorithms:
        costs = [_Costs.of(algorithm(name), parameters) for name in algorithms]
        tables = [_sizes(costs), _work(costs)]
        data = [one.data() for one in costs]
    else:
        tables = [table(kind, convention) for kind in TABLES]
        data = [dataclasses.asdict(one) for one in tables]
    if json_:
        sys.stdout.write(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    elif markdown_:
        sys.stdout.write("\n\n".join(_markdown(one) for one in tables) + "\n")
    else:
        console = Console(highlight=False, markup=False)
        for one in tables:
            _show(one, console)


@dataclasses.dataclass(frozen=True)
class _Costs:
    """Everything there is to know about one algorithm's costs."""

    algorithm: Algorithm
    n: int
    sizes: dict[str, Size]
    bytes: dict[str, int]
    operations: Operations

    @classmethod
    def of(cls, made: Algorithm, parameters: int | None) -> _Costs:
        n = parameters or 1000
        sent, kept = messages(made, n), storage(made, n)
        sizes = {
            "down": sent.down,
            "up": sent.up,
            "client_keeps": kept.client,
            "server_keeps": kept.server,
        }
        weights = {"bytes_down": sent.down.bytes(), "bytes_up": sent.up.bytes()}
        return cls(made, n, sizes, weights if parameters else {}, operations(made))

    def data(self) -> dict[str, Any]:
        sizes = {name: size.multiples(self.n) for name, size in self.sizes.items()}
        return {
            "algorithm": repr(self.algorithm),
            **{name: {"vectors": v, "numbers": k} for name, (v, k) in sizes.items()},
            **self.bytes,
            **dataclasses.asdict(self.operations),
        }


def _sizes(costs: Sequence[_Costs]) -> Table:
    rows: list[Row] = []
    for one in costs:
        row: Row = {"algorithm": repr(one.algorithm)}
        row |= {name: _multiples(*size.multiples(one.n)) for name, size in one.sizes.items()}
        rows.append(row | one.bytes)
    about = "n parameters; beside multiples of n, single numbers"
    return Table("Messages of a client, and memory between rounds", rows, (about,))


def _work(costs: Sequence[_Costs]) -> Table:
    rows: list[Row] = [
        {
            "algorithm": repr(one.algorithm),
            "client": formula(one.operations.client),
            "server": formula(one.operations.server),
        }
        for one in costs
    ]
    return Table("Operations in a round", rows, (LEGEND,))


def _multiples(vectors: int, numbers: int) -> str:
    """2 vectors and 1 number are "2n + 1"."""
    parts = ["n" if vectors == 1 else f"{vectors}n"] if vectors else []
    return " + ".join([*parts, *([str(numbers)] if numbers else [])]) or "0"


def _markdown(one: Table) -> str:
    notes = "\n".join(f"- {note}" for note in one.notes)
    return "\n\n".join(filter(None, (f"**{one.title}**", markdown(one.rows), notes)))


def _show(one: Table, console: Console) -> None:
    drawn = RichTable(box=SIMPLE_HEAD, pad_edge=False)
    for column in one.rows[0]:
        drawn.add_column(column.replace("_", " "), overflow="fold")
    for row in one.rows:
        drawn.add_row(*(Text(text(value)) for value in row.values()))
    console.print(one.title, style="bold")
    console.print(drawn)
    for note in one.notes:
        console.print(f"- {note}", style="dim")
    console.print()
