"""History: metrics of runs as a table, for notebooks and your own loops."""

from __future__ import annotations

import csv
import html
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from undrift.config import UndriftError, shortened, unknown
from undrift.federation.rounds import Round
from undrift.measure.quantities import QUANTITIES
from undrift.report.merge import merge
from undrift.report.read import read_run
from undrift.runs.entries import Row
from undrift.system.extras import require
from undrift.system.files import writing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN = 10
"""most rows that are printed"""


class History:
    """Rows of metrics, one per round; `label` and `seed` distinguish several runs.

        history = History()
        for round in rounds(...):
            history.add(round, accuracy=...)
        history["accuracy"]                 # one column, as an array
        history.plot("accuracy")            # a matplotlib figure

    Missing values are None in `rows` and NaN in arrays.
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]] = ()) -> None:
        self.rows: list[Row] = [{"label": "", "seed": 0} | dict(row) for row in rows]

    @classmethod
    def read(cls, folder: str | Path, *more: str | Path) -> History:
        """All evaluations in one or several run directories, which may still be running."""
        run = merge([read_run(Path(one)) for one in (folder, *more)])
        history = cls()
        for arm in run.arms:
            for seed, curve in arm.curves.items():
                columns = {k: v.tolist() for k, v in curve.values.items() if np.isfinite(v).any()}
                for number, t in enumerate(curve.rounds.tolist()):
                    row: Row = {"label": arm.label, "seed": seed, "round": t}
                    for name, column in columns.items():
                        row[name] = column[number] if math.isfinite(column[number]) else None
                    history.rows.append(row)
        return history

    def add(self, round: Round, /, *, label: str = "", seed: int = 0, **numbers: Any) -> None:
        """Add a round, with further metrics of your own.

        Bytes, steps, samples, seconds and dropped clients are totals: add every round, in order.
        """
        last = next(
            (r for r in reversed(self.rows) if (r["label"], r["seed"]) == (label, seed)), {}
        )
        if last and round.t != last["round"] + 1:
            raise UndriftError(
                f"round {round.t} after round {last['round']} of label={label!r}, seed={seed}: add "
                "every round, or totals would be wrong; give another run a label or seed of its own"
            )
        facts = {
            "train_loss": round.train_loss,
            "x_norm": float(round.server.x.norm()),
            "h_norm": None if round.correction is None else float(round.correction.norm()),
            "drift": round.drift,
            "gsi": round.gsi,
            "delivered": len(round.delivered),
        }
        totals = {
            "dropped": len(round.dropped),
            "bytes_down": round.bytes_down,
            "bytes_up": round.bytes_up,
            "steps": round.steps,
            "samples": round.samples,
            "seconds": round.seconds,
        }
        facts |= {name: last.get(name, 0) + value for name, value in totals.items()}
        for name in numbers:
            if name in facts or name == "round":
                raise UndriftError(
                    f"{name}={numbers[name]!r}: every row has it; choose another name"
                )
        own = {name: _number(name, value) for name, value in numbers.items()}
        found = {k: v if v is None or math.isfinite(v) else None for k, v in (own | facts).items()}
        self.rows.append({"label": label, "seed": seed, "round": round.t} | found)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    @property
    def columns(self) -> list[str]:
        """The names of all columns."""
        return list(dict.fromkeys(name for row in self.rows for name in row))

    @property
    def last(self) -> Row:
        """The last row."""
        if not self.rows:
            raise UndriftError("the history is empty; add rounds to it first")
        return self.rows[-1]

    def __getitem__(self, column: str) -> np.ndarray:
        """A column as an array; "bytes" is the sum of both directions."""
        parts = QUANTITIES[column].sum_of if column in QUANTITIES else ()
        if parts and column not in self.columns:
            return np.asarray(np.sum([self[part] for part in parts], axis=0))
        self._refuse_unknown(column)
        values = [row.get(column) for row in self.rows]
        return np.array([math.nan if value is None else value for value in values])

    def where(self, **equal: Any) -> History:
        """The rows that have these values: `where(label="AdaBest", seed=0)`."""
        for column in equal:
            self._refuse_unknown(column)
        return History(r for r in self.rows if all(r.get(k) == v for k, v in equal.items()))

    def _refuse_unknown(self, column: str) -> None:
        if column not in self.columns:
            raise UndriftError(unknown("column", column, self.columns))

    def to_pandas(self) -> Any:
        """The rows as a pandas DataFrame."""
        return require("pandas", "", "to_pandas").DataFrame(self.rows, columns=self.columns)

    def to_polars(self) -> Any:
        """The rows as a polars DataFrame."""
        table = {name: [row.get(name) for row in self.rows] for name in self.columns}
        return require("polars", "data", "to_polars").DataFrame(table, strict=False)

    def to_csv(self, path: str | Path) -> None:
        """Write the rows to a CSV file."""
        with writing(path), Path(path).open("w", encoding="utf-8", newline="") as file:
            table = csv.DictWriter(file, self.columns)
            table.writeheader()
            table.writerows(self.rows)

    def plot(
        self, *metrics: str, x: str = "round", smooth: float = 0.0, ax: Axes | None = None
    ) -> Figure:
        """A figure with one panel per metric (default: accuracy, else loss) and one line per label.

        Lines are means over seeds, at the rounds that all seeds have; bands are one sd.

        x       round, bytes, flops, seconds or any other column
        smooth  weight of the previous average in an exponential moving average, in [0, 1)
        ax      draw into these axes instead of a new figure
        """
        require("matplotlib", "report", "plot")
        from undrift.report.history_plots import plot_history

        usual = "accuracy" if "accuracy" in self.columns or not self.rows else "loss"
        return plot_history(self, metrics or (usual,), x, smooth, ax)

    def __repr__(self) -> str:
        names, cells = self._shown()
        columns = list(zip(names, *cells, strict=True))
        widths = [max(map(len, column)) for column in columns]
        places = [str.ljust if name == "label" else str.rjust for name in names]
        lines = [
            "  ".join(p(text, w) for p, text, w in zip(places, row, widths, strict=True)).rstrip()
            for row in (names, *cells)
        ]
        return "\n".join([f"History: {self._size()}", *lines])

    def _repr_html_(self) -> str:
        names, cells = self._shown()
        places = ["left" if name == "label" else "right" for name in names]

        def line(tag: str, row: list[str]) -> str:
            style = "padding:.2em .8em;white-space:nowrap;text-align"
            return "".join(
                f'<{tag} style="{style}:{place}">{html.escape(text)}</{tag}>'
                for text, place in zip(row, places, strict=True)
            )

        body = "".join(f"<tr>{line('td', row)}</tr>" for row in cells)
        return (
            '<div style="overflow-x:auto"><table style="border-collapse:collapse;'
            f'font-variant-numeric:tabular-nums"><thead><tr>{line("th", names)}</tr></thead>'
            f"<tbody>{body}</tbody></table></div><p>{self._size()}</p>"
        )

    def _size(self) -> str:
        return f"{len(self)} row{'' if len(self) == 1 else 's'}"

    def _shown(self) -> tuple[list[str], list[list[str]]]:
        """Column names and cells of the last rows, without a label or seed that is never set."""
        plain = {"label": {""}, "seed": {0}}
        names = [n for n in self.columns if {r.get(n) for r in self.rows} != plain.get(n)]
        rows = self.rows[-SHOWN:]
        cells = [[_text(row.get(name)) for name in names] for row in rows]
        return names, cells if len(rows) == len(self) else [["…"] * len(names), *cells]


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.0f}" if value.is_integer() and abs(value) < 1e15 else f"{value:.4g}"
    return str(value)


def _number(name: str, value: Any) -> Any:
    """A Python number, also from a tensor or an array with one element."""
    try:
        inner = value.item() if hasattr(value, "item") else value
    except (RuntimeError, ValueError):
        inner = value
    if inner is not None and (isinstance(inner, bool) or not isinstance(inner, int | float)):
        raise UndriftError(f"{name}={shortened(value)}: must be a number")
    return inner
