"""The names of the files of a run directory, which one module spells."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import undrift
from undrift.runs.layout import HOLDS, RunFile

PACKAGE = Path(undrift.__file__).parent
DOCS = PACKAGE.parent.parent / "docs"
FILES = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in HOLDS if "." in name))
FOLDERS = re.compile("|".join(rf"^{name}/" for name in HOLDS if "." not in name))


def texts(node: ast.AST) -> Iterator[tuple[str, bool]]:
    """All texts in code that are no docstrings, and whether they stand behind a `/` of paths."""
    for one in ast.iter_child_nodes(node):
        if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant):
            continue
        if isinstance(one, ast.Call) and getattr(one.func, "id", "") == "Store":
            continue  # what clients remember has folders of its own, inside a checkpoint's
        if isinstance(one, ast.Constant) and isinstance(one.value, str):
            yield one.value, isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)
        yield from texts(one)


def spelt(code: str) -> list[str]:
    """The texts in code that name a file or folder of a run directory."""
    return [
        text
        for text, joined in texts(ast.parse(code))
        if FILES.search(text) or FOLDERS.search(text) or (joined and text in HOLDS)
    ]


def test_only_the_layout_spells_names_of_files() -> None:
    found = {
        path.relative_to(PACKAGE).as_posix(): names
        for path in PACKAGE.rglob("*.py")
        if (names := spelt(path.read_text(encoding="utf-8")))
    }
    assert found.keys() == {"runs/layout.py"}, found


@pytest.mark.parametrize(
    "code",
    [
        'run / "metrics.jsonl"',
        'run / "models" / name',
        'run.glob("checkpoints/*")',
        'f"rows are missing in metrics.jsonl of {run}"',
    ],
)
def test_a_name_that_is_spelt_is_found(code: str) -> None:
    assert spelt(code)


def test_the_documentation_tells_what_the_files_hold() -> None:
    page = (DOCS / "howto" / "runs.md").read_text(encoding="utf-8")
    table = [line for line in page.splitlines() if line.startswith("| `")]
    assert table == [f"| `{file}` | {file.holds} |" for file in RunFile]
