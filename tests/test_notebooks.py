"""The notebooks run from the first cell to the last, and show what their text says."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from undrift.report.history import History

pytestmark = pytest.mark.slow  # `make docs` runs them

NOTEBOOKS = Path(__file__).parent.parent / "examples" / "notebooks"
NAMES = sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))
KERNEL = {"JPY_PARENT_PID": "1", "FORCE_COLOR": "1", "PYTHONWARNINGS": "error"}
"""the environment of commands: that of a kernel, and a user who wants no warnings"""


def cells(name: str) -> list[dict[str, Any]]:
    found = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8"))
    assert (found["nbformat"], found["nbformat_minor"]) == (4, 5)
    listed: list[dict[str, Any]] = found["cells"]
    return listed


class Kernel:
    """Runs cells as Jupyter does: Python, `%%writefile FILE`, and lines that begin with `!`."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.pictures: list[bytes] = []
        self.tables: list[str] = []

    def run(self, source: str) -> None:
        first, _, rest = source.partition("\n")
        if first.startswith("%%writefile "):
            Path(first.split()[1]).write_text(rest, encoding="utf-8")
        elif source.startswith("!"):
            for line in source.replace("\\\n", " ").splitlines():
                self.command(line.removeprefix("!"))
        else:
            self.python(source)

    def command(self, line: str) -> None:
        program, _, arguments = line.partition(" ")
        assert program == "undrift"
        typed = f"{sys.executable} -m undrift {arguments}"
        path = os.pathsep.join(filter(None, sys.path))
        subprocess.run(
            typed, shell=True, check=True, env=os.environ | KERNEL | {"PYTHONPATH": path}
        )

    def python(self, source: str) -> None:
        """Run a cell and show the value of its last line, unless that ends with a semicolon."""
        tree = ast.parse(source)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "cell", "exec"), self.names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), self.names)
            if value is not None and not source.rstrip().endswith(";"):
                self.show(value)

    def show(self, value: Any) -> None:
        if hasattr(value, "_repr_png_"):
            self.pictures.append(value._repr_png_())
        elif hasattr(value, "_repr_html_"):
            self.tables.append(value._repr_html_())


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    plt = pytest.importorskip("matplotlib.pyplot")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    plt.switch_backend("agg")
    yield Kernel()
    plt.close("all")
    sys.modules.pop("mine", None)


def run(name: str, kernel: Kernel) -> dict[str, Any]:
    for cell in cells(name):
        if cell["cell_type"] == "code":
            kernel.run("".join(cell["source"]))
    return kernel.names


def ends(history: History, metric: str) -> dict[str, float]:
    """The mean of a metric over the last rounds in which it was measured, by label."""
    found = {}
    for label in dict.fromkeys(row["label"] for row in history):
        values = history.where(label=label)[metric]
        found[label] = float(values[np.isfinite(values)][-3:].mean())
    return found


@pytest.mark.parametrize("name", NAMES)
def test_notebooks_are_stored_without_results(name: str) -> None:
    for cell in cells(name):
        assert cell["cell_type"] == "markdown" or cell["outputs"] == []
        assert cell.get("execution_count") is None


def test_ten_minutes(kernel: Kernel) -> None:
    history = run("1-ten-minutes", kernel)["history"]
    accuracy, traffic = ends(history, "accuracy"), ends(history, "bytes")
    assert accuracy["FedAvg"] < min(accuracy["SCAFFOLD"], accuracy["AdaBest"])
    assert traffic["SCAFFOLD"] > 1.9 * traffic["AdaBest"]
    assert len(kernel.pictures) == 3
    assert ["<table" in table for table in kernel.tables] == [True] * 3


def test_your_own_algorithm(kernel: Kernel, capfd: pytest.CaptureFixture[str]) -> None:
    history = run("2-your-own-algorithm", kernel)["history"]
    begins = {b: history.where(label=f"beta={b}")["accuracy"][:25].mean() for b in (0.0, 0.5, 0.8)}
    assert begins[0.0] + 0.05 < begins[0.5] < begins[0.8]
    shown = capfd.readouterr().out
    assert "breaks\n  purity: " in shown
    assert "Heavy, seed 1: accuracy" in shown
    assert "━" not in shown  # no bars in a notebook
    assert Path("runs/heavy/report.html").exists()


def test_your_own_data(kernel: Kernel, capfd: pytest.CaptureFixture[str]) -> None:
    run("3-your-own-data", kernel)
    assert "| SCAFFOLD" in capfd.readouterr().out
    assert Path("runs/patients/report.html").exists()


def test_reading_drift(kernel: Kernel) -> None:
    names = run("4-reading-drift", kernel)
    drift = ends(names["labels"], "drift")
    assert drift["skewed labels"] > 1.5 * drift["same labels"]
    norm, accuracy = ends(names["norms"], "x_norm"), ends(names["norms"], "accuracy")
    good, edge, lost, fedavg = norm.values()
    assert 1 < good / fedavg < 2 < 3 < edge / fedavg < lost / fedavg
    assert accuracy["AdaBest, beta=0.96"] < 0.7 < accuracy["AdaBest, beta=0.7"]
    assert ends(names["more"], "accuracy")["10 clients"] > 0.9
