"""Errors of writing: what to do depends on the cause."""

import errno
import os

import pytest

from undrift.config import UndriftError
from undrift.system.files import writing


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "make room, or give another folder; what was saved before is intact"),
        (errno.EDQUOT, "make room"),
        (errno.EACCES, "make it writable for you, or give another folder"),
        (errno.EPERM, "make it writable for you"),
        (errno.EROFS, "the disk is read-only"),
        (errno.ENOTDIR, "a file or folder is in the way"),
        (errno.ENAMETOOLONG, "give a shorter name"),
        (errno.EIO, "give another folder"),
    ],
)
def test_one_sentence_with_place_cause_and_advice(number: int, advice: str) -> None:
    with pytest.raises(UndriftError) as error, writing("a/b"):
        raise OSError(number, os.strerror(number))
    assert str(error.value).startswith(f"a/b cannot be written ({os.strerror(number)}); {advice}")
