"""Care with files: one process at a time in a folder, and errors that say what to do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from undrift.config import UndriftError


class Lock:
    """Holds a folder, which is made if need be, until `close` or the end of the process."""

    def __init__(self, folder: str | Path) -> None:
        from filelock import FileLock, Timeout

        folder = Path(folder)
        self._lock = FileLock(folder / ".lock", thread_local=False)
        self._holder = folder / ".pid"  # beside the lock, which some systems let nobody read
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            try:
                self._lock.acquire(timeout=0)
            except Timeout:
                raise UndriftError(
                    f"{folder} is in use by {self._who()}; "
                    "wait for it to end, stop it, or give another folder"
                ) from None
            self._holder.write_text(str(os.getpid()))

    def _who(self) -> str:
        try:
            return f"process {int(self._holder.read_text())}"
        except (OSError, ValueError):  # it has not written its number yet
            return "another process"

    def close(self) -> None:
        """Let go of the folder."""
        if self._lock.is_locked:
            self._holder.unlink(missing_ok=True)
            self._lock.release()


@contextmanager
def writing(path: object) -> Iterator[None]:
    """Inside the block, what the system says against writing becomes an `UndriftError`."""
    try:
        yield
    except OSError as error:
        raise UndriftError(
            f"{path} cannot be written ({error.strerror or error}); make room or give another "
            "folder. What was saved before is intact"
        ) from error


def sync(folder: Path) -> None:
    """Wait until the names of the files in a folder are on the disk."""
    if os.name == "nt":
        return  # Windows has no such call
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
