"""Atomic file writes, with errors that say what to do."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from undrift.config import UndriftError

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_ROOM = "make room, or give another folder; what was saved before is intact"
_ALLOW = "make it writable for you, or give another folder"
_KIND = "a file or folder is in the way; give another folder"
ADVICE = {
    **dict.fromkeys(NO_ROOM, _ROOM),
    **dict.fromkeys((errno.EACCES, errno.EPERM), _ALLOW),
    **dict.fromkeys((errno.EEXIST, errno.ENOTDIR, errno.EISDIR), _KIND),
    errno.EROFS: "the disk is read-only; give a folder on another one",
    errno.ENAMETOOLONG: "give a shorter name",
}
"""what to do about an error"""


class Damaged(UndriftError):
    """A file's content is not what was written."""


@contextmanager
def writing(path: object) -> Iterator[None]:
    """Inside the block, an `OSError` becomes an `UndriftError` about writing `path`."""
    try:
        yield
    except OSError as error:
        advice = ADVICE.get(error.errno or 0, "give another folder")
        why = error.strerror or error
        raise UndriftError(f"{path} cannot be written ({why}); {advice}") from error


def replace_file(path: Path, content: bytes) -> None:
    """Write a file atomically and durably: after a crash it has the old or the new content."""
    partial = path.with_name(f".{path.name}.partial")
    with writing(path):
        try:
            with partial.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        except OSError:
            partial.unlink(missing_ok=True)  # free the space: the disk may be full
            raise
        sync(path.parent)  # or a crash may undo the rename


def sync(folder: Path) -> None:
    """Wait until the names of the files in a folder are on disk (fsync)."""
    if os.name == "nt":
        return  # Windows cannot sync a folder
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
