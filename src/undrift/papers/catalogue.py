"""The items of the papers, read from their files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import MISSING, fields
from fnmatch import fnmatchcase
from pathlib import Path

from undrift.config import UndriftError, at, unknown
from undrift.experiment.settings import SettingsFile
from undrift.papers import FOLDER
from undrift.papers.item import Item
from undrift.papers.layers import merged

PAPERS = {
    "adabest": "AdaBest: minimizing client drift in federated learning via adaptive bias "
    "estimation (Varno et al., ECCV 2022)",
    "fedgbo": "Accelerating federated learning with a global biased optimiser "
    "(Mills et al., IEEE Transactions on Computers 2022)",
    "fedglad": "When to trust aggregated gradients: addressing negative client sampling in "
    "federated learning (Yang et al., TMLR 2023)",
}

MERGED = ("experiment", "let", "axes", "rows", "scales")
TAKEN = ("measures", "seeds", "tolerance", "only_cells", "only_rows")
"""entries of an item that another one which is like it builds on, and takes over if it has none"""


def read_item(path: Path) -> Item:
    """The item in a file; an error begins with its line."""
    file = _settings(path)
    return file.build(lambda **given: Item(paper=path.parent.name, name=path.stem, **given))


def _settings(path: Path) -> SettingsFile:
    """The entries of a file, with those of the item that it is like."""
    known = {f.name: f.default is MISSING and f.default_factory is MISSING for f in fields(Item)}
    known = {name: must for name, must in known.items() if name not in ("paper", "name")}
    file = SettingsFile(path, known)
    if like := file.values.get("like"):
        other = path.with_name(f"{like}.toml")
        with file.blame(), at("like"):
            if not other.is_file():
                raise UndriftError(f"there is no {other.name} beside it")
        base = _settings(other).values
        file.values |= {
            name: base[name] for name in TAKEN if name not in file.values and name in base
        }
        file.values |= {
            name: merged(base.get(name, {}), file.values.get(name, {})) for name in MERGED
        }
    return file


def paths(paper: str) -> list[Path]:
    """The files of a paper's items, in the paper's order."""

    def order(path: Path) -> tuple[str, int, str]:
        kind, number, rest = re.fullmatch(r"([a-z]+)(\d*)(.*)", path.stem).groups()  # type: ignore[union-attr]
        return kind, int(number or 0), rest

    return sorted((FOLDER / paper).glob("*.toml"), key=order)


def ids(pattern: str = "*") -> list[str]:
    """The ids of items that fit a pattern: "adabest/table2", "fedglad" or "*/table*"."""
    wanted = pattern if "/" in pattern else f"{pattern}/*"
    known = [f"{paper}/{path.stem}" for paper in PAPERS for path in paths(paper)]
    found = [id for id in known if fnmatchcase(id, wanted)]
    if not found:
        raise UndriftError(unknown("item", pattern, known, ["`undrift paper list` shows them"]))
    return found


def items(pattern: str = "*") -> Iterator[Item]:
    """All items whose id fits a pattern."""
    return (read_item(FOLDER / f"{id}.toml") for id in ids(pattern))


def item(id: str) -> Item:
    """The item with this id."""
    found = list(items(id))
    if len(found) != 1:
        raise UndriftError(f"{id}: give one item, such as {found[0].id}")
    return found[0]
