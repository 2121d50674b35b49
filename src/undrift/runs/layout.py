"""Layout of a run directory: the names of its files, and what each holds."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path


class _Named(Enum):
    """A file or folder by its name, and what it holds."""

    def __init__(self, filename: str, holds: str) -> None:
        self.filename, self.holds = filename, holds

    def __str__(self) -> str:
        return str(self.filename)

    __fspath__ = __str__


class RunFile(_Named):
    """A file or folder of a run directory: `run / RunFile.METRICS`; `holds` says what is in it."""

    EXPERIMENT = "experiment.json", "settings, and facts about data and model"
    SETTINGS = (
        "experiment.toml",
        "the settings as a file for `undrift run`; forks need `undrift fork`",
    )
    ENVIRONMENT = "environment.json", "versions, machine and engine of each session"
    METRICS = "metrics.jsonl", "one row per algorithm, seed and evaluation, written as they come"
    COLUMNS = "metrics.parquet", "the same as columns, written when a session ends"
    CLIENTS = "clients.csv", "results of each client at the end of each trial, if asked for"
    VALIDATION = "validation.csv", "sums over the samples of each validation client, at the end"
    PARTITION = "partition.json", "samples of each class per client, first seed"
    FAILURES = "failures.json", "trials that diverged, and why"
    LOG = "run.log", "what happened when"
    CHECKPOINTS = (
        "checkpoints",
        "last states of the trials; a finished run needs them to be extended",
    )
    MODELS = "models", "deployed models, by parameter names, as safetensors"
    CHECKSUMS = "checksums.json", "SHA-256 of models and settings, CRC-32 of rows and failures"
    DEPLOYMENT = "deployment.json", "clients of a deployment: nodes, samples, last answers"
    EXCHANGES = (
        "exchanges.jsonl",
        "which clients a deployment asked in each round, and who was absent",
    )
    ORIGIN = "origin", "states of the run that this one was forked from"
    TENSORBOARD = "tensorboard", "for `tensorboard --logdir`"
    MLFLOW = "mlflow", "for `mlflow ui`"
    WANDB = "wandb", "for `wandb sync`"
    REPORT = "report.html", "the report: open it in a browser"
    TABLE_MD = "table.md", "results, as Markdown"
    TABLE_TEX = "table.tex", "results, as LaTeX"
    TABLE_CSV = "table.csv", "results, in full"
    SEEDS_CSV = "seeds.csv", "results of each seed"
    FIGURES = "figures", "figures for a paper"


HOLDS: dict[str, str] = {file.filename: file.holds for file in RunFile}
"""File name → what the file holds."""


class StudyFile(_Named):
    """A file or folder of the folder of a study or sweep."""

    STUDY = "study.json", "settings of the study or sweep"
    LEDGER = "ledger.jsonl", "one line for each trial: settings, result, failure, cost"
    JOURNAL = "journal.log", "Optuna's journal, with one study for each algorithm"
    TRIALS = "trials", "a run directory for each trial"
    FINAL = "final", "runs of winners and defaults on fresh seeds, with the test data"


STUDY_HOLDS: dict[str, str] = {
    file.filename: file.holds
    for file in (*StudyFile, RunFile.REPORT, RunFile.TABLE_MD, RunFile.TABLE_TEX)
}


def is_study(folder: Path) -> bool:
    """Whether a folder is that of a study or sweep."""
    return _has(folder, StudyFile.STUDY)


def is_deployment(folder: Path) -> bool:
    """Whether a folder is the run of a deployment."""
    return _has(folder, RunFile.DEPLOYMENT)


def _has(folder: Path, file: _Named) -> bool:
    """Whether a folder has a file; False for paths that the system refuses."""
    try:
        return (folder / file).is_file()
    except (OSError, ValueError):
        return False


def study_runs(folder: Path) -> list[Path]:
    """The run directories of a study: trials, then those on fresh seeds."""
    within = [sorted((folder / one).glob("*")) for one in (StudyFile.TRIALS, StudyFile.FINAL)]
    return [run for runs in within for run in runs if (run / RunFile.EXPERIMENT).is_file()]


MODEL = ".safetensors"


def model_file(run: Path, trial: str) -> Path:
    """The model that a trial ended with."""
    return run / RunFile.MODELS / f"{trial}{MODEL}"


def origin_file(run: Path, seed: int) -> Path:
    """The state that the trials of a forked run start from, on one seed."""
    return run / RunFile.ORIGIN / f"seed{seed}.safetensors"


def trial_named(run: Path, place: int, seed: int) -> str | None:
    """The name that the files of a trial have already, by its algorithm's place in the list."""
    name = f"{place}-*-seed{seed}"
    found = [*(run / RunFile.CHECKPOINTS).glob(name), *model_file(run, "").parent.glob(f"{name}.*")]
    return min((path.name.removesuffix(MODEL) for path in found), default=None)


def trial_folder(run: Path, trial: str) -> Path:
    """The folder with the checkpoints of a trial and the records of its clients."""
    return run / RunFile.CHECKPOINTS / trial


def checkpoint_file(folder: Path, round: int) -> Path:
    """The state of a trial after a round, in the folder of the trial."""
    return folder / f"round-{round:06d}.safetensors"


def checkpoint_files(folder: Path) -> list[Path]:
    """All checkpoints of a trial, the newest first."""
    return sorted(folder.glob("round-*.safetensors"), key=round_of, reverse=True)


def round_of(path: Path) -> int:
    """The round in a checkpoint's name; -1 if it has none."""
    found = re.fullmatch(r"round-(\d+)", path.stem)
    return int(found[1]) if found else -1
