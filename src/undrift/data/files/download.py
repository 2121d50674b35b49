"""One download: resumed where it broke off, checked, and only then given its name."""

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

ATTEMPTS = 3
WAIT = 1.0
"""Seconds before the second attempt; each later one waits twice as long as the one before it."""

TIMEOUT = (10, 60)
"""Seconds to wait for a connection, and for the next bytes."""

CHUNK = 1 << 18

TRY_AGAIN = frozenset((408, 425, 429, 500, 502, 503, 504))
"""Answers of a server that may change in a moment."""


class Failed(Exception):
    """A download that cannot be finished, and why."""


class Broken(Exception):
    """A download that broke off; another attempt may go on from there."""


def download(url: str, target: Path, known_hash: str | None, size: int | None = None) -> None:
    """Fetch a file into `target`, which does not exist before its checksum is right.

    Half a file waits in `target` + ".part", and the next attempt, now or another day, continues
    it; a server that cannot do so sends it from the start.
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
                if not resumed:
                    break
    raise Failed(why)


@dataclass(frozen=True)
class _Downloader:
    """What pooch calls to fetch a URL into a file."""

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
        """Bring `part`, which has so many bytes, to its full length."""
        import requests
        from urllib3.exceptions import HTTPError

        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
        try:
            with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as answer:
                self.check(answer.status_code, answer.reason)
                goes_on = answer.headers.get("Content-Range", "").startswith(f"bytes {have}-")
                if answer.status_code != 206 or not goes_on:
                    have = 0
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
        """Stop at once where the server says no."""
        if status == 416:  # it has no such range: what we have is no beginning of what it has
            self.part.unlink(missing_ok=True)
        if status in TRY_AGAIN or status == 416:
            raise Broken(f"the server answered {status} {reason}")
        if status not in (200, 206):
            raise Failed(f"the server answered {status} {reason}")


@contextmanager
def _progress() -> Iterator[Progress]:
    """A bar on stderr if that is a terminal, else nothing."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        yield progress


def _cause(error: BaseException) -> str:
    """The innermost reason, which says it best."""
    seen: set[int] = set()
    while id(error) not in seen:
        seen.add(id(error))
        inner = getattr(error, "reason", None) or next(iter(error.args), None)
        if isinstance(inner, BaseException):
            error = inner
    text = str(error) or type(error).__name__
    return text.split("): ", 1)[-1]  # without the connection's own name
