"""What all data sets that are read from files have in common."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from undrift.config import Config
from undrift.data.files.fetch import File, data_dir, find
from undrift.data.source import Source


class FileSet(Config):
    """Samples that are read from files, the same for every seed, and read only once in a row.

    folder   where they lie in the data folder
    files    what is downloaded if they do not; none where the user has to make them
    layouts  other folders to look in, such as those of torchvision
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
        """Lists of files with the same content, unpacked or packed in another way."""
        return ()

    def present(self, file: File) -> list[Path]:
        """Where a file lies, or else what may stand in for it; nothing if it must be downloaded."""
        for names in ([file.name], *self.instead(file)):
            if paths := find(self.folder, names, self.layouts):
                return list(paths.values())
        return []


@functools.lru_cache(maxsize=1)
def _read(samples: FileSet, folder: Path) -> Source:
    return samples.read()
