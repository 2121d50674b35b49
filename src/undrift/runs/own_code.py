"""Users' own code in runs: found again when a run goes on, and executed only if the user ran it.

A run directory names the files that its experiment uses. It may come from somebody else, so a name
in it is no reason to execute anything: the content must be what the run began with, and must have
been used in a run by this user before, or be named in the command.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath

from undrift.config import UndriftError, own
from undrift.system.cache import cache_folder, refuse_strangers
from undrift.system.files import replace_file


def remember(code: Mapping[str, str]) -> None:
    """Note that the user ran code with these checksums; where that fails, resume asks for it."""
    with contextlib.suppress(OSError, UndriftError):
        for checksum in code.values():
            _mark(checksum).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(_mark(checksum), b"")


@contextlib.contextmanager
def vetted(
    run: Path, code: Mapping[str, str], paths: Mapping[str, str], named: Sequence[Path] = ()
) -> Iterator[None]:
    """Within, own code is that which the run began with, and that the user ran before or named.

    code   checksums that the run began with     paths  where the last session found each file
    """
    trusted = [path.resolve() for path in named]

    def find(place: str) -> Path:
        there = [path for path in _candidates(place, paths, trusted) if path.is_file()]
        if not there:
            raise UndriftError(
                f"{run} uses {place}, which is not there; say where it is with --code FILE"
            )
        for path in there:
            if hashlib.sha256(path.read_bytes()).hexdigest() == code.get(place):
                if path not in trusted and not _ran_before(code[place]):
                    raise UndriftError(
                        f"{run} would execute {path}, which you have not run on this machine; if "
                        f"you trust it, add --code {path}"
                    )
                return path
        raise UndriftError(edited(run, place))

    with own.finding(find):
        yield


def edited(run: Path, place: str) -> str:
    """The error for code that is no longer what a run began with."""
    return (
        f"{place} was edited after {run} began, whose results depend on it; undo that, or run the "
        "new code in another folder with --out: finished trials stay in the old one"
    )


def _candidates(place: str, paths: Mapping[str, str], named: Sequence[Path]) -> Iterator[Path]:
    """Files that may be a place: those the user names, as the name is read here, and as it was."""
    yield from (path for path in named if path.name == PurePath(place).name or path.stem == place)
    with contextlib.suppress(UndriftError):
        yield own.find(place)
    if place in paths:
        yield Path(paths[place])


def _ran_before(checksum: str) -> bool:
    mark = _mark(checksum)
    try:
        mark.stat()
    except OSError:  # it is not there, or the folder is another user's
        return False
    refuse_strangers(mark.parent, "the list of code that you ran is not read")
    return True


def _mark(checksum: str) -> Path:
    return cache_folder() / "code" / checksum
