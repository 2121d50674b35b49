"""The folder of a deployment on the server's machine: a Flower app, keys, and the run directory."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from undrift.config import UndriftError, own
from undrift.runs.layout import RunFile
from undrift.system.files import replace_file, writing

LOOPBACK, PORT = "127.0.0.1", 9092


@dataclass(frozen=True)
class DeploymentFolder:
    """A deployment: `undrift deploy init` makes it, and the other commands use it."""

    path: Path

    @property
    def app(self) -> Path:
        """What makes the folder a Flower app."""
        return self.path / "pyproject.toml"

    @property
    def experiment(self) -> Path:
        return self.path / RunFile.SETTINGS

    @property
    def keys(self) -> Path:
        """Secrets of the server, and of nodes until they are handed out."""
        return self.path / "keys"

    @property
    def flower(self) -> Path:
        """Flower's own files: database, logs, copies of apps."""
        return self.path / "flower"

    @property
    def run(self) -> Path:
        """The run directory."""
        return self.path / "run"

    @property
    def messages(self) -> Path:
        """What the server says while it runs."""
        return messages(self.run)

    def address(self, host: str | None, port: int | None) -> tuple[str, int]:
        """Where the gate listens, which is remembered for the next time."""
        path = self.flower / "address.json"
        last: list[Any] = [LOOPBACK, PORT]
        if path.exists():
            last = json.loads(path.read_text(encoding="utf-8"))
        chosen = host or str(last[0]), port or int(last[1])
        with writing(path):
            self.flower.mkdir(mode=0o700, exist_ok=True)
        replace_file(path, json.dumps(chosen).encode())
        return chosen

    @classmethod
    def open(cls, path: Path) -> DeploymentFolder:
        """A folder that `undrift deploy init` has made."""
        found = cls(path.resolve())
        if not found.app.exists() or not found.experiment.exists():
            raise UndriftError(
                f"{path} is not a deployment; make one with `undrift deploy init {path}`"
            )
        return found

    @classmethod
    def make(cls, path: Path, experiment: Path | None = None) -> DeploymentFolder:
        """Write the files of a new deployment.

        experiment  file to deploy, in place of the template's
        """
        made, name = cls(path.resolve()), path.resolve().name
        if not re.fullmatch("[a-z][a-z0-9-]*", name):
            raise UndriftError(
                f"{name!r} cannot name a Flower app; use small letters, digits and -"
            )
        template = files("undrift.deploy").joinpath("template")
        texts = {
            made.path / _filename(one.name): Template(one.read_text(encoding="utf-8")).substitute(
                name=name
            )
            for one in template.iterdir()
        }
        if experiment is not None:
            try:
                texts[made.experiment] = experiment.read_text(encoding="utf-8")
            except OSError as error:
                raise UndriftError(f"{experiment} cannot be read ({error.strerror})") from None
        for one in texts:
            if one.exists():
                raise UndriftError(f"{one} exists already; give another folder")
        with writing(path):
            made.path.mkdir(parents=True, exist_ok=True)
            for one, text in texts.items():
                with one.open("x", encoding="utf-8") as file:
                    file.write(text)
        return made


def beside(folder: Path, place: str) -> Path:
    """The file of a user's own code that a deployment's experiment names."""
    found = own.find(str(folder / place) if place.endswith(".py") else place)
    if not found.is_file():
        raise UndriftError(f"{place} is not in {folder}; put it there: what is there goes to nodes")
    return found


def messages(run: Path) -> Path:
    """What the server says while it runs in a run directory."""
    return run.with_name("server.log")


def _filename(template: str) -> str:
    name = template.removesuffix(".txt")
    return ".gitignore" if name == "gitignore" else name
