"""What all data sets that are read from files have in common."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import ClassVar

from undrift.config import Config
from undrift.data.fetch import File, data_dir
from undrift.data.source import Source


class FileSet(Config):
    """Samples that are read from files, the same for every seed, and read only once in a row.

    folder   where they lie in the data folder
    files    what is downloaded if they do not
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


@functools.lru_cache(maxsize=1)
def _read(samples: FileSet, folder: Path) -> Source:
    return samples.read()
