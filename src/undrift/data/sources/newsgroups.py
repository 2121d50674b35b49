"""20 Newsgroups: to which group was a message posted?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

from undrift.config import UndriftError, flag, whole
from undrift.data.files.fetch import File
from undrift.data.files.formats import tar_files
from undrift.data.source import Source
from undrift.data.sources.texts import ClassifiedTexts, Documents

ARCHIVE = File(
    "20news-bydate.tar.gz",
    "https://ndownloader.figshare.com/files/5975967",
    sha256="8f1b2514ca22a5ade8fbb9cfa5727df95fa587f4c87b786e15c759fa66d95610",
)
PARTS = ("20news-bydate-train", "20news-bydate-test")
LIMIT = 2**27
"""The most bytes of all messages together; the published ones have 36 million."""

QUOTES = (">", "|", "In article", "Quoted from")
SPEAKS = re.compile(r"writes in|(?:writes|wrote|says|said):")


@dataclass(frozen=True)
class Newsgroups20(ClassifiedTexts):
    """18,846 messages to 20 newsgroups, split by date: 11,314 to train on, 7,532 to test on.

    form, vocabulary, length, tokenizer   as in AGNews
    body   leave out the header, quoted lines and the signature, which give groups away

    Groups are numbered in alphabetical order. There are no owners, so that `Natural` cannot be the
    partition.

    Reference: Lang, NewsWeeder: learning to filter netnews, ICML 1995 ("bydate" by Rennie).
    """

    folder = "20news"
    files = (ARCHIVE,)

    _: KW_ONLY
    length: int = whole(256, ge=3)
    body: bool = flag(True)

    def instead(self, file: File) -> Sequence[Sequence[str]]:
        return [["20news-bydate.tar.xz"]]

    def read(self) -> Source:
        path = self.path(ARCHIVE)
        messages: dict[str, list[tuple[str, str]]] = {part: [] for part in PARTS}
        for name, content in tar_files(path, limit=LIMIT):
            part, *rest = name.split("/")
            if part not in messages or len(rest) != 2:
                raise UndriftError(
                    f"{path}: expected {PARTS[0]}/GROUP/MESSAGE and the same for {PARTS[1]}, "
                    f"found {name[:80]}; is it the 'bydate' archive? Its address is {ARCHIVE.url}"
                )
            messages[part].append((rest[0], content.decode("latin-1")))
        train, test = (sorted(messages[part], key=lambda message: message[0]) for part in PARTS)
        groups = sorted({group for group, _ in train})
        strange = {group for group, _ in test} - set(groups)
        if not test or strange or len(groups) < 2:
            raise UndriftError(
                f"{path}: found {len(train)} messages of {len(groups)} groups to train on and "
                f"{len(test)} to test on, of {len(strange)} other groups; expected the same groups"
            )
        number = {group: i for i, group in enumerate(groups)}
        return self.classified(self._documents(train, number), self._documents(test, number))

    def _documents(self, messages: list[tuple[str, str]], number: dict[str, int]) -> Documents:
        texts = [body(text) if self.body else text for _, text in messages]
        return texts, [number[group] for group, _ in messages]


def quoted(line: str) -> bool:
    """Is it somebody else's, or a line that introduces such?"""
    return line.startswith(QUOTES) or SPEAKS.search(line) is not None


def body(message: str) -> str:
    """What the author of a message wrote into it.

    The header ends at the first empty line. Lines are quoted if they say so or begin with > or |.
    A signature is what follows the last line of only dashes, or else the last of several
    paragraphs.
    """
    _, _, text = message.partition("\n\n")
    lines = [line for line in text.strip().split("\n") if not quoted(line)]
    ends = [i for i, line in enumerate(lines) if not line.strip("- \t\r")]
    return "\n".join(lines[: ends[-1]] if ends and ends[-1] else lines)
