"""Deployed models: what their files say about them."""

from __future__ import annotations

import json
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from undrift._version import __version__
from undrift.core import Algorithm
from undrift.data.federated import FederatedData, Transform
from undrift.data.transforms import WHITE, Chain, Normalise
from undrift.experiment.experiment import Experiment
from undrift.runs.tensor_file import read_tensors

KEY = "undrift"
"""Name of the metadata in a file. One entry holds all: safetensors does not keep their order."""


def about(
    experiment: Experiment,
    made: Algorithm,
    seed: int,
    round: int,
    data: FederatedData,
    source: object = None,
) -> dict[str, Any]:
    """What a trial's model is, for whoever has only its file.

    source  the samples that the data were made from, if they are at hand

    Nothing here depends on the other trials of the run, which can be extended.
    """
    texts, known = experiment.resolved(), source or data
    names = getattr(known, "class_names", None)
    columns = getattr(known, "normalisation", None)
    return {
        "version": __version__,
        "algorithm": repr(made),
        "seed": seed,
        "round": round,
        "network": texts["model"],
        "data": texts["data"],
        "input_shape": list(data.example.shape[1:]),
        "class_names": None if names is None else list(names),
        "normalisation": _plain(columns) or _pixels(data.transform),
    }


def metadata(facts: dict[str, Any]) -> dict[str, str]:
    """The facts as metadata of a file."""
    return {KEY: json.dumps(facts)}


def facts_in(path: Path) -> dict[str, Any]:
    """The facts in a model file; earlier versions wrote none."""
    found: dict[str, Any] = json.loads(read_tensors(path)[0].get(KEY, "{}"))
    return found


def _pixels(transform: Transform | None) -> dict[str, Any] | None:
    """How pixels become inputs, (pixel / scale - mean) / std; None if it is not known."""
    steps = transform.steps if isinstance(transform, Chain) else (transform,)
    for step in steps:
        if isinstance(step, Normalise):
            return {"scale": WHITE, "mean": list(step.mean), "std": list(step.std)}
    return None


def _plain(value: Any) -> Any:
    """A value for JSON."""
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
