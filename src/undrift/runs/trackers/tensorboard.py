"""TensorBoard: event files in RUN/tensorboard, one folder per trial."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from torch.utils.tensorboard import SummaryWriter

from undrift.runs.layout import RunFile
from undrift.runs.trackers import TrackedTrial, Values


class TensorBoard:
    def __init__(self, folder: Path) -> None:
        self._folder = folder / RunFile.TENSORBOARD
        self._writer: SummaryWriter | None = None

    def begin(self, trial: TrackedTrial, before: Values) -> None:
        self.close()
        folder = self._folder / quote(trial.name, safe=" ,()=+")
        # `purge_step` makes readers drop what earlier sessions wrote from that step on.
        self._writer = SummaryWriter(str(folder), purge_step=0)
        lines = [f"| {key} | {value} |" for key, value in trial.facts.items()]
        self._writer.add_text("settings", "\n".join(["| | |", "|---|---|", *lines]), 0)
        for t, values in before.items():
            self.row(t, values)

    def row(self, t: int, values: Mapping[str, float]) -> None:
        if self._writer is not None:
            for key, value in values.items():
                self._writer.add_scalar(key, value, t)
            self._writer.flush()

    def end(self, failure: str | None) -> None:
        if self._writer is not None and failure:
            self._writer.add_text("failure", failure, 0)
        self.close()

    def close(self) -> None:
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()


make = TensorBoard
