"""Items: a table or figure of a paper, as a TOML file.

The cells of an item are all combinations of the options of its axes. A cell's settings are those of
[experiment], changed by its options, then by the scale, then by the row. `{name}` in a text stands
for the value of `name` in `let`, which options, scales and rows change in the same order.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from functools import cache, cached_property
from typing import Any

from undrift.config import UndriftError, at, shortened, unknown
from undrift.core import Algorithm
from undrift.experiment.experiment import Experiment
from undrift.experiment.registry import algorithm
from undrift.experiment.settings import TEXTS, named
from undrift.experiment.toml import Place
from undrift.papers import FULL, SMOKE
from undrift.papers.claims import Claim
from undrift.papers.layers import Table, filled, matches, merged, pruned
from undrift.papers.measures import Measure, known, measure

KINDS = {
    "experiment": "is run",
    "cost": "is computed from the algorithms",
    "stated": "has nothing to run",
}
"""what an item is → what that means"""

TINY: dict[str, Any] = {
    "data": "digits",
    "model": "MLP(hidden=(8,))",
    "partition": "Dirichlet(clients=12, alpha=1.0)",
    "rounds": 2,
    "every": 1,
    "test_subset": 50,
    "seeds": 1,
    "local": {"steps": 2, "epochs": None, "batch_size": 8},
}
"""changes of the scale "smoke": two rounds on digits, to see that a command works; cohorts and
validation clients are few then, too"""

OWN = ("let", "rows", "note", "ours", "seeds")
"""what options and scales may hold beside settings of the experiment"""

FIELDS = {one.name for one in fields(Experiment)} - {"algorithms", "seeds"}
"""settings of an experiment that an item may give"""

TYPES: dict[tuple[type, ...], str] = {
    (str,): "source claim kind like table held",
    (dict,): "experiment let axes rows measures printed scales",
    (list, tuple): "claims curves only_cells only_rows notes",
    (int,): "seeds",
    (int, float): "tolerance",
}
"""types → the entries of an item that must have one of them"""


def trial(experiment: Experiment, made: Algorithm, seed: int) -> str:
    """The identity of a trial: that of the experiment with it alone."""
    return replace(experiment, algorithms=(made,), seeds=(seed,)).hash


@dataclass(frozen=True)
class Row:
    """A line of a paper's table: its label, and our experiment with its algorithm.

    by    the measure by which one of several algorithms is chosen, as the paper chose it
    ours  whether it is an addition of ours, without a printed value
    """

    label: str
    experiment: Experiment
    by: str = ""
    ours: bool = False

    @property
    def algorithms(self) -> tuple[Algorithm, ...]:
        """One, or those of which one is to be chosen."""
        return self.experiment.algorithms

    def trial(self, made: Algorithm, seed: int) -> str:
        """The identity of one of its trials."""
        return trial(self.experiment, made, seed)


@dataclass(frozen=True)
class Cell:
    """One setting of an item."""

    id: str
    rows: tuple[Row, ...]
    note: str = ""
    ours: bool = False
    """whether the paper does not have this setting"""

    def only(self, patterns: Sequence[str]) -> Cell:
        """The cell with some of its rows."""
        kept = [row for row in self.rows if any(fnmatchcase(row.label, one) for one in patterns)]
        return replace(self, rows=tuple(kept))

    def trials(self) -> Iterator[tuple[Row, Algorithm, int]]:
        """All trials, by row, algorithm and seed."""
        for row in self.rows:
            yield from (
                (row, *one) for one in itertools.product(row.algorithms, row.experiment.seeds)
            )

    def experiments(self) -> list[Experiment]:
        """The experiments to run: rows with the same settings share one."""
        found: dict[Experiment, dict[Algorithm, None]] = {}
        for row in self.rows:
            same = replace(row.experiment, algorithms=row.algorithms[:1], stop=())
            key = next(
                (one for one in found if replace(one, algorithms=same.algorithms) == same), same
            )
            found.setdefault(key, {}).update(dict.fromkeys(row.algorithms))
        return [replace(one, algorithms=tuple(made)) for one, made in found.items()]


@dataclass(frozen=True)
class Item:
    """A table or figure of a paper.

    source     where it is in the paper
    claim      what it claims, in one sentence
    kind       one of KINDS
    experiment, let, axes, rows   settings, see above
    measures   name → what is read off a curve; the first one is printed in the paper
    seeds      repetitions in the paper
    claims     what is judged, fixed before the run
    curves     metrics that the paper draws over rounds
    tolerance  how far a value may be from the printed one, in units of that
    printed    cell → row → printed mean, and its standard deviation or None
    scales     name → changes that keep the claim testable at less cost
    only_cells, only_rows   patterns of the cells and rows that exist, if not all do
    like       another item of the paper, whose settings this one changes: experiment, let, axes,
               rows and scales are merged, other entries are taken over unless given
    table      name of a cost table
    held       what stands for the item, where there is nothing to run
    notes      what a reader should know
    """

    paper: str
    name: str
    source: str
    claim: str
    kind: str
    experiment: Table = field(default_factory=dict)
    let: Table = field(default_factory=dict)
    axes: dict[str, dict[str, Table]] = field(default_factory=dict)
    rows: Table = field(default_factory=dict)
    measures: dict[str, Any] = field(default_factory=dict)
    seeds: int = 5
    claims: Sequence[Any] = ()
    curves: Sequence[str] = ()
    tolerance: float = 1.0
    printed: dict[str, Any] = field(default_factory=dict)
    scales: dict[str, Table] = field(default_factory=dict)
    only_cells: Sequence[str] = ()
    only_rows: Sequence[str] = ("*",)
    like: str = ""
    table: str = ""
    held: str = ""
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        for types, names in TYPES.items():
            for name in names.split():
                if not isinstance(getattr(self, name), types):
                    with at(name):
                        raise UndriftError(f"{name} must be a {types[0].__name__}")
        if self.kind not in KINDS:
            with at("kind"):
                raise UndriftError(unknown("kind", str(self.kind), KINDS))
        for kind, name in {"cost": "table", "stated": "held"}.items():
            if bool(getattr(self, name)) != (kind == self.kind):
                with at(name):
                    raise UndriftError(f"{name} is for the kind {kind}, and this is {self.kind}")
        if self.kind != "experiment":
            return
        for name, text in self.measures.items():
            with at("measures", name):
                self.measures[name] = measure(text)
        for place, metric in enumerate(self.curves):
            with at("curves", place):
                known(metric)
        if not self.measures:
            raise UndriftError("measures must be given, such as accuracy = \"Last('accuracy')\"")
        with at("experiment"):
            _check(self.experiment)
        cells = {cell.id: cell for cell in self.cells()}
        labels = {row.label for cell in cells.values() for row in cell.rows}
        made = []
        for place, claim in enumerate(self.claims):
            with at("claims", place):
                made.append(Claim.of(claim, labels, self.measures))
        object.__setattr__(self, "claims", tuple(made))
        for id, values in self.printed.items():
            with at("printed", id):
                if id not in cells:
                    raise UndriftError(unknown("cell", id, cells))
                self._check_printed(values, cells[id])

    def _check_printed(self, values: Any, cell: Cell) -> None:
        labels = [row.label for row in cell.rows]
        for label, value in values.items():
            with at(label):
                if label not in labels:
                    raise UndriftError(unknown("row", label, labels))
                mean, *sd = value if isinstance(value, list) else [value]
                if len(sd) > 1 or not all(isinstance(one, int | float) for one in (mean, *sd)):
                    raise UndriftError(f"{shortened(value)}: give a number, or [mean, sd]")
                values[label] = (float(mean), float(sd[0]) if sd else None)

    @property
    def id(self) -> str:
        return f"{self.paper}/{self.name}"

    @property
    def main(self) -> tuple[str, Measure]:
        """Name of the measure that the paper prints, and the measure."""
        return next(iter(self.measures.items()))

    @cached_property
    def _options(self) -> list[tuple[str, dict[Place, Table]]]:
        """Id of each cell, and the options that make it, by their place in the file."""
        found: list[tuple[str, dict[Place, Table]]] = []
        axes = [[(axis, *one) for one in some.items()] for axis, some in self.axes.items() if some]
        for choice in itertools.product(*axes):
            id = ",".join(name for _, name, _ in choice) or "all"
            if not self.only_cells or any(matches(id, pattern) for pattern in self.only_cells):
                found.append((id, {("axes", axis, name): made for axis, name, made in choice}))
        return found

    @property
    def ids(self) -> list[str]:
        """The ids of all cells."""
        return [id for id, _ in self._options]

    def cells(self, scale: str = FULL, seeds: int | None = None, pattern: str = "") -> list[Cell]:
        """The cells whose id fits the pattern, at a scale and with so many seeds."""
        scales = {FULL: {}, SMOKE: TINY} | self.scales
        if scale not in scales:
            raise UndriftError(f"{self.id}: {unknown('scale', scale, scales)}")
        last, number = {("scales", scale): scales[scale]}, scales[scale].get("seeds", self.seeds)
        return [
            self._cell(id, options | last, seeds or number, few=scale == SMOKE)
            for id, options in self._options
            if matches(id, pattern)
        ]

    def _cell(self, id: str, layers: Mapping[Place, Table], seeds: int, few: bool) -> Cell:
        settings, let, rows, notes = self.experiment, self.let, self.rows, []
        for place, layer in layers.items():
            with at(*place):
                _check(layer)
            settings = merged(settings, {k: v for k, v in layer.items() if k not in OWN})
            let = merged(let, layer.get("let", {}))
            rows = merged(rows, layer.get("rows", {}))
            notes += [layer["note"]] if "note" in layer else []
        made = [
            self._row(label, row, settings, let, seeds, few)
            for label, row in rows.items()
            if any(fnmatchcase(label, pattern) for pattern in self.only_rows)
        ]
        ours = any(layer.get("ours") for layer in layers.values())
        return Cell(id, tuple(made), " ".join(notes), ours)

    def _row(self, label: str, row: Any, settings: Table, let: Table, seeds: int, few: bool) -> Row:
        row = {"algorithm": row} if isinstance(row, str) else row
        with at("rows", label):
            known = ("algorithm", "settings", "by", "ours", "let")
            for name in row:
                if name not in known:
                    with at(name):
                        raise UndriftError(unknown("part of a row", name, known))
            if "algorithm" not in row:
                raise UndriftError("algorithm must be given")
            named = row["algorithm"]
            texts = named if isinstance(named, list) else [named]
            if len(texts) > 1 and row.get("by") not in self.measures:
                raise UndriftError(f"by must be one of the measures: {', '.join(self.measures)}")
            let = merged(let, row.get("let", {}))
            made = filled(merged(settings, row.get("settings", {})), let)
            named_by = [_algorithm(text) for text in filled(texts, let)]
            made = pruned(made) | {"algorithms": named_by, "seeds": [*range(seeds)]}
            if few:
                made |= _few(made)
        with at("experiment"):
            made = {name: _object(name, value) for name, value in made.items()}
            experiment = Experiment(**made)
        return Row(label, experiment, row.get("by", ""), row.get("ours", False))


def _check(layer: Any) -> None:
    """Raise unless an option or a scale is a table of settings."""
    if not isinstance(layer, dict):
        raise UndriftError("give a table of settings")
    for name in layer:
        if name not in (*FIELDS, *OWN):
            with at(name):
                raise UndriftError(unknown("setting", name, FIELDS | {*OWN}))


def _object(name: str, value: Any) -> Any:
    """The object that a setting's text names; each text is parsed once."""
    return _named(name, value) if name in TEXTS and isinstance(value, str) else value


_named, _algorithm = cache(named), cache(algorithm)


def _few(settings: Table) -> Table:
    """Settings for the few clients of the scale "smoke", whatever a row has."""
    sampler = named("sampler", settings["sampler"])
    if hasattr(sampler, "clients"):
        sampler = replace(sampler, clients=min(sampler.clients, 3))
    validation = min(settings.get("validation", 0), 2)
    return {"sampler": sampler, "validation": validation, "data": TINY["data"]}
