"""Files of data sets: found on disk or downloaded, never half and never unchecked.

They live in the data folder, one folder a data set: the one named with `use_data_dir` (--data-dir),
else that of the environment variable UNDRIFT_DATA_DIR, else the system's cache folder.
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
    """A file as its authors publish it.

    name         path below the folder of its data set
    sha256, md5  its published checksums; the first that is known is compared
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
    """What this process was told to use."""

    folder: Path | None = None
    mirror: str | None = None


_chosen = _Chosen()


def use_data_dir(path: str | Path | None) -> None:
    """Look for data in this folder, and download into it; None is the default folder again.

    Files found in it are yours and are used as they are, with a notice where they are not the
    published ones; files in the default folder must be the published ones.
    """
    folder = None if path is None else Path(path).expanduser()
    if folder is not None and folder.exists() and not folder.is_dir():
        raise UndriftError(f"--data-dir {path}: this is a file; name the folder that holds it")
    _chosen.folder = folder


def use_mirror(url: str | None) -> None:
    """Download URL/DATASET/FILE in place of the published addresses; None is those again."""
    if url is not None and not url.startswith(("http://", "https://")):
        raise UndriftError(f"mirror {url}: must start with http:// or https://; for files on "
                           "disk use --data-dir")  # fmt: skip
    _chosen.mirror = url


def data_dir() -> Path:
    """The folder that data are looked for in and downloaded into."""
    if _chosen.folder is not None:
        return _chosen.folder
    named = os.environ.get("UNDRIFT_DATA_DIR")
    return Path(named).expanduser() if named else cache_folder()


def locate(dataset: str, files: Sequence[File], folders: Sequence[str] = ()) -> dict[str, Path]:
    """Paths of the files, downloaded if need be.

    Each is looked for in data_dir()/dataset, in the other `folders` of data_dir(), and in
    data_dir() itself; what is in none of them is downloaded into the first.
    """
    strange: list[str] = []
    paths = {
        file.name: _on_disk(dataset, file, folders, strange) or _download(dataset, file)
        for file in files
    }
    if strange:
        more = f"; {len(strange) - 1} more like it" if len(strange) > 1 else ""
        notice(f"{strange[0]}{more}: used because it is in the data folder that you named")
    return paths


def find(dataset: str, names: Iterable[str], folders: Sequence[str] = ()) -> dict[str, Path] | None:
    """Paths of files that are all in one of the folders where `locate` looks; else None."""
    names = list(names)
    for folder in (dataset, *folders, ""):
        paths = {name: data_dir() / folder / name for name in names}
        if all(path.is_file() for path in paths.values()):
            return paths
    return None


def missing(dataset: str, files: Sequence[File], folders: Sequence[str] = ()) -> list[File]:
    """The files that `locate` would have to download, going by names alone."""
    return [file for file in files if find(dataset, [file.name], folders) is None]


def digest(path: Path, kind: str = "md5") -> str:
    """The checksum of a file, worked out once as long as the file stays as it is."""
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
    """Tell the user something once, on stderr unless logging is set up otherwise."""
    log.warning("undrift: %s", text)


def _on_disk(dataset: str, file: File, folders: Sequence[str], strange: list[str]) -> Path | None:
    """The file, if it is there and is either the published one or the user's own."""
    for folder in (dataset, *folders, ""):
        path = data_dir() / folder / file.name
        difference = _difference(path, file) if path.is_file() else None
        if difference is None and path.is_file():
            return path
        if difference is not None:
            said = f"{path} is not the published file ({difference})"
            if _chosen.folder is not None:
                strange.append(said)
                return path
            notice(f"{said}; it is fetched again")
    return None


def _difference(path: Path, file: File) -> str | None:
    """How a file differs from the published one."""
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
            f"the file into {target.parent}; or name a folder that has it with --data-dir, or a "
            "mirror with UNDRIFT_DATA_MIRROR"
        ) from None
    return target


@contextmanager
def _locked(target: Path) -> Iterator[None]:
    """Inside the block, no other process downloads this file; afterwards nothing is left of it."""
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
