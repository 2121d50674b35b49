"""Exports the deployed model of a trial, in formats that need neither the run nor undrift."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from safetensors.torch import save as serialize
from torch import Tensor, nn

from undrift.config import UndriftError, unknown
from undrift.core import Algorithm
from undrift.runs.checksums import Checksums
from undrift.runs.deployed import KEY, about, facts_in, metadata
from undrift.runs.folder import trial_name
from undrift.runs.fork import chosen
from undrift.runs.identity import stored_experiment
from undrift.runs.layout import RunFile, model_file
from undrift.runs.reading import read_failures
from undrift.system.extras import require
from undrift.system.files import replace_file

SAMPLES = 3
"""Samples on which an exported program is compared with the model; it is traced with one less."""


def export(
    run: Path,
    out: Path,
    *,
    algorithm: str | None = None,
    seed: int | None = None,
    code: Sequence[Path] = (),
) -> dict[str, Any]:
    """Write the model of a trial to a file, in the format that its ending names; returns the facts.

    algorithm, seed  of the trial; needed if the run has several
    code             files of the user's own, as for `stored_experiment`
    """
    if out.suffix not in FORMATS:
        raise UndriftError(f"--out {out}: " + unknown("format", out.suffix or out.name, FORMATS))
    experiment = stored_experiment(run, code)
    made = chosen(run, experiment, algorithm, "--algorithm")
    _refuse_local(run, made)
    seed = _seed(run, experiment.seeds, seed)
    path = model_file(run, trial_name(run, experiment, made, seed))
    _refuse_none(run, path, repr(made), seed)
    task, data = experiment.prepare(seed)
    module = task.module(task.x0)
    module.load_state_dict(load_file(path), strict=False)  # frozen parameters are not in the file
    last = facts_in(path).get("round", experiment.rounds)
    facts = about(experiment, made, seed, last, data, experiment.data.load(seed))
    facts["experiment"] = experiment.hash
    inputs = data.test_inputs if len(data.test_inputs) >= SAMPLES else data.inputs
    some = data.transform(inputs[:SAMPLES], None) if data.transform else inputs[:SAMPLES]
    replace_file(out, FORMATS[out.suffix](module.eval(), some, facts))
    return facts


def _seed(run: Path, seeds: Sequence[int], seed: int | None) -> int:
    several = ", ".join(map(str, seeds))
    if seed is None and len(seeds) > 1:
        raise UndriftError(f"{run} has several seeds; say which with --seed: {several}")
    if seed is not None and seed not in seeds:
        raise UndriftError(f"--seed {seed}: {run} has the seeds {several}")
    return seeds[0] if seed is None else seed


def _refuse_local(run: Path, made: Algorithm) -> None:
    """Raise if an algorithm trains every client alone: the server's model is the initial one."""
    if made.regime == "local":
        clients = run / RunFile.CLIENTS
        results = clients if clients.exists() else run / RunFile.METRICS
        raise UndriftError(
            f"{made!r} of {run} has no common model, only one per client; its results are in "
            f"{results}"
        )


def _refuse_none(run: Path, path: Path, name: str, seed: int) -> None:
    """Raise if a trial has no model, or a damaged one."""
    for failure in read_failures(run / RunFile.FAILURES):
        if (failure.algorithm, failure.seed) == (name, seed):
            why = f"it ended in round {failure.round}: {failure.reason}"
            raise UndriftError(f"{name}, seed {seed}, of {run} has no model: {why}")
    if not path.exists():
        raise UndriftError(
            f"{name}, seed {seed}, of {run} is not done yet; `undrift resume {run}` computes its "
            "model"
        )
    if wrong := Checksums(run).wrong(path):
        raise UndriftError(f"{path} {wrong}; `undrift resume {run}` computes it again")


def _own(module: nn.Module) -> dict[str, Tensor]:
    return {name: t.detach().cpu().clone() for name, t in module.state_dict().items()}


def _safetensors(module: nn.Module, inputs: Tensor, facts: dict[str, Any]) -> bytes:
    return serialize(_own(module), metadata(facts))


def _state_dict(module: nn.Module, inputs: Tensor, facts: dict[str, Any]) -> bytes:
    torch.save({"state_dict": _own(module), KEY: facts}, file := io.BytesIO())
    return file.getvalue()


def _torchscript(module: nn.Module, inputs: Tensor, facts: dict[str, Any]) -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch recommends torch.export
        try:
            traced: Any = torch.jit.trace(module, inputs[:-1])  # type: ignore[no-untyped-call]
            _compare(traced, module, inputs)
        except Exception as error:  # whatever a model may raise
            raise _unable(module, ".ts", error) from None
        torch.jit.save(traced, file := io.BytesIO(), metadata(facts))
    return file.getvalue()


def _program(module: nn.Module, inputs: Tensor, facts: dict[str, Any]) -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            exported = torch.export.export(module, (inputs[:-1],), dynamic_shapes=_any_batch())
            _compare(exported.module(), module, inputs)
        except Exception as error:  # whatever a model may raise
            raise _unable(module, ".pt2", error) from None
        torch.export.save(exported, file := io.BytesIO(), extra_files=metadata(facts))
    return file.getvalue()


def _onnx(module: nn.Module, inputs: Tensor, facts: dict[str, Any]) -> bytes:
    for package in ("onnx", "onnxscript"):
        require(package, "onnx", "export to .onnx")
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it misses packages that nobody needs
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made: Any = torch.onnx.export(
                module, (inputs,), dynamo=True, dynamic_shapes=_any_batch(), verbose=False
            )
        except Exception as error:  # whatever a model may raise
            raise _unable(module, ".onnx", error) from None
    content = made.model_proto
    for key, value in metadata(facts).items():
        entry = content.metadata_props.add()
        entry.key, entry.value = key, value
    binary: bytes = content.SerializeToString()
    return binary


def _any_batch() -> Any:
    """The number of samples may be any."""
    return ({0: torch.export.Dim.DYNAMIC},)


@torch.no_grad()
def _compare(program: Callable[[Tensor], Tensor], module: nn.Module, inputs: Tensor) -> None:
    """Raise if a program differs from the model on more samples than it was traced with."""
    if not torch.allclose(program(inputs), module(inputs)):
        raise ValueError("its path depends on the inputs")


def _unable(module: nn.Module, ending: str, why: object) -> UndriftError:
    reason = " ".join(str(why).split())[:200]
    return UndriftError(
        f"{type(module).__name__} cannot be exported to {ending} ({reason}); .safetensors and .pt "
        "hold the parameters of any model"
    )


FORMATS: dict[str, Callable[[nn.Module, Tensor, dict[str, Any]], bytes]] = {
    ".safetensors": _safetensors,
    ".pt": _state_dict,
    ".pth": _state_dict,
    ".ts": _torchscript,
    ".pt2": _program,
    ".onnx": _onnx,
}
"""Ending → the model as a file."""
