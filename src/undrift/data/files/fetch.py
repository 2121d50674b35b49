"""Files of data sets, found on disk or downloaded.

The data folder has one folder per data set. It is the one given with `use_data_dir` (--data-dir),
else that of the environment variable UNDRIFT_DATA_DIR, else the cache folder.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from undrift.config import UndriftError
from undrift.data.files.download import Failed, download
from undrift.system.cache import cache_folder

log = logging.getLogger("undrift")


@dataclass(frozen=True)
class File:
    """A published file.

    name         path in the folder of its data set
    sha256, md5  published checksums; the first that is known is compared
    size         bytes
    """

    name: str
    url: str
    sha256: str | None = None
    md5: str | None = None
    size: int | None = None

    @property
    def known_hash(self) -> str | None:
        """The checksum with its kind, such as md5:f68b..."""
        if self.sha256:
            return f"sha256:{self.sha256}"
        return f"md5:{self.md5}" if self.md5 else None


@dataclass
class _Chosen:
    """Settings of this process."""

    folder: Path | None = None
    download: bool = True
    mirror: str | None = None


_chosen = _Chosen()


def use_data_dir(path: str | Path | None, *, download: bool = False) -> None:
    """Look for data in this folder; None resets to the default folder, to which it downloads.

    download  also download into this folder what it lacks
    Files in it are used as they are, with a warning if they differ from the published ones; files
    in the default folder that differ are downloaded again.
    """
    folder = None if path is None else Path(path).expanduser()
    if folder is not None and folder.exists() and not folder.is_dir():
        raise UndriftError(f"--data-dir {path}: this is a file; give the folder that holds it")
    _chosen.folder, _chosen.download = folder, download or folder is None


def use_mirror(url: str | None) -> None:
    """Download URL/DATASET/FILE instead of the published addresses; None resets to those."""
    if url is not None and not url.startswith(("http://", "https://")):
        raise UndriftError(f"mirror {url}: must start with http:// or https://; for files on "
                           "disk use --data-dir")  # fmt: skip
    _chosen.mirror = url


def data_dir() -> Path:
    """The data folder."""
    if _chosen.folder is not None:
        return _chosen.folder
    named = os.environ.get("UNDRIFT_DATA_DIR")
    return Path(named).expanduser() if named else cache_folder()


def locate(dataset: str, files: Sequence[File], folders: Sequence[str] = ()) -> dict[str, Path]:
    """Paths of the files, downloaded if necessary.

    Each is looked for in data_dir()/dataset, in the other `folders` of data_dir(), and in
    data_dir() itself; a file in none of them is downloaded into the first, but not into a folder
    that was given only to look in.
    """
    lacking = [] if _chosen.download else missing(dataset, files, folders)
    if lacking:
        raise UndriftError(_lacks(dataset, lacking))
    different: list[str] = []
    paths = {
        file.name: _on_disk(dataset, file, folders, different) or _download(dataset, file)
        for file in files
    }
    if different:
        more = f"; {len(different) - 1} more like it" if len(different) > 1 else ""
        notice(f"{different[0]}{more}: used because it is in the data folder that you gave")
    return paths


def find(dataset: str, names: Iterable[str], folders: Sequence[str] = ()) -> dict[str, Path] | None:
    """Paths of the files, if one of the folders of `locate` has all of them; else None."""
    names = list(names)
    for folder in (dataset, *folders, ""):
        paths = {name: data_dir() / folder / name for name in names}
        if all(path.is_file() for path in paths.values()):
            return paths
    return None


def missing(dataset: str, files: Sequence[File], folders: Sequence[str] = ()) -> list[File]:
    """The files that `locate` would have to download, judged by name only."""
    return [file for file in files if find(dataset, [file.name], folders) is None]


def _lacks(dataset: str, files: Sequence[File]) -> str:
    """That the data folder lacks files, and what it has."""
    folder, names = data_dir(), ", ".join(file.name for file in files)
    if not folder.is_dir():
        return f"--data-dir {folder}: there is no such folder; give the one that holds {names}"
    found = sorted(one.name for one in folder.iterdir())
    has = ", ".join(found[:10]) + (f" and {len(found) - 10} more" if len(found) > 10 else "")
    return (
        f"--data-dir {folder}: it has no {names} of {dataset}, nor has its folder {dataset}; "
        f"it has {has or 'nothing'}. Leave out --data-dir to download them, or download into it "
        "with `undrift data fetch NAME --data-dir FOLDER`"
    )


def digest(path: Path, kind: str = "md5") -> str:
    """The checksum of a file, cached until its size or modification time changes."""
    facts = path.stat()
    return _digest(path, kind, facts.st_size, facts.st_mtime_ns)


@functools.lru_cache(maxsize=256)
def _digest(path: Path, kind: str, size: int, changed: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(
            file, lambda: hashlib.new(kind, usedforsecurity=False)
        ).hexdigest()


@functools.cache
def notice(text: str) -> None:
    """Log a warning, once per process; it goes to stderr unless logging is configured."""
    log.warning("undrift: %s", text)


def _on_disk(dataset: str, file: File, folders: Sequence[str], different: list[str]) -> Path | None:
    """The file, if it is the published one or in a folder that the user gave."""
    for folder in (dataset, *folders, ""):
        path = data_dir() / folder / file.name
        difference = _difference(path, file) if path.is_file() else None
        if difference is None and path.is_file():
            return path
        if difference is not None:
            said = f"{path} is not the published file ({difference})"
            if _chosen.folder is not None:
                different.append(said)
                return path
            notice(f"{said}; downloading it again")
    return None


def _difference(path: Path, file: File) -> str | None:
    """How a file differs from the published one; None if it does not."""
    size = path.stat().st_size
    if file.size is not None and size != file.size:
        return f"expected {file.size} bytes, found {size}"
    if file.known_hash:
        kind, expected = file.known_hash.split(":")
        found = digest(path, kind)
        if found != expected:
            return f"expected {kind} {expected}, found {found}"
    return None


def _download(dataset: str, file: File) -> Path:
    target = data_dir() / dataset / file.name
    mirror = _chosen.mirror or os.environ.get("UNDRIFT_DATA_MIRROR")
    url = f"{mirror.rstrip('/')}/{dataset}/{quote(file.name)}" if mirror else file.url
    try:
        with _locked(target):
            if not target.is_file() or _difference(target, file):
                download(url, target, file.known_hash, file.size)
    except (Failed, OSError) as error:
        raise UndriftError(
            f"{dataset}/{file.name}: cannot be downloaded from {url}: {error}. Try again; or put "
            f"the file into {target.parent}; or give a folder that has it with --data-dir, or a "
            "mirror with UNDRIFT_DATA_MIRROR"
        ) from None
    return target


@contextmanager
def _locked(target: Path) -> Iterator[None]:
    """Lock a file for download; afterwards, remove the lock and new folders that are empty."""
    from filelock import FileLock

    made = [folder for folder in target.parents if not folder.exists()]
    target.parent.mkdir(parents=True, exist_ok=True)
    lock = target.with_name(f".{target.name}.lock")
    try:
        with FileLock(lock):
            yield
    finally:
        lock.unlink(missing_ok=True)
        for folder in made:
            if not any(folder.iterdir()):
                folder.rmdir()
