"""Download of one file: resumed after an interruption, and renamed once its checksum is right."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from undrift.system.terminal import redraws

ATTEMPTS = 3
WAIT = 1.0
"""Seconds before the second attempt; doubled for each further one."""

TIMEOUT = (10, 60)
"""Seconds to wait for a connection, and for the next bytes."""

CHUNK = 1 << 18
"""Bytes per read."""

TRY_AGAIN = frozenset((408, 425, 429, 500, 502, 503, 504))
"""HTTP status codes of temporary failures."""


class Failed(Exception):
    """A download that cannot be finished; the message says why."""


class Broken(Exception):
    """A download that was interrupted; another attempt may resume it."""


def download(url: str, target: Path, known_hash: str | None, size: int | None = None) -> None:
    """Download a file to `target`, which does not exist before its checksum is right.

    An incomplete file stays in `target` + ".part"; the next attempt, also in a later process,
    resumes it, or starts again if the server does not support that.
    """
    import pooch

    pooch.get_logger().setLevel("WARNING")
    part = target.with_name(target.name + ".part")
    why = ""
    with _progress() as progress:
        bar = progress.add_task(target.name, total=size)
        for attempt in range(ATTEMPTS):
            time.sleep(WAIT * 2 ** (attempt - 1) if attempt else 0)
            resumed = part.exists()
            try:
                pooch.retrieve(
                    url,
                    known_hash,
                    fname=target.name,
                    path=target.parent,
                    downloader=_Downloader(part, size, progress, bar),
                )
                return
            except Broken as error:
                why = str(error)
            except ValueError as error:  # pooch found another checksum and deleted the file
                why = str(error).split(". ")[0]
                if not resumed:  # else the .part file may have been wrong: try a full download
                    break
    raise Failed(why)


@dataclass(frozen=True)
class _Downloader:
    """Downloader for pooch: fetches a URL into a file."""

    part: Path
    size: int | None
    progress: Progress
    bar: TaskID

    def __call__(self, url: str, output_file: str, pooch: Any) -> None:
        have = self.part.stat().st_size if self.part.exists() else 0
        if self.size is not None and have > self.size:
            self.part.unlink()
            have = 0
        if not have or have != self.size:
            self.receive(url, have)
        self.part.replace(output_file)

    def receive(self, url: str, have: int) -> None:
        """Download the rest of `part`, of which `have` bytes are there."""
        import requests
        from urllib3.exceptions import HTTPError

        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
        try:
            with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as answer:
                self.check(answer.status_code, answer.reason)
                resumes = answer.headers.get("Content-Range", "").startswith(f"bytes {have}-")
                if answer.status_code != 206 or not resumes:
                    have = 0  # the server sends the whole file
                length = answer.headers.get("Content-Length", "")
                total = have + int(length) if length.isdigit() else None
                if self.size is not None and total not in (None, self.size):
                    self.part.unlink(missing_ok=True)
                    raise Failed(f"expected {self.size} bytes, the server has {total}")
                self.progress.update(self.bar, total=total, completed=have)
                with self.part.open("ab" if have else "wb") as file:
                    for piece in answer.raw.stream(CHUNK, decode_content=False):
                        file.write(piece)
                        have += len(piece)
                        self.progress.update(self.bar, completed=have)
                        if have > (total or self.size or have):
                            break
        except (requests.RequestException, HTTPError) as error:
            raise Broken(_cause(error)) from None
        expected = total or self.size
        if expected is not None and have != expected:
            if have > expected:
                self.part.unlink()
            raise Broken(f"expected {expected} bytes, found {have}")

    def check(self, status: int, reason: str) -> None:
        """Raise `Broken` for a temporary error, `Failed` for any other."""
        if status == 416:  # range not satisfiable: our part does not belong to the server's file
            self.part.unlink(missing_ok=True)
        if status in TRY_AGAIN or status == 416:
            raise Broken(f"the server answered {status} {reason}")
        if status not in (200, 206):
            raise Failed(f"the server answered {status} {reason}")


@contextmanager
def _progress() -> Iterator[Progress]:
    """A progress bar on stderr if that is a terminal that can redraw it, else nothing."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not redraws(console)) as progress:
        yield progress


def _cause(error: BaseException) -> str:
    """The innermost error's message, without the wrappers of requests and urllib3."""
    seen: set[int] = set()
    while id(error) not in seen:
        seen.add(id(error))
        inner = getattr(error, "reason", None) or next(iter(error.args), None)
        if isinstance(inner, BaseException):
            error = inner
    text = str(error) or type(error).__name__
    return text.split("): ", 1)[-1]  # without the connection object's repr
