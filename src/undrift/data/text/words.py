"""Token ids of texts: stored once in a flat array, cut into samples when a batch is made.

A sample is a start in that array and, where samples differ in length, a token count. So overlapping
windows of 80 characters take 4 bytes each, and bags of words are never stored.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, ClassVar, cast

from undrift.config import UndriftError
from undrift.data.files.formats import LIMIT, reading, refuse, zip_member
from undrift.later import Tensor, np, torch

PAD, UNKNOWN = 0, 1
"""Token ids of padding and of words outside the vocabulary; words follow."""

NO_TARGET = -100
"""Target id ignored by loss and accuracy (torch's `ignore_index`)."""

LONGEST_LINE = 2**20
"""Characters; longer lines are split."""

WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")


def words(text: str) -> list[str]:
    """Lower-case words of a text: runs of letters and digits, with apostrophes inside."""
    return WORD.findall(text.lower())


def most_frequent(texts: Iterable[Iterable[str]], size: int | None) -> tuple[str, ...]:
    """The `size` most frequent words, by descending frequency, then alphabetically."""
    counts = Counter(word for text in texts for word in text)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    return tuple(ranked[:size])


@dataclass(frozen=True, eq=False)
class Windows:
    """Window starts in `text` to token ids (batch, length)."""

    fixed: ClassVar[bool] = True

    text: Tensor = field(repr=False)
    length: int

    def __call__(self, starts: Tensor, rng: np.random.Generator | None = None) -> Tensor:
        places = starts.cpu().long()[:, None] + torch.arange(self.length)
        return self.text[places].to(starts.device, torch.int64)


@dataclass(frozen=True, eq=False)
class Sequences:
    """(start, count) pairs to token ids (batch, length), padded with PAD.

    words  the word of each token id; "" for special ids
    """

    fixed: ClassVar[bool] = True

    tokens: Tensor = field(repr=False)
    length: int
    words: tuple[str, ...] = field(repr=False)

    def __call__(self, rows: Tensor, rng: np.random.Generator | None = None) -> Tensor:
        starts, counts = rows.cpu().long().unbind(1)
        steps = torch.arange(self.length)
        inside = steps < counts[:, None]
        places = torch.where(inside, starts[:, None] + steps, 0)
        return torch.where(inside, self.tokens[places].long(), PAD).to(rows.device)


@dataclass(frozen=True, eq=False)
class Bags:
    """(start, count) pairs to normalised word counts (batch, words).

    unit  divide counts by their Euclidean norm, else by their sum. Shares are small numbers, for
          which plain SGD needs step sizes that are too large for a model's bias.
    """

    fixed: ClassVar[bool] = True

    tokens: Tensor = field(repr=False)
    words: tuple[str, ...] = field(repr=False)
    unit: bool = False

    def __call__(self, rows: Tensor, rng: np.random.Generator | None = None) -> Tensor:
        starts, counts = rows.cpu().long().unbind(1)
        owners = torch.repeat_interleave(torch.arange(len(rows)), counts)
        before = torch.cumsum(counts, 0) - counts
        places = torch.arange(len(owners)) + (starts - before)[owners]
        bags = torch.zeros(len(rows), len(self.words))
        bags.index_put_(
            (owners, self.tokens[places].long()), torch.ones(len(owners)), accumulate=True
        )
        sizes = bags.norm(dim=1) if self.unit else counts
        return (bags / sizes.clamp(min=1)[:, None]).to(rows.device)


def flatten(texts: Sequence[Sequence[int]], largest: int) -> tuple[Tensor, Tensor]:
    """All token ids in one array, of the type that `largest` needs, and (start, count) pairs."""
    counts = np.fromiter((len(text) for text in texts), np.int64, len(texts))
    kind = np.int16 if largest < 2**15 else np.int32
    flat = np.fromiter((number for text in texts for number in text), kind, int(counts.sum()))
    rows = np.stack([np.cumsum(counts) - counts, counts], axis=1)
    if not len(flat):
        flat = np.zeros(1, kind)  # `Sequences` looks up position 0 for padding
    return torch.from_numpy(flat), torch.from_numpy(rows)


def bags(texts: Iterable[Iterable[str]], vocabulary: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Token ids and (start, count) pairs for `Bags`; words outside the vocabulary are dropped."""
    number = {word: i for i, word in enumerate(vocabulary)}
    return flatten(
        [[number[word] for word in text if word in number] for text in texts], len(number)
    )


def sequences(
    texts: Iterable[Sequence[str]], vocabulary: Sequence[str], length: int
) -> tuple[Tensor, Tensor]:
    """Token ids and (start, count) pairs for `Sequences`; texts are truncated to `length`."""
    number = {word: i for i, word in enumerate(vocabulary, UNKNOWN + 1)}
    return flatten(
        [[number.get(word, UNKNOWN) for word in text[:length]] for text in texts],
        len(number) + UNKNOWN,
    )


def lines(path: Path, encoding: str, member: str = "") -> Iterator[str]:
    """Lines of a text file: plain, gzipped, or `member` of a zip archive."""
    read = 0
    with reading(path, f"{encoding} text"), _unpacked(path, member) as file:
        text = io.TextIOWrapper(file, encoding=encoding, newline="")
        while line := text.readline(LONGEST_LINE):
            read += len(line)
            if read > LIMIT:
                raise refuse(path, "text", f"more than {LIMIT} characters")
            yield line


@contextmanager
def _unpacked(path: Path, member: str) -> Iterator[BinaryIO]:
    with path.open("rb") as raw:
        magic = raw.read(4)
        raw.seek(0)
        if magic[:2] == b"\x1f\x8b":
            with gzip.GzipFile(fileobj=raw) as file:
                yield cast(BinaryIO, file)
        elif magic == b"PK\x03\x04":
            with zip_member(path, member) as (opened, _):
                yield opened
        else:
            yield raw


def table(path: Path, encoding: str, columns: str, member: str = "") -> Iterator[list[str]]:
    """Rows of a CSV file without a header; `columns` names the expected fields."""
    width = columns.count(",") + 1
    with reading(path, "CSV"):
        for number, row in enumerate(csv.reader(lines(path, encoding, member)), 1):
            if len(row) != width:
                shown = ", ".join(row)[:60]
                raise UndriftError(
                    f"{path}, row {number}: expected {width} columns ({columns}), found "
                    f"{len(row)}: {shown!r}"
                )
            yield row
