"""Rules of the house that a reader relies on."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import undrift

PACKAGE = Path(undrift.__file__).parent
ALGORITHMS = [p for p in (PACKAGE / "algorithms").glob("*.py") if p.name != "__init__.py"]


def imports(path: Path) -> set[str]:
    """The modules that a file imports; `from undrift import core` counts as undrift.core."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "undrift":
            found |= {f"undrift.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


ROOMS = [
    *("_version", "later", "config", "system", "rng", "arithmetic", "keyed"),
    *("core", "vectors", "optim", "algorithms", "parts"),
    *("data", "models", "training", "engines", "federation"),
    *("measure", "experiment", "runs", "report", "tune", "checks", "papers", "deploy", "cli"),
]
"""the rooms of the package and its loose modules, lower ones first"""


def room(name: str) -> str:
    """The room of a module of ours, by its full name."""
    return name.split(".")[1]


def modules() -> Iterator[tuple[str, Path]]:
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        yield ".".join(part for part in parts if part != "__init__"), path


def test_every_module_has_a_room() -> None:
    assert {room(name) for name, _ in modules() if "." in name} == {*ROOMS, "__main__"}


def test_rooms_import_only_from_lower_rooms() -> None:
    """Wherever the import stands: at the top, in a function, or for types only."""
    upwards = [
        f"{name} imports {imported}"
        for name, path in modules()
        if "." in name and room(name) != "__main__"
        for imported in imports(path)
        if imported.startswith("undrift.") and ROOMS.index(room(imported)) > ROOMS.index(room(name))
    ]
    assert upwards == []


@pytest.mark.parametrize("path", ALGORITHMS, ids=lambda path: path.stem)
def test_an_algorithm_is_short_and_knows_only_the_contract(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) < 100
    ours = {name for name in imports(path) if name.startswith("undrift")}
    others = {name for name in ours if not name.startswith("undrift.algorithms.")}
    assert others <= {"undrift.core", "undrift.optim", "undrift.vectors"}
    assert imports(path) - ours <= {"__future__", "dataclasses", "collections.abc"}


def test_the_public_names_exist() -> None:
    assert all(hasattr(undrift, name) for name in undrift.__all__)
    assert {*undrift.algorithms.__all__, *undrift.parts.__all__} <= set(undrift.__all__)
