"""W&B: files in RUN/wandb for `wandb sync`, or online if WANDB_MODE or WANDB_API_KEY says so."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import wandb

from undrift.runs.trackers import TrackedTrial, Values


class WandB:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._run: Any = None

    def begin(self, trial: TrackedTrial, before: Values) -> None:
        self.close()
        self._folder.mkdir(parents=True, exist_ok=True)  # otherwise W&B silently writes elsewhere
        usual = "online" if os.environ.get("WANDB_API_KEY") else "offline"
        mode: Any = os.environ.get("WANDB_MODE") or usual
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "undrift"),
            group=trial.run,
            id=trial.id,
            name=trial.name,
            config=trial.facts,
            mode=mode,
            dir=os.environ.get("WANDB_DIR", self._folder),
            # Offline runs cannot be resumed: each session writes all rounds again instead.
            resume="allow" if before and mode != "offline" else None,
            reinit="create_new",  # keep a run that the caller may have open
            settings=wandb.Settings(silent=True, console="off", x_disable_stats=True),
        )
        for t, values in before.items():
            self.row(t, values)

    def row(self, t: int, values: Mapping[str, float]) -> None:
        if self._run is not None:
            self._run.log(dict(values), step=t)

    def end(self, failure: str | None) -> None:
        if self._run is not None and failure:
            self._run.summary["failure"] = failure
        self._stop(1 if failure else 0)

    def close(self) -> None:
        self._stop(1)

    def _stop(self, code: int) -> None:
        if self._run is not None:
            run, self._run = self._run, None
            run.finish(exit_code=code)


make = WandB
