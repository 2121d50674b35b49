"""`undrift export`: the model of a run, to be used elsewhere."""

from __future__ import annotations

import sys
from pathlib import Path

from undrift.cli.running import OwnFiles
from undrift.cli.whole import Whole


def export(
    run: Path,
    /,
    *,
    out: Path,
    algorithm: str | None = None,
    seed: Whole | None = None,
    data_dir: Path | None = None,
    code: OwnFiles = (),
) -> None:
    """Write the deployed model of a run to a file, with what is known about it.

    Example: undrift export runs/3f2a90c1d7be --algorithm AdaBest --seed 0 --out model.pt

    The ending of the file names the format:

    .safetensors   parameters and buffers: safetensors.torch.load_file(FILE)

    .pt, .pth      the same: torch.load(FILE)["state_dict"]; about the model: ["undrift"]

    .ts            TorchScript, network included: torch.jit.load(FILE)

    .pt2           network included: torch.export.load(FILE).module()

    .onnx          network included, if the packages onnx and onnxscript are installed

    Files say which network, algorithm, seed, round and experiment the model is of, the shape of its
    input, and names of classes and normalisation if they are known: a text in JSON, as metadata
    named undrift.

    Parameters
    ----------
    run
        Run directory; `undrift ls` lists them.
    out
        File to write.
    algorithm
        Algorithm whose model it is, if the run has several: a name from its table.
    seed
        Seed whose model it is, if the run has several.
    data_dir
        Folder with the data set's files; that of the last session if not given.
    code
        A file of your own that the run uses, such as ./mine.py, if you have not run it here before.
    """
    from undrift.data.files.fetch import use_data_dir
    from undrift.report import read_run
    from undrift.report.summary import find_arm
    from undrift.runs.export import export as write
    from undrift.runs.identity import last_data_dir

    use_data_dir(data_dir or last_data_dir(run))
    if algorithm is not None:
        algorithm = find_arm(read_run(run), algorithm, "--algorithm").name
    facts = write(run, out, algorithm=algorithm, seed=seed, code=code)
    shape = " × ".join(map(str, facts["input_shape"]))
    sys.stdout.write(
        f"{out}: {facts['network']} for inputs of {shape}, {facts['algorithm']}, seed "
        f"{facts['seed']}, round {facts['round']}\n"
    )
