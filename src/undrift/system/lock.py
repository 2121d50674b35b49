"""Locks: one process at a time in a folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from undrift.config import UndriftError
from undrift.system.files import writing

PATIENCE = 0.1
"""seconds to wait for a lock: `holder` in another process takes it for a moment"""


class Lock:
    """Exclusive lock on a folder (created if missing), until `close` or the end of the process."""

    def __init__(self, folder: str | Path) -> None:
        from filelock import FileLock, Timeout

        folder = Path(folder)
        self._lock = FileLock(folder / ".lock", thread_local=False)
        self._holder = folder / ".pid"  # not in .lock: some systems forbid reading a locked file
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            try:
                self._lock.acquire(timeout=PATIENCE, poll_interval=0.01)
            except Timeout:
                raise UndriftError(
                    f"{folder} is in use by {self._who()}; "
                    "wait for it to end, stop it, or give another folder"
                ) from None
            self._holder.write_text(str(os.getpid()))

    def _who(self) -> str:
        number = _number(self._holder)  # None if the process has not written it yet
        return "another process" if number is None else f"process {number}"

    def close(self) -> None:
        """Release the lock."""
        if self._lock.is_locked:
            self._holder.unlink(missing_ok=True)
            self._lock.release()


def holder(folder: Path) -> int | None:
    """Id of the process that holds the lock of a folder; None if there is none.

    A killed process leaves its .pid file behind, but not its lock, so the lock decides.
    """
    number = _number(folder / ".pid")
    return number if number is not None and _held(folder / ".lock", number) else None


def _held(path: Path, process: int) -> bool:
    """Whether the lock is held; where that cannot be tested, whether the process is alive."""
    if sys.platform == "win32":
        return _alive(process)
    from fcntl import LOCK_NB, LOCK_SH, flock

    try:
        with path.open("rb") as file:
            flock(file, LOCK_SH | LOCK_NB)  # shared: several processes may test at once
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    except OSError:  # no permission, or a file system without locks
        return _alive(process)
    return False


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _alive(process: int) -> bool:
    if process <= 0:
        return False
    if sys.platform == "win32":  # os.kill would end the process there
        import ctypes

        query = 0x1000  # PROCESS_QUERY_LIMITED_INFORMATION
        handle = ctypes.windll.kernel32.OpenProcess(query, False, process)
        ctypes.windll.kernel32.CloseHandle(handle)
        return bool(handle)
    try:
        os.kill(process, 0)
    except PermissionError:  # it exists and belongs to another user
        return True
    except (OSError, OverflowError):
        return False
    return True
