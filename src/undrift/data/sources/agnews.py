"""AG News: is an article about the world, sports, business, or science and technology?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from undrift.config import UndriftError, text
from undrift.data.files.fetch import File
from undrift.data.source import Source
from undrift.data.sources.texts import ClassifiedTexts, Documents
from undrift.data.text.words import table

ADDRESS = "https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/ag_news_csv/"
TRAIN = File(
    "train.csv",
    ADDRESS + "train.csv",
    sha256="76a0a2d2f92b286371fe4d4044640910a04a803fdd2538e0f3f29a5c6f6b672e",
    md5="b1a00f826fdfbd249f79597b59e1dc12",
)
TEST = File(
    "test.csv",
    ADDRESS + "test.csv",
    sha256="521465c2428ed7f02f8d6db6ffdd4b5447c1c701962353eb2c40d548c3c85699",
    md5="d52ea96a97a2d943681189a97654912d",
)
CLASSES = ("1", "2", "3", "4")


@dataclass(frozen=True)
class AGNews(ClassifiedTexts):
    """Titles and first sentences of news in 4 classes: 120,000 to train on, 7,600 to test on.

    form        "sequence": ids of the first `length` words; "bag": word counts, scaled to a
                Euclidean norm of 1; "pieces": for `DistilBERT`, [CLS], word pieces, [SEP]
    vocabulary  number of words, the most frequent of the training part; not for "pieces"
    length      words per sequence, or pieces including [CLS] and [SEP]
    tokenizer   for "pieces": vocab.txt or tokenizer.json, or the folder or name given as
                DistilBERT's `weights`; see `Pieces`
    train       another training file, such as a subset, gzipped or not: its name or path

    Samples have no owners, so the partition cannot be `Natural`.

    Reference: Zhang et al., Character-level convolutional networks for text classification, 2015.
    """

    folder = "ag_news"
    files = (TRAIN, TEST)
    layouts = ("ag_news_csv",)

    _: KW_ONLY
    train: str | None = text(None, optional=True)

    def instead(self, file: File) -> Sequence[Sequence[str]]:
        return [[f"{file.name}.gz"]]

    def read(self) -> Source:
        train = self.path(TRAIN, self.train)
        test = self.path(TEST)
        return self.classified(articles(train), articles(test))


def articles(path: Path) -> Documents:
    """Texts and classes of a file in the official layout."""
    texts: list[str] = []
    targets: list[int] = []
    for label, title, description in table(path, "utf-8", "class,title,description"):
        if label not in CLASSES:
            raise UndriftError(
                f"{path}, row {len(texts) + 1}: the class must be 1, 2, 3 or 4, not {label[:20]!r}"
            )
        texts.append(f"{title} {description}")
        targets.append(CLASSES.index(label))
    if not texts:
        raise UndriftError(f"{path}: the file is empty; fetch it again")
    return texts, targets
