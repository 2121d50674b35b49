"""`undrift data`: which data sets there are, where they lie, and what is in them."""

from __future__ import annotations

import inspect
import json
import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from undrift.config import UndriftError
from undrift.data.files import fetch as files
from undrift.data.source import Source
from undrift.data.sources import SOURCES, dataset
from undrift.data.sources.file_set import FileSet
from undrift.later import Tensor, np, torch

data_app = App(name="data", help="Show, fetch and find data sets.")

BAR = 30
"""Characters of the longest bar."""

ROWS = 100
"""Classes that are shown at most."""


@data_app.command(name="list")
def list_(
    *, data_dir: Path | None = None, json_: Annotated[bool, Parameter("--json")] = False
) -> None:
    """List the data sets, and which of them are on disk.

    Parameters
    ----------
    data_dir
        Folder to look in.
    json_
        Print JSON.
    """
    files.use_data_dir(data_dir)
    rows = [
        {"name": name, "about": _about(make), "state": _state(name, make)}
        for name, make in SOURCES.items()
    ]
    if json_:
        _write_json(rows)
        return
    table = Table("name", "on disk", "about", box=SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(Text(row["name"], style="bold"), row["state"], Text(row["about"]))
    Console().print(table)


@data_app.command
def fetch(*names: str, data_dir: Path | None = None, mirror: str | None = None) -> None:
    """Download data sets, unless they are on disk; half a download is continued.

    Example: undrift data fetch mnist cifar100 --data-dir data

    Parameters
    ----------
    names
        Data sets; `undrift data list` shows them.
    data_dir
        Folder to look in and to download into.
    mirror
        Address under which DATASET/FILE lies, in place of the published addresses.
    """
    if not names:
        raise UndriftError(f"name at least one data set; known: {', '.join(SOURCES)}")
    files.use_data_dir(data_dir, download=True)
    files.use_mirror(mirror)
    for name in names:
        source = dataset(name)
        if not isinstance(source, FileSet):
            Console().print(f"{name}: needs no download")
            continue
        if not source.files:
            raise UndriftError(
                f"{name}: cannot be downloaded; `undrift data show {name}` says what to put where"
            )
        lacking = files.missing(source.folder, source.files, source.layouts)
        own = {file.name: source.present(file) for file in lacking}
        official = [file for file in source.files if not own.get(file.name)]
        located = files.locate(source.folder, official, source.layouts)
        for path in (*located.values(), *(path for paths in own.values() for path in paths)):
            Console().print(Text(f"{name}: {path}"), soft_wrap=True)


@data_app.command
def where(name: str | None = None, *, data_dir: Path | None = None) -> None:
    """Print the data folder, or the paths of one data set's files.

    Parameters
    ----------
    name
        Data set; `undrift data list` shows them.
    data_dir
        Folder to look in.
    """
    files.use_data_dir(data_dir)
    if name is None:
        sys.stdout.write(f"{files.data_dir()}\n")
        return
    source = dataset(name)
    if not isinstance(source, FileSet):
        sys.stdout.write(f"{name} needs no files\n")
        return
    folder = files.data_dir() / source.folder
    for file in source.files:
        for path in source.present(file) or (f"{folder / file.name}  (not there)",):
            sys.stdout.write(f"{path}\n")
    if not source.files:
        sys.stdout.write(f"{folder}{'' if folder.is_dir() else '  (not there)'}\n")


@data_app.command
def show(
    name: str,
    *,
    target_column: str | None = None,
    client_column: str | None = None,
    data_dir: Path | None = None,
    json_: Annotated[bool, Parameter("--json")] = False,
) -> None:
    """Load a data set and show what is in it: counts, shapes and classes.

    Parameters
    ----------
    name
        Data set, such as mnist or "EMNIST(split='letters', first=10)", or the path of your own CSV
        or Parquet file.
    target_column
        Column of your file to predict.
    client_column
        Column of your file that says whose a row is.
    data_dir
        Folder to look in.
    json_
        Print JSON.
    """
    files.use_data_dir(data_dir)
    made = dataset(name, target_column, client_column)
    source = made.load(0)
    facts, counts = _facts(made, source), _counts(source)
    if json_:
        _write_json(facts | {"samples_by_class": [list(row) for row in counts]})
        return
    console = Console(highlight=False)
    about = Table(box=None, show_header=False, pad_edge=False)
    for key, value in facts.items():
        about.add_row(key.replace("_", " "), Text(str(value)))
    console.print(about)
    if not counts:
        return
    table = Table("class", "training", "test", "", box=SIMPLE_HEAD, pad_edge=False)
    most = max(train for train, _ in counts) or 1
    names = source.class_names or range(len(counts))
    for label, (train, test) in zip(names, counts[:ROWS], strict=False):
        table.add_row(Text(str(label)), str(train), str(test), "█" * round(BAR * train / most))
    console.print(table)
    if len(counts) > ROWS:
        console.print(f"and {len(counts) - ROWS:,} classes more; --json has them all")


def _facts(made: object, source: Source) -> dict[str, Any]:
    one = source.inputs[:1]
    batch = source.transform(one, None) if source.transform else one
    facts = {
        "data_set": repr(made),
        "training_samples": len(source.targets),
        "test_samples": len(source.test_targets),
        "sample": _shape(source.inputs),
        "model_input": _shape(batch),
        "transform": repr(source.transform),
    }
    if source.targets.is_floating_point():
        both = torch.cat([source.targets, source.test_targets])
        facts["target"] = f"numbers from {float(both.min()):g} to {float(both.max()):g}"
    else:
        facts["classes"] = source.classes
    if source.client_ids is not None:
        facts["natural_clients"] = len(np.unique(source.client_ids))
    if source.coarse is not None:
        facts["coarse_classes"] = len(np.unique(source.coarse))
    if source.note is not None:
        facts["note"] = source.note
    return facts


def _shape(samples: Tensor) -> str:
    return f"{tuple(samples.shape[1:])} {samples.dtype}".replace("torch.", "")


def _counts(source: Source) -> list[tuple[int, int]]:
    """Training and test samples of each class, if there are classes."""
    if source.targets.is_floating_point():
        return []
    train, test = (
        np.bincount(labels[labels >= 0].numpy().astype(np.int64), minlength=source.classes).tolist()
        for labels in (source.targets, source.test_targets)
    )
    return list(zip(train, test, strict=True))


def _about(make: Any) -> str:
    return (inspect.getdoc(make) or "").split("\n")[0]


def _state(name: str, make: Any) -> str:
    """Whether a data set is on disk, and how much is to be downloaded if not."""
    other = isinstance(make, type) and not issubclass(make, FileSet)  # maybe with parameters
    source = None if other else dataset(name)
    if not isinstance(source, FileSet):
        return "-"
    if not source.files:
        return "by hand"
    lacking = [file for file in source.files if not source.present(file)]
    if not lacking:
        return "yes"
    size = sum(file.size or 0 for file in lacking)
    return f"no, {size / 1e6:.0f} MB" if size else "no"


def _write_json(value: object) -> None:
    sys.stdout.write(json.dumps(value, indent=1) + "\n")
