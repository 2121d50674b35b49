"""What the sets of texts have in common."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from undrift.config import UndriftError
from undrift.data.fetch import File, data_dir, find, locate, missing
from undrift.data.source import Source
from undrift.data.sources.file_set import FileSet
from undrift.data.text import Bags, Sequences, bags, most_frequent, sequences

Documents = tuple[list[list[str]], list[int]]
"""The words of each text, and its class."""


class TextSet(FileSet):
    """Sets of texts."""

    def path(self, official: File, others: Sequence[str] = (), named: str | None = None) -> Path:
        """The path of the file that is `named`, or else of the official one.

        The same content under `others` of the names, that is, unpacked or packed in another way,
        saves the download.
        """
        for name in (named,) if named else others:
            paths = find(self.folder, [name], self.layouts)
            if paths and (named or missing(self.folder, [official], self.layouts)):
                return paths[name]
        if named:
            where = ", ".join(str(data_dir() / name) for name in (self.folder, *self.layouts))
            raise UndriftError(f"{self}: there is no {named} in {where}; give its path")
        return locate(self.folder, [official], self.layouts)[official.name]


def classified(train: Documents, test: Documents, form: str, size: int, length: int) -> Source:
    """Texts with a class each as word numbers, in the form of "sequence"s or of "bag"s."""
    vocabulary = most_frequent(train[0], size)
    texts = [*train[0], *test[0]]
    transform: Bags | Sequences
    if form == "bag":
        tokens, rows = bags(texts, vocabulary)
        transform = Bags(tokens, vocabulary, unit=True)
    else:
        tokens, rows = sequences(texts, vocabulary, length)
        transform = Sequences(tokens, length, ("", "", *vocabulary))
    targets = torch.tensor([*train[1], *test[1]])
    n = len(train[0])
    return Source(
        rows[:n],
        targets[:n],
        rows[n:],
        targets[n:],
        classes=int(targets.max()) + 1,
        transform=transform,
    )
