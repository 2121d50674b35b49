"""Sums of what is final in a run directory, so that damage to it is noticed.

Files have their SHA-256, which anybody can check with `sha256sum` and publish beside a model. Rows
and failures have a CRC-32, which goes on from row to row and from session to session.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from pathlib import Path
from typing import Any

from undrift.runs.entries import Row, TrialKey
from undrift.runs.layout import RunFile
from undrift.runs.tensor_file import read_tensors
from undrift.system.files import Damaged, replace_file


class Checksums:
    """The sums of a run directory, as they were written last.

    files     size and SHA-256, by the path in the folder
    rows      of each trial: its last row that is final, how many there are up to it, and their sum
    failures  of each trial that has one
    damage    why the sums that are there do not count; "" if they do
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / RunFile.CHECKSUMS
        self.files: dict[str, Row] = {}
        self.rows: dict[TrialKey, Row] = {}
        self.failures: dict[TrialKey, str] = {}
        self.damage = ""
        self._written: Any = None
        try:
            self._take(json.loads(self.path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            pass
        except Exception as error:  # anything may have happened to it
            self.damage = f"{self.path} is damaged ({type(error).__name__}: {error})"

    def _take(self, found: Any) -> None:
        expected = found.pop("crc32")
        if expected != _crc(found):
            raise ValueError("its own checksum is wrong")
        if any(Path(name).is_absolute() or ".." in Path(name).parts for name in found["files"]):
            raise ValueError("it names files outside of the run")
        self.files = dict(found["files"])
        for trial in found["trials"]:
            place = (trial["algorithm"], trial["seed"])
            if "rows" in trial:
                self.rows[place] = trial["rows"] | {"last": int(trial["rows"]["last"])}
            if "failure" in trial:
                self.failures[place] = trial["failure"]
        self._written = self._content()

    def write(self) -> None:
        """Write the sums, if they have changed."""
        content = self._content()
        if content != self._written:
            text = json.dumps(content | {"crc32": _crc(content)}, indent=1)
            replace_file(self.path, text.encode() + b"\n")
            self._written = content

    def cover(self, path: Path, content: bytes) -> None:
        """Note the sum of a file that holds this."""
        self.files[self._name(path)] = _sums(content)

    def covers(self, path: Path) -> bool:
        return self._name(path) in self.files

    def cover_model(self, path: Path) -> str:
        """Note the sum of a model that has none, if it can be read; what is wrong with it."""
        if self.covers(path):
            return self.wrong(path)
        try:
            read_tensors(path)
        except Damaged as error:
            return str(error)
        self.cover(path, path.read_bytes())
        return ""

    def wrong(self, path: Path) -> str:
        """What is wrong with a file; "" if nothing is, or its sum is not known."""
        expected = self.files.get(self._name(path))
        try:
            if expected is None or _sums(path.read_bytes()) == expected:
                return ""
        except FileNotFoundError:
            return "is missing"
        except OSError as error:
            return f"cannot be read ({error.strerror or error})"
        return "is damaged: its checksum is wrong"

    def cover_failure(self, failure: Row) -> None:
        self.failures[failure["algorithm"], failure["seed"]] = _crc(failure)

    def knows(self, failure: Row) -> bool:
        """Whether a failure is what was written, as far as that is known."""
        place = failure["algorithm"], failure["seed"]
        return self.failures.get(place, _crc(failure)) == _crc(failure)

    def _name(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()

    def _content(self) -> dict[str, Any]:
        trials = [
            {"algorithm": place[0], "seed": place[1]}
            | ({"rows": self.rows[place]} if place in self.rows else {})
            | ({"failure": self.failures[place]} if place in self.failures else {})
            for place in dict.fromkeys([*self.rows, *self.failures])
        ]
        return {"files": dict(self.files), "trials": trials}


def _sums(content: bytes) -> Row:
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def _crc(content: Any) -> str:
    return f"{zlib.crc32(json.dumps(content, sort_keys=True).encode()):08x}"
