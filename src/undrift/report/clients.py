"""Results of single clients at the end of training: a table of clients and algorithms."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from undrift.later import np
from undrift.measure.quantities import QUANTITIES, Quantity
from undrift.report.read import Arm, Run

MOST = 2000
"""clients that a table has at most: of more, those with the worst and the best results"""

SIZES = ("samples", "measured_on")
PERSONAL = "personal_"


@dataclass(frozen=True)
class ClientColumn:
    """The results of one algorithm, by name of the client.

    place     of the algorithm in the report
    personal  whether they are those after some local steps
    """

    place: int
    personal: bool
    quantity: Quantity
    values: Mapping[str, float]


@dataclass(frozen=True)
class ClientTable:
    """Clients that some algorithms have in common.

    runs     names of their runs
    seeds    those that results are averaged over
    clients  their names, or numbers if they have none
    total    how many there are
    sizes    samples that each trains on, and is measured on
    """

    runs: Sequence[str]
    seeds: Sequence[int]
    clients: Sequence[str]
    total: int
    sizes: Sequence[Mapping[str, float]]
    columns: Sequence[ClientColumn]


def client_tables(run: Run) -> list[ClientTable]:
    """A table for each set of clients of which single results are known.

    Seeds are averaged over if clients have names: others are made anew for every seed, and those of
    the first one are shown.
    """
    tables: dict[str, ClientTable] = {}
    place = 0
    for member in run.members:
        rows = [row for one in member.pooled or (member,) for row in one.client_rows]
        named = all(row.get("name") for row in rows)
        seeds = member.seeds if named else member.seeds[:1]
        known = {str(seed) for seed in seeds}
        used = [row for row in rows if row["seed"] in known]
        key = str(member.experiment.get("checksum", member.name))
        columns: list[ClientColumn] = []
        for arm in member.arms:
            columns += _columns(arm, place, used)
            place += 1
        if not columns:
            continue
        if key in tables:
            old = tables[key]
            runs, columns = [*old.runs, member.name], [*old.columns, *columns]
            tables[key] = replace(old, runs=runs, columns=columns)
        else:
            sizes = [_means(used, name) for name in SIZES]
            clients = list(dict.fromkeys(_client(row) for row in used))
            shown = _ends(clients, columns[0])
            tables[key] = ClientTable([member.name], seeds, shown, len(clients), sizes, columns)
    return list(tables.values())


def _ends(clients: list[str], column: ClientColumn) -> list[str]:
    """The clients, or of very many those with the lowest and the highest results."""
    if len(clients) <= MOST:
        return clients
    ranked = sorted(column.values, key=lambda client: column.values[client])
    return list(dict.fromkeys([*ranked[: MOST // 2], *ranked[-MOST // 2 :]]))


def _columns(arm: Arm, place: int, rows: Iterable[Mapping[str, str]]) -> list[ClientColumn]:
    """The results of an algorithm; accuracies, or losses where there are none."""
    own = [row for row in rows if row["algorithm"] == arm.name]
    found = []
    for prefix in ("", PERSONAL):
        for name in ("accuracy", "loss"):
            if values := _means(own, prefix + name):
                found.append(ClientColumn(place, bool(prefix), QUANTITIES[name], values))
                break
    return found


def _means(rows: Iterable[Mapping[str, str]], name: str) -> dict[str, float]:
    """Client → mean of a column over seeds, without clients that have no value in it."""
    values: dict[str, dict[str, float]] = defaultdict(dict)
    for row in rows:
        value = _number(row.get(name))
        if math.isfinite(value):
            values[_client(row)][row["seed"]] = value
    return {client: float(np.mean(list(each.values()))) for client, each in values.items()}


def _client(row: Mapping[str, str]) -> str:
    return row.get("name") or row.get("client") or ""


def _number(text: str | None) -> float:
    try:
        return float(text or "nan")
    except ValueError:  # the file was edited
        return math.nan
