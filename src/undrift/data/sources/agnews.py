"""AG News: is an article about the world, sports, business, or science and technology?"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from undrift.config import UndriftError, choice, text, whole
from undrift.data.fetch import File
from undrift.data.source import Source
from undrift.data.sources.texts import Documents, TextSet, classified
from undrift.data.text import table, words

ADDRESS = "https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/ag_news_csv/"
TRAIN = File("train.csv", ADDRESS + "train.csv", md5="b1a00f826fdfbd249f79597b59e1dc12")
TEST = File("test.csv", ADDRESS + "test.csv", md5="d52ea96a97a2d943681189a97654912d")
CLASSES = ("1", "2", "3", "4")


@dataclass(frozen=True)
class AGNews(TextSet):
    """Titles and first sentences of news in 4 classes: 120,000 to train on, 7,600 to test on.

    form        "sequence": numbers of the first `length` words; "bag": counts of words,
                with a Euclidean norm of 1
    vocabulary  so many most frequent words of the training part are known
    length      words of a sequence
    train       another file to train on, such as a subset, gzipped or not: its name or path

    There are no owners, so that `Natural` cannot be the partition.

    Reference: Zhang et al., Character-level convolutional networks for text classification, 2015.
    """

    folder = "ag_news"
    files = (TRAIN, TEST)
    layouts = ("ag_news_csv",)

    _: KW_ONLY
    form: str = choice("sequence", "bag")
    vocabulary: int = whole(20_000, ge=1)
    length: int = whole(64, ge=1)
    train: str | None = text(None, optional=True)

    def read(self) -> Source:
        train = self.path(TRAIN, ("train.csv.gz",), self.train)
        test = self.path(TEST, ("test.csv.gz",))
        parts = articles(train), articles(test)
        return classified(*parts, self.form, self.vocabulary, self.length)


def articles(path: Path) -> Documents:
    """Words and classes of a file in the official layout."""
    texts: list[list[str]] = []
    targets: list[int] = []
    for label, title, description in table(path, "utf-8", "class,title,description"):
        if label not in CLASSES:
            raise UndriftError(
                f"{path}, row {len(texts) + 1}: the class must be 1, 2, 3 or 4, not {label[:20]!r}"
            )
        texts.append(words(f"{title} {description}"))
        targets.append(CLASSES.index(label))
    if not texts:
        raise UndriftError(f"{path}: the file is empty; fetch it again")
    return texts, targets
