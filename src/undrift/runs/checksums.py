"""Checksums of what is final in a run directory, to detect damage.

Files have a SHA-256, which `sha256sum` can check and which can be published with a model. Failures
have a CRC-32, and so have the rows of a trial: it is extended by each new row, in all sessions.
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
    """The contents of checksums.json.

    files     path in the folder → size and SHA-256
    rows      trial → round of its last final row, number of rows up to it, and their CRC-32
    failures  trial → CRC-32 of its failure
    damage    why checksums.json itself cannot be used; "" if it can

    What has no checksum counts as undamaged. So a checksum is written after what it covers, and
    removed before that is changed: a kill in between leaves no wrong checksum.
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
        except Exception as error:  # a damaged file may hold anything
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
        """Write checksums.json, if its contents have changed."""
        content = self._content()
        if content != self._written:
            text = json.dumps(content | {"crc32": _crc(content)}, indent=1)
            replace_file(self.path, text.encode() + b"\n")
            self._written = content

    def cover(self, path: Path, content: bytes) -> None:
        """Set the checksum of a file with this content."""
        self.files[self._name(path)] = _sums(content)

    def forget(self, path: Path) -> None:
        """Remove the checksum of a file, if it has one."""
        self.files.pop(self._name(path), None)

    def covers(self, path: Path) -> bool:
        return self._name(path) in self.files

    def cover_model(self, path: Path) -> str:
        """Check a model, and set its checksum if it has none; returns the damage, "" if none."""
        if self.covers(path):
            return self.wrong(path)
        try:
            read_tensors(path)
        except Damaged as error:
            return str(error)
        self.cover(path, path.read_bytes())
        return ""

    def wrong(self, path: Path) -> str:
        """What is wrong with a file; "" if nothing is, or if it has no checksum."""
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
        """Whether a failure agrees with its checksum, if it has one."""
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
