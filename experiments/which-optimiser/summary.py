"""Table and figure of docs/howto/choosing.md: python -m experiments.which-optimiser.summary [OUT]

OUT has the cells that grid.py ran; without it, the ledgers in results/ are read. Of the two step
sizes, the one with the better mean accuracy on validation clients counts.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks.tables import between
from undrift.report.drawing import styled
from undrift.report.palette import ink

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"
RESULTS = HERE / "results"
CLIENTS, SKEWS = ("1", "5", "10", "100"), ("iid", "0.3", "0.03")
NAMES = {
    "AdaBest(mu=0.02, beta=0.96)": "AdaBest(0.96)",
    "AdaBest(mu=0.02, beta='auto')": "AdaBest(auto)",
}
Cell = dict[str, tuple[float, float, float]]
"""algorithm → step size, mean and standard deviation of the test accuracy in percent"""


def read(path: Path) -> Cell:
    """The results of a cell."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    found: Cell = {}
    for name in dict.fromkeys(line["algorithm"] for line in lines):
        some = [line for line in lines if line["algorithm"] == name]
        best = max(some, key=lambda line: statistics.mean(_sound(line["validation"])))
        test = [100 * one for one in _sound(best["seeds"])]
        rate = float(best["settings"]["local.lr"])
        found[NAMES.get(name, name)] = (rate, statistics.mean(test), statistics.stdev(test))
    return found


def _sound(results: dict[str, Any]) -> list[float]:
    """The results of all seeds; of one that failed, 0."""
    return [results.get(seed) or 0.0 for seed in ("0", "1", "2")]


def table(cells: dict[tuple[str, str], Cell], algorithms: list[str]) -> str:
    """Markdown, one row for each cell; the best is bold."""
    heads = ["clients per round", "labels", *algorithms]
    lines = ["| " + " | ".join(heads) + " |", "|:--|:--|" + "--:|" * len(algorithms)]
    for (clients, skew), cell in cells.items():
        top = max(mean for _, mean, _ in cell.values())
        texts = []
        for name in algorithms:
            rate, mean, sd = cell[name]
            text = f"{mean:.1f} ± {sd:.1f}"
            texts.append(f"{f'**{text}**' if mean == top else text} ({rate:g})")
        labels = "IID" if skew == "iid" else f"α {skew}"
        lines.append(f"| {clients} of 100 | {labels} | " + " | ".join(texts) + " |")
    return "\n".join(lines)


def draw(cells: dict[tuple[str, str], Cell], algorithms: list[str], path: Path) -> None:
    """One panel for each number of clients: accuracy against skew."""
    shown = [one for one in CLIENTS if any(clients == one for clients, _ in cells)]
    with styled():
        figure = Figure(figsize=(2.1 * len(shown) + 1.2, 2.6), layout="constrained")
        axes = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
        for ax, clients in zip(axes, shown, strict=True):
            skews = [skew for skew in SKEWS if (clients, skew) in cells]
            for place, name in enumerate(algorithms):
                some = [cells[clients, skew][name] for skew in skews]
                style = ink(place)
                ax.plot(
                    skews,
                    [mean for _, mean, _ in some],
                    color=style.colour,
                    linestyle=style.line,
                    marker="o",
                    markersize=3,
                    label=name,
                )
            ax.set(title=f"{clients} of 100", xlabel="labels (alpha)", ylim=(60, 100))
        axes[0].set(ylabel="Test accuracy (%)")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center")
        figure.savefig(path, metadata={"Date": None})


def main(out: Path | None) -> None:
    RESULTS.mkdir(exist_ok=True)
    for clients in CLIENTS:
        for skew in SKEWS:
            ledger = out and out / f"{clients}-{skew}" / "ledger.jsonl"
            if ledger and ledger.exists():
                text = ledger.read_text(encoding="utf-8")
                (RESULTS / f"{clients}-{skew}.jsonl").write_text(text, encoding="utf-8")
    paths = {(c, s): RESULTS / f"{c}-{s}.jsonl" for c in CLIENTS for s in SKEWS}
    cells = {key: read(path) for key, path in paths.items() if path.exists()}
    algorithms = list(next(iter(cells.values())))
    page = DOCS / "howto" / "choosing.md"
    text = between(page.read_text(encoding="utf-8"), "grid", table(cells, algorithms))
    page.write_text(text, encoding="utf-8")
    draw(cells, algorithms, DOCS / "images" / "which-optimiser.svg")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
