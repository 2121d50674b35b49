"""Stack Overflow: predict the next word of a sentence; one client per user."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from itertools import islice
from pathlib import Path

from undrift.config import UndriftError, whole
from undrift.data.files.fetch import data_dir, find
from undrift.data.files.formats import reading
from undrift.data.source import Source
from undrift.data.sources.texts import TextSet
from undrift.data.text.words import NO_TARGET, PAD, Sequences, flatten, lines, most_frequent
from undrift.later import Tensor, np, torch
from undrift.system.extras import require

LINES = ("stackoverflow.jsonl", "stackoverflow.jsonl.gz")
HDF5 = ("stackoverflow_train.h5", "stackoverflow_test.h5")
COUNTS = "stackoverflow.word_count"

SPECIAL = 4
"""Number of special tokens: padding (id 0), and after the words unknown word, begin, end."""

Sentences = Iterator[tuple[str, str, bool]]
"""User, words separated by blanks, and whether it is a training sentence."""


@dataclass(frozen=True)
class StackOverflow(TextSet):
    """Sentences of questions and answers; predict the next word at every position.

    vocabulary  number of words, the most frequent; there are 4 classes more, for special tokens
    length      predicted words per sentence; shorter sentences have an end token
    clients     number of users, the first in the files (of 342,477); None: all
    sentences   number of training sentences per user, the first; None: all
    test        number of test sentences, the first; None: all

    Inputs and targets are token ids (n, length): 0 for padding, words from 1 on, then unknown word,
    begin and end. Targets at padding are -100. The vocabulary comes from the file
    stackoverflow.word_count if it exists, else from the training sentences.

    The folder stackoverflow of the data folder must have one of these layouts:
    - the HDF5 files of TensorFlow Federated, stackoverflow_train.h5 and stackoverflow_test.h5, with
      examples/USER/tokens (needs h5py);
    - JSON lines, stackoverflow.jsonl or stackoverflow.jsonl.gz, each line such as
      {"client_id": "1", "tokens": "how do i ...", "split": "train"}, split being train or test.

    Reference: Reddi et al., Adaptive federated optimization, ICLR 2021.
    """

    folder = "stackoverflow"
    files = ()

    _: KW_ONLY
    vocabulary: int = whole(10_000, ge=1)
    length: int = whole(20, ge=1)
    clients: int | None = whole(1000, ge=1, optional=True)
    sentences: int | None = whole(128, ge=1, optional=True)
    test: int | None = whole(10_000, ge=1, optional=True)

    def read(self) -> Source:
        owners: list[int] = []
        train: list[list[str]] = []
        test: list[list[str]] = []
        numbers: dict[str, int] = {}
        sizes: list[int] = []
        for user, text, training in self._sentences():
            words = text.split()[: self.length]
            if not words:
                continue
            if not training:
                if self.test is None or len(test) < self.test:
                    test.append(words)
                continue
            if user not in numbers:
                if len(numbers) == self.clients:
                    continue
                numbers[user] = len(numbers)
                sizes.append(0)
            client = numbers[user]
            if self.sentences is None or sizes[client] < self.sentences:
                sizes[client] += 1
                owners.append(client)
                train.append(words)
        if not train or not test:
            raise UndriftError(
                f"{self}: found {len(train)} training and {len(test)} test sentences in "
                f"{data_dir() / self.folder}; both are needed"
            )
        known = self._words(train)
        tokens, rows, targets = self._numbered([*train, *test], known)
        n = len(train)
        return Source(
            rows[:n],
            targets[:n],
            rows[n:],
            targets[n:],
            classes=len(known) + SPECIAL,
            client_ids=np.array(owners, dtype=np.int32),
            transform=Sequences(tokens, self.length, ("", *known, "", "", "")),
        )

    def _numbered(
        self, texts: list[list[str]], known: tuple[str, ...]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Flat token ids, (start, count) pairs of the inputs, and targets."""
        number = {word: i for i, word in enumerate(known, PAD + 1)}
        unknown, begin, end = range(len(known) + 1, len(known) + SPECIAL)
        tokens, rows = flatten(
            [
                [begin, *(number.get(w, unknown) for w in text), end][: self.length + 1]
                for text in texts
            ],
            end,
        )
        rows[:, 1] -= 1  # inputs are all tokens but the last, targets all but the first
        following = Sequences(tokens, self.length, ())(rows + torch.tensor([1, 0]))
        targets = torch.where(following == PAD, NO_TARGET, following)
        return tokens, rows, targets.to(tokens.dtype)

    def _words(self, train: list[list[str]]) -> tuple[str, ...]:
        paths = find(self.folder, [COUNTS])
        if not paths:
            return most_frequent(train, self.vocabulary)
        counts = islice(lines(paths[COUNTS], "utf-8"), self.vocabulary)
        return tuple(line.split()[0] for line in counts if line.strip())

    def _sentences(self) -> Sentences:
        paths = find(self.folder, HDF5)
        if paths:
            train, test = (paths[name] for name in HDF5)
            yield from _hdf5(train, True, self.clients, self.sentences)
            yield from islice(_hdf5(test, False), self.test)
            return
        for name in LINES:
            paths = find(self.folder, [name])
            if paths:
                yield from _json_lines(paths[name])
                return
        raise UndriftError(
            f"StackOverflow: expected {HDF5[0]} and {HDF5[1]}, or {LINES[0]} (one object with "
            f"client_id, tokens and split per line), in {data_dir() / self.folder}; export the "
            "data from TensorFlow Federated, or give the folder above with --data-dir"
        )


def _json_lines(path: Path) -> Sentences:
    for number, line in enumerate(lines(path, "utf-8"), 1):
        try:
            entry = json.loads(line)
            user, text, split = (str(entry[key]) for key in ("client_id", "tokens", "split"))
        except (ValueError, KeyError, TypeError, RecursionError):
            split = ""
        if split not in ("train", "test"):
            raise UndriftError(
                f"{path}, line {number}: expected an object with client_id, tokens and split "
                f"(train or test), found {line[:60]!r}"
            )
        yield user, text, split == "train"


def _hdf5(
    path: Path, training: bool, users: int | None = None, most: int | None = None
) -> Sentences:
    h5py = require("h5py", "data", path)
    with reading(path, "HDF5"), h5py.File(path, "r") as file:
        for user in islice(file["examples"], users):
            for text in file["examples"][user]["tokens"][:most]:
                yield user, text.decode("utf-8"), training
