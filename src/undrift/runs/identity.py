"""Identity of a run directory: which experiment it belongs to, and whether that was edited."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undrift._version import __version__
from undrift.config import UndriftError, shortened
from undrift.data.federated import FederatedData
from undrift.data.source import checksum
from undrift.experiment.experiment import REPORT_ONLY, Experiment, settings_hash
from undrift.experiment.registry import labels
from undrift.runs.checksums import Checksums
from undrift.runs.entries import is_session
from undrift.runs.layout import RunFile, is_deployment, origin_file
from undrift.runs.own_code import edited, vetted
from undrift.runs.reading import FORMAT, is_whole, read_experiment, read_names
from undrift.system.files import writing

if TYPE_CHECKING:
    from undrift.training.task import Task

DATA = ("clients", "train_samples", "test_samples", "checksum")
"""Facts in experiment.json by which changed data are detected."""


def facts_of(experiment: Experiment, task: Task, data: FederatedData) -> dict[str, Any]:
    """The content of experiment.json: settings, and facts about the first seed's data and model."""
    samples = (data.inputs, data.targets, data.test_inputs, data.test_targets)
    names = zip(experiment.algorithms, labels(experiment.algorithms), strict=True)
    return experiment.resolved() | {
        "format": FORMAT,
        "hash": experiment.hash,
        "version": __version__,
        "algorithms": [{"name": repr(made), "label": label} for made, label in names],
        "clients": len(data),
        "train_samples": int(data.sizes.sum()),
        "test_samples": len(data.test_targets),
        "checksum": checksum(*samples, data.order, data.offsets),
        "classes": data.label_counts.shape[1] if task.classifies else None,
        "parameters": len(task.x0),
        "groups": list(task.names),
    }


GROWS = {
    "algorithms": "algorithms that come after its own",
    "rounds": "more rounds",
    "seeds": "seeds that come after its own",
}
"""Settings by which a run can be extended, and how."""

FACTS = (
    *("format", "hash", "version", "name", "command", "clients", "train_samples", "test_samples"),
    *("checksum", "classes", "parameters", "groups"),
)
"""Entries of experiment.json that are not settings, and so not part of the hash."""


def stored_hash(found: Mapping[str, Any], names: Iterable[str]) -> str:
    """The hash of the settings in experiment.json with these algorithms, as `Experiment.hash`."""
    settings = {key: value for key, value in found.items() if key not in FACTS}
    return settings_hash(settings | {"algorithms": list(names)})


def refuse_another(folder: Path, facts: Mapping[str, Any]) -> None:
    """Raise unless the folder is empty, or holds this experiment on the same data, or a smaller one
    that can be extended to this one."""
    path = folder / RunFile.EXPERIMENT
    with writing(folder):
        begun = path.exists()
    if not begun:
        if folder.is_dir() and any(not one.name.startswith(".") for one in folder.iterdir()):
            raise UndriftError(f"{folder} has other files in it; choose another folder with --out")
        return
    found = read_experiment(path)
    for place, began_with in _texts(found.get("code")).items():
        if facts.get("code", {}).get(place, began_with) != began_with:
            raise UndriftError(edited(folder, place))
    for key in _other(found, facts, "classes", "parameters"):
        how = f"a run can be extended by {GROWS[key]}; else " if key in GROWS else ""
        raise UndriftError(
            f"{folder} holds another experiment: its {key} is {_told(found.get(key))}, not "
            f"{_told(facts.get(key))}; {how}choose another folder with --out"
        )
    _refuse_edited(path, found, stored_hash(found, read_names(path, found["algorithms"]).keys()))
    if facts.get("origin"):
        _refuse_without_origin(folder, set(facts["seeds"]) - set(found["seeds"]))
    for key in DATA:
        if key in found and found[key] != facts[key]:
            raise UndriftError(
                f"the data have changed since {folder} began: {key} was {found[key]}, and is "
                f"{facts[key]} now; restore the data, or choose another folder with --out"
            )


def has_room(folder: Path, experiment: Experiment) -> bool:
    """Whether there is no run in a folder, or one of this experiment or that it can extend."""
    path = folder / RunFile.EXPERIMENT
    return not path.exists() or not any(_other(read_experiment(path), experiment.resolved()))


