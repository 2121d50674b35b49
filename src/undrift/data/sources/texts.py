"""Base classes of text data sets."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from undrift.config import UndriftError, choice, text, whole
from undrift.data.files.fetch import File, data_dir, find, locate, missing
from undrift.data.source import Source
from undrift.data.sources.file_set import FileSet
from undrift.data.text.pieces import Pieces
from undrift.data.text.words import (
    Bags,
    Sequences,
    bags,
    flatten,
    most_frequent,
    sequences,
    words,
)
from undrift.later import torch

Documents = tuple[list[str], list[int]]
"""Texts, and the class of each."""


class TextSet(FileSet):
    """Base of text data sets."""

    def path(self, official: File, named: str | None = None) -> Path:
        """The path of the file `named` by the user, else of the official one or an alternative."""
        if named:
            return self._named(named)
        if missing(self.folder, [official], self.layouts):
            for path in self.present(official):
                return path
        return locate(self.folder, [official], self.layouts)[official.name]

    def _named(self, name: str) -> Path:
        own = Path(name).expanduser()
        if paths := find(self.folder, [name], self.layouts):
            return paths[name]
        if own.is_file():
            return own
        where = ", ".join(str(data_dir() / folder) for folder in (self.folder, *self.layouts, ""))
        raise UndriftError(f"{self}: there is no {name} here or in {where}; give its path")


@dataclass(frozen=True)
class ClassifiedTexts(TextSet):
    """Base of text data sets with one class per text; options as in `AGNews`."""

    _: KW_ONLY
    form: str = choice("sequence", "bag", "pieces")
    vocabulary: int = whole(20_000, ge=1)
    length: int = whole(64, ge=3)
    tokenizer: str = text("distilbert-base-uncased")

    def classified(self, train: Documents, test: Documents) -> Source:
        """The texts in the requested `form`."""
        texts, targets = [*train[0], *test[0]], torch.tensor([*train[1], *test[1]])
        n = len(train[0])
        transform: Bags | Sequences
        if self.form == "pieces":
            pieces = Pieces(self.tokenizer)
            tokens, rows = flatten(pieces(texts, self.length), len(pieces.words))
            transform = Sequences(tokens, self.length, pieces.words)
        else:
            split = [words(text) for text in texts]
            known = most_frequent(split[:n], self.vocabulary)
            if self.form == "bag":
                tokens, rows = bags(split, known)
                transform = Bags(tokens, known, unit=True)
            else:
                tokens, rows = sequences(split, known, self.length)
                transform = Sequences(tokens, self.length, ("", "", *known))
        return Source(
            rows[:n],
            targets[:n],
            rows[n:],
            targets[n:],
            classes=int(targets.max()) + 1,
            transform=transform,
        )
