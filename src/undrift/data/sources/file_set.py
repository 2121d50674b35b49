"""Base class of data sets read from files."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from undrift.config import Config
from undrift.data.files.fetch import File, data_dir, find
from undrift.data.source import Source


class FileSet(Config):
    """Samples from files, the same for every seed; the last data set read is cached.

    folder   their folder in the data folder
    files    what to download if they are missing; empty if the user has to make them
    layouts  other folders to look in, such as torchvision's
    """

    folder: ClassVar[str]
    files: ClassVar[tuple[File, ...]]
    layouts: ClassVar[tuple[str, ...]] = ()

    def load(self, seed: int) -> Source:
        return _read(self, data_dir())

    def read(self) -> Source:
        """The samples, from the files."""
        raise NotImplementedError

    def instead(self, file: File) -> Sequence[Sequence[str]]:
        """Lists of alternative files with the same content, for example unpacked."""
        return ()

    def present(self, file: File) -> list[Path]:
        """Paths of a file or of its alternatives; empty if it must be downloaded."""
        for names in ([file.name], *self.instead(file)):
            if paths := find(self.folder, names, self.layouts):
                return list(paths.values())
        return []


@functools.lru_cache(maxsize=1)
def _read(samples: FileSet, folder: Path) -> Source:
    return samples.read()
