"""What `undrift cost` shows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from undrift.core import Algorithm
from undrift.measure.cost import Operations, Size, formula, messages, operations, storage
from undrift.papers.cost_tables import LEGEND, Row, Table, markdown, text


@dataclasses.dataclass(frozen=True)
class Costs:
    """Everything there is to know about one algorithm's costs."""

    algorithm: Algorithm
    n: int
    sizes: dict[str, Size]
    bytes: dict[str, int]
    operations: Operations

    @classmethod
    def of(cls, made: Algorithm, parameters: int | None) -> Costs:
        """The costs of an algorithm; in bytes too, where the size of the model is known."""
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

    def multiples(self) -> dict[str, str]:
        """What is sent and kept, as multiples of n."""
        return {name: _multiples(*size.multiples(self.n)) for name, size in self.sizes.items()}

    @property
    def secagg(self) -> str:
        """Whether secure aggregation could hide single uploads: "yes" if the server needs sums."""
        return "no" if self.algorithm.holistic else "yes"

    def data(self) -> dict[str, Any]:
        """As plain data."""
        sizes = {name: size.multiples(self.n) for name, size in self.sizes.items()}
        return {
            "algorithm": repr(self.algorithm),
            **{name: {"vectors": v, "numbers": k} for name, (v, k) in sizes.items()},
            "secagg": self.secagg,
            **self.bytes,
            **dataclasses.asdict(self.operations),
        }

    def show(self, console: Console) -> None:
        """The costs as a small table."""
        sizes, done = self.multiples(), self.operations
        table = RichTable("cost of a round", "client", "server", box=None, pad_edge=False)
        table.add_row("sends", sizes["up"], f"{sizes['down']} to each client")
        table.add_row("keeps", sizes["client_keeps"], sizes["server_keeps"])
        table.add_row("computes", formula(done.client), formula(done.server))
        table.add_row("secure aggregation", self.secagg)
        console.print(table)
        console.print(LEGEND, style="dim")


def sizes_table(costs: Sequence[Costs]) -> Table:
    """What is sent and kept."""
    rows: list[Row] = []
    for one in costs:
        row: Row = {"algorithm": repr(one.algorithm)}
        rows.append(row | one.multiples() | {"secagg": one.secagg} | one.bytes)
    notes = (
        "n parameters; beside multiples of n, single numbers",
        "secagg: whether the server needs sums only, so that secure aggregation can hide uploads",
    )
    return Table("Messages of a client, and memory between rounds", rows, notes)


def work_table(costs: Sequence[Costs]) -> Table:
    """What is computed."""
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


def in_markdown(one: Table) -> str:
    """A table with its title and notes."""
    notes = "\n".join(f"- {note}" for note in one.notes)
    return "\n\n".join(filter(None, (f"**{one.title}**", markdown(one.rows), notes)))


def show(one: Table, console: Console) -> None:
    """The same on a terminal."""
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
