"""Files: written whole or not at all, with errors that say what to do."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from undrift.config import UndriftError

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Damaged(UndriftError):
    """A file does not hold what was written to it."""


@contextmanager
def writing(path: object) -> Iterator[None]:
    """Inside the block, what the system says against writing becomes an `UndriftError`."""
    try:
        yield
    except OSError as error:
        advice = "make room or give" if error.errno in NO_ROOM else "give"
        raise UndriftError(
            f"{path} cannot be written ({error.strerror or error}); {advice} another folder. "
            "What was saved before is intact"
        ) from error


def replace_file(path: Path, content: bytes) -> None:
    """Write a file that is there whole or as it was before, whatever happens meanwhile."""
    partial = path.with_name(f".{path.name}.partial")
    with writing(path):
        try:
            with partial.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        except OSError:
            partial.unlink(missing_ok=True)  # or it would keep the room that is lacking
            raise
        sync(path.parent)


def sync(folder: Path) -> None:
    """Wait until the names of the files in a folder are on the disk."""
    if os.name == "nt":
        return  # Windows has no such call
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
