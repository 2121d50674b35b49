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
"""Largest total size of all messages, bytes; the published ones have 36 million."""

QUOTES = (">", "|", "In article", "Quoted from")
SPEAKS = re.compile(r"writes in|(?:writes|wrote|says|said):")


@dataclass(frozen=True)
class Newsgroups20(ClassifiedTexts):
    """18,846 messages to 20 newsgroups, split by date: 11,314 to train on, 7,532 to test on.

    form, vocabulary, length, tokenizer   as in AGNews
    body   drop the header, quoted lines and the signature, which reveal the group

    Classes are the groups in alphabetical order. Samples have no owners, so the partition cannot be
    `Natural`.

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
                f"{path}: found {len(train)} training messages of {len(groups)} groups and "
                f"{len(test)} test messages, with {len(strange)} other groups; expected the same "
                "groups; fetch it again"
            )
        number = {group: i for i, group in enumerate(groups)}
        return self.classified(self._documents(train, number), self._documents(test, number))

    def _documents(self, messages: list[tuple[str, str]], number: dict[str, int]) -> Documents:
        texts = [body(text) if self.body else text for _, text in messages]
        return texts, [number[group] for group, _ in messages]


def quoted(line: str) -> bool:
    """Whether a line is quoted, or introduces a quotation."""
    return line.startswith(QUOTES) or SPEAKS.search(line) is not None


def body(message: str) -> str:
    """A message without header, quoted lines and signature.

    The header ends at the first empty line. The signature follows the last line that is empty or
    has only dashes; if that is the first line, there is none.
    """
    _, _, text = message.partition("\n\n")
    lines = [line for line in text.strip().split("\n") if not quoted(line)]
    ends = [i for i, line in enumerate(lines) if not line.strip("- \t\r")]
    return "\n".join(lines[: ends[-1]] if ends and ends[-1] else lines)
