"""Sentiment140: is a tweet happy or sad? One client per user."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from undrift.config import UndriftError, choice, real, text, whole
from undrift.data.files.fetch import File
from undrift.data.partition.split import training_mask
from undrift.data.source import Source
from undrift.data.sources.texts import TextSet
from undrift.data.text.words import Bags, bags, most_frequent, table
from undrift.later import Tensor, np, torch

ARCHIVE = File(
    "trainingandtestdata.zip",
    "https://cs.stanford.edu/people/alecmgo/trainingandtestdata.zip",
    sha256="004a3772c8a7ff9bbfeb875880f47f0679d93fc63e5cf9cff72d54a8a6162e57",
    size=81363704,
)
MEMBER = "training.1600000.processed.noemoticon.csv"
COLUMNS = "target,id,date,query,user,text"
LABELS = {"0": 0, "4": 1}


@dataclass(frozen=True)
class Sent140(TextSet):
    """1.6 million tweets, labelled sad (0) or happy (1) by emoticons that were then removed.

    vocabulary  number of words, the most frequent; None: all. The input has the share of each
                word among the tweet's words in the vocabulary
    counted     where words are counted for that: in "train"ing tweets only, or in "all"
    minimum     smallest number of tweets of a user; others are left out
    test        what test tweets are drawn from: each "user"'s tweets, which leaves out users with
                a single tweet; or all "tweets"
    share       share to train on; the split is the same for every seed
    file        another file in the official layout, gzipped or not: its name or path

    Words are separated by single blanks, as in FedGBO's code, so two blanks in a row enclose an
    empty word, which counts. Tweets without a word in the vocabulary are dropped.

    Deviations: LEAF adds the 498 tweets of the manual test file to those of their users.
    References: Go et al., Twitter sentiment classification using distant supervision, 2009;
    Caldas et al., LEAF: a benchmark for federated settings, 2018.
    """

    folder = "sent140"
    files = (ARCHIVE,)
    layouts = ("sent140-subset",)

    _: KW_ONLY
    vocabulary: int | None = whole(5000, ge=1, optional=True)
    counted: str = choice("train", "all")
    minimum: int = whole(10, ge=1)
    test: str = choice("user", "tweets")
    share: float = real(0.8, gt=0, lt=1)
    file: str | None = text(None, optional=True)

    def instead(self, file: File) -> Sequence[Sequence[str]]:
        return [[MEMBER]]

    def read(self) -> Source:
        path = self.path(ARCHIVE, self.file)
        targets, owners, texts = self._tweets(path)
        everybody = np.zeros_like(owners)
        train = training_mask(owners if self.test == "user" else everybody, self.share)
        counted = np.ones_like(train) if self.counted == "all" else train
        known = most_frequent(
            (texts[i].split(" ") for i in np.flatnonzero(counted)), self.vocabulary
        )
        tokens, rows = bags((tweet.split(" ") for tweet in texts), known)
        full = rows[:, 1].numpy() > 0
        return Source(
            rows[train & full],
            targets[train & full],
            rows[~train & full],
            targets[~train & full],
            classes=2,
            client_ids=owners[train & full],
            transform=Bags(tokens, known),
        )

    def _tweets(self, path: Path) -> tuple[Tensor, np.ndarray, list[str]]:
        """Targets, user numbers (users in alphabetical order), and texts."""
        targets: list[int] = []
        users: list[str] = []
        texts: list[str] = []
        for row in table(path, "latin-1", COLUMNS, MEMBER):
            target, user, tweet = row[0], row[4], row[5]
            if target not in LABELS:
                raise UndriftError(
                    f"{path}, row {len(texts) + 1}: the target must be 0 or 4, not {target[:20]!r}"
                )
            targets.append(LABELS[target])
            users.append(user)
            texts.append(tweet)
        fewest = max(self.minimum, 2) if self.test == "user" else self.minimum
        _, owners, counts = np.unique(users, return_inverse=True, return_counts=True)
        kept = np.flatnonzero(counts[owners] >= fewest) if users else np.zeros(0, np.int64)
        if len(kept) < 2:
            raise UndriftError(
                f"{path}: {len(texts)} tweets, but no user has {fewest}; to use them anyway, give "
                'Sent140(minimum=1, test="tweets") and a partition other than Natural'
            )
        owners = np.unique(owners[kept], return_inverse=True)[1].astype(np.int32)
        return torch.tensor(targets)[kept], owners, [texts[i] for i in kept]