def _other(found: Mapping[str, Any], facts: Mapping[str, Any], *also: str) -> Iterator[str]:
    """The settings in which a stored experiment is another one, and cannot grow to be this one."""
    for key in (*(field.name for field in fields(Experiment)), *also):
        old, new = _plain(found.get(key)), _plain(facts.get(key))
        if key not in REPORT_ONLY and old != new and not _grows(key, old, new):
            yield key


def _grows(key: str, old: Any, new: Any) -> bool:
    """Whether a setting can become this value in a run that has begun."""
    if key == "rounds":
        return is_whole(old) and old <= new
    return key in GROWS and isinstance(old, list) and new[: len(old)] == old


def _refuse_without_origin(folder: Path, seeds: set[int]) -> None:
    """Raise if a forked run lacks the state from which its trials on new seeds would start."""
    for seed in sorted(seeds):
        if not origin_file(folder, seed).exists():
            raise UndriftError(
                f"{folder} is a fork, and has no state to start from on seed {seed}; extend the "
                "run that it was forked from by that seed, and fork that one to another folder"
            )


def refuse_deployment(folder: Path) -> None:
    """Raise if a run's clients are nodes of a deployment, which hold its data and memories."""
    if is_deployment(folder):
        raise UndriftError(
            f"{folder} is the run of a deployment, whose data and memories are on its nodes; "
            "`undrift deploy serve` goes on with it"
        )


def stored_experiment(folder: Path, code: Sequence[Path] = ()) -> Experiment:
    """The experiment of a run directory; raises if its settings were edited.

    code  the user's own files that it may execute, beside those that the user ran before
    """
    path, toml = folder / RunFile.EXPERIMENT, folder / RunFile.SETTINGS
    found = read_experiment(path)
    texts = {field.name: found[field.name] for field in fields(Experiment) if field.name in found}
    for field in fields(Experiment):
        if field.default is MISSING and field.name not in found:
            raise UndriftError(f"{path} lacks {field.name}; restore the file from a backup")
    texts["algorithms"] = list(read_names(path, found["algorithms"]))
    try:
        with own_code(folder, code):
            experiment = Experiment(**texts)
    except UndriftError as error:
        if found.get("code"):
            raise
        raise UndriftError(
            f"{folder} cannot be resumed from its settings alone ({error}); "
            "run the same experiment with the same folder from Python"
        ) from None
    _refuse_edited(path, found, experiment.hash)
    if toml.exists() and Checksums(folder).wrong(toml):
        raise UndriftError(
            f"{toml} was edited after the run began, but the run's settings are in {path.name}; "
            f"run the new ones with `undrift run {toml} --out FOLDER`, or remove the file: it is "
            "then written again"
        )
    return experiment


def own_code(folder: Path, named: Sequence[Path] = ()) -> AbstractContextManager[None]:
    """Within, users' own code is loaded as this run may load it."""
    paths = [_texts(session.get("code")) for session in stored_sessions(folder)]
    recorded = _texts(read_experiment(folder / RunFile.EXPERIMENT).get("code"))
    return vetted(folder, recorded, paths[-1] if paths else {}, named)


def _texts(value: Any) -> dict[str, str]:
    """A table of texts from a file; nothing if it is something else."""
    table = value if isinstance(value, dict) else {}
    return {key: one for key, one in table.items() if isinstance(one, str)}


def _refuse_edited(path: Path, found: Mapping[str, Any], expected: str) -> None:
    """Raise if the settings no longer match the hash that is stored with them."""
    if found.get("hash") != expected:
        raise UndriftError(
            f"{path} was edited after the run began: its settings no longer match the hash "
            f"{found.get('hash')}; undo that, or run the new settings in another folder"
        )


def last_data_dir(folder: Path) -> Path | None:
    """The data folder of the last session that was given one."""
    told = [one.get("data_dir") for one in stored_sessions(folder)]
    texts = [one for one in told if one and isinstance(one, str)]
    return Path(texts[-1]) if texts else None


def stored_sessions(folder: Path) -> list[dict[str, Any]]:
    """The sessions in environment.json; none if it cannot be read."""
    try:
        found = json.loads((folder / RunFile.ENVIRONMENT).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return []
    return [one for one in found if is_session(one)] if isinstance(found, list) else []


def _plain(value: Any) -> Any:
    """A setting as it counts; of algorithms, the names without the labels."""
    named = isinstance(value, list) and all(isinstance(one, dict) for one in value)
    return [one.get("name") for one in value] if named else value


def _told(value: Any) -> str:
    return shortened(_plain(value))
