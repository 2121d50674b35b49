"""Draws the pictures of docs/howto/drift.md from the runs that it shows.

python docs/pictures.py
"""

from __future__ import annotations

import re
import shlex
import tempfile
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

import undrift
from undrift.cli.app import main
from undrift.report.drawing import styled

DOCS = Path(__file__).parent
TITLES = {
    "accuracy": "Accuracy",
    "drift": "Client drift",
    "gsi": "GSI, 5 clients per round",
    "x_norm": "‖x‖, norm of the model",
    "h_norm": "‖h‖, norm of the correction",
}
SIGNS = {
    "same": "same labels",
    "skewed": "skewed labels",
    "short": "skewed labels, 1 epoch",
}


def shown() -> dict[str, list[str]]:
    """Commands of the page, by the folder that they write to."""
    page = (DOCS / "howto" / "drift.md").read_text(encoding="utf-8")
    lines = re.findall(r"^undrift (.+)", page.replace("\\\n", " "), flags=re.MULTILINE)
    commands = [shlex.split(line) for line in lines]
    return {words[words.index("--out") + 1]: words for words in commands if "--out" in words}


def draw(history: undrift.History, metrics: list[str], name: str, smooth: float = 0.0) -> None:
    """Some panels side by side, with one legend."""
    with styled():
        figure: Any = Figure(figsize=(9.0, 2.9), layout="constrained")
        for axes, metric in zip(figure.subplots(1, len(metrics)), metrics, strict=True):
            history.plot(metric, ax=axes, smooth=smooth)
            handles = axes.get_legend().legend_handles
            axes.get_legend().remove()
            axes.set_title(TITLES[metric])
            axes.set_ylabel("")
            if metric == "gsi":
                axes.axhline(5**0.5, color="black", linewidth=0.8, linestyle=":")
                axes.text(0.02, 5**0.5, "√5", transform=axes.get_yaxis_transform(), va="bottom")
            elif metric == "x_norm":
                axes.set_ylim(bottom=0)
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
        figure.savefig(DOCS / "images" / f"{name}.svg", metadata={"Date": None})


def together(folder: Path, signs: dict[str, str]) -> undrift.History:
    """Several runs of one algorithm, under names of our own."""
    rows = [
        row | {"label": label}
        for run, label in signs.items()
        for row in undrift.History.read(folder / run)
    ]
    return undrift.History(rows)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for run, words in shown().items():
            words[words.index("--out") + 1] = str(folder / run)
            main(words)
        draw(together(folder, SIGNS), ["drift", "gsi", "accuracy"], "drift", smooth=0.5)
        draw(undrift.History.read(folder / "norms"), ["x_norm", "h_norm", "accuracy"], "norms")
