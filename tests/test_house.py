"""Rules of the house that a reader relies on."""

import ast
from pathlib import Path

import pytest

import undrift

PACKAGE = Path(undrift.__file__).parent
ALGORITHMS = [p for p in (PACKAGE / "algorithms").glob("*.py") if p.name != "__init__.py"]


def imports(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    found |= {
        name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names
    }
    return {name for name in found if name}


@pytest.mark.parametrize("path", ALGORITHMS, ids=lambda path: path.stem)
def test_an_algorithm_is_short_and_knows_only_the_contract(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) < 100
    ours = {name for name in imports(path) if name.startswith("undrift")}
    assert ours <= {"undrift.core", "undrift.optim", "undrift.vectors"}
    assert imports(path) - ours <= {"__future__", "dataclasses", "collections.abc"}


def test_the_public_names_exist() -> None:
    assert all(hasattr(undrift, name) for name in undrift.__all__)
