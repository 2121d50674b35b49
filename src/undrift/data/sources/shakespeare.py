"""Shakespeare's plays: predict the next character after 80; one client per speaker."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from undrift.config import UndriftError, real, whole
from undrift.data.files.fetch import File
from undrift.data.source import Source
from undrift.data.sources.texts import TextSet
from undrift.data.text.words import Windows, lines
from undrift.later import np, torch

SYMBOLS = " !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""The 79 characters of the speakers' text."""

TINY_SYMBOLS = " !$&',-.3:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
"""The 64 characters of the small file; line ends become blanks."""

SPEECH = re.compile(r"  ([a-zA-Z][a-zA-Z ]*)\. (.*)")
FLUSH_SPEECH = re.compile(r"([a-zA-Z][a-zA-Z ]*)\. (.*)")
"""The first line of a speech, in most plays and in The Comedy of Errors."""

FEWEST_LINES = 3
"""Speakers with fewer lines are left out."""

ETEXT = File("1994-01-100.zip", "https://www.gutenberg.org/files/100/old/1994-01-100.zip")
INPUT = File(
    "input.txt",
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
    sha256="86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
)

Speeches = dict[str, list[str]]
"""Lines of text by speaker."""


@dataclass(frozen=True)
class Shakespeare(TextSet):
    """The complete works from Project Gutenberg's etext 100, by play and speaker.

    share   share of a speaker's windows to train on, the first ones; the rest is for testing,
            except `length - 1` windows in between, so that no test character is trained on
    length  characters per window

    The rules are LEAF's. All lines of a speaker in a play are joined by blanks, and runs of blanks
    become one. A stage direction between two speeches counts as text of the speaker before it.
    Speakers with fewer than three lines or without test windows are left out. Two of the 660 are
    not speakers but notices in The Comedy of Errors, as in LEAF.

    Deviations: none known. FedGBO's 660 speakers are found; its 3,678,451 windows to train on and
    356,921 to test on are one more here each.
    References: McMahan et al., Communication-efficient learning of deep networks from decentralized
    data, AISTATS 2017; Caldas et al., LEAF: a benchmark for federated settings, 2018.
    """

    folder = "shakespeare"
    files = (ETEXT,)

    _: KW_ONLY
    share: float = real(0.9, gt=0, lt=1)
    length: int = whole(80, ge=1)

    def instead(self, file: File) -> Sequence[Sequence[str]]:
        return [["100.txt"], ["shakespeare-gutenberg-100.txt.gz"]]

    def read(self) -> Source:
        path = self.path(ETEXT)
        speeches = etext_speeches(lines(path, "latin-1", "100.txt"))
        if not speeches:
            raise UndriftError(
                f"{path}: no speakers found; expected Project Gutenberg's etext 100 of January "
                f"1994, where a speech begins with two blanks, a name and a full stop; get it from "
                f"{ETEXT.url}"
            )
        return windows(path, speeches, SYMBOLS, self)


@dataclass(frozen=True)
class TinyShakespeare(TextSet):
    """A million characters of the plays, by speaker; options as in `Shakespeare`.

    A speech begins with a name and a colon on a separate line and ends at an empty line. Speakers
    of the same name are one client, since the file does not say where a play begins.

    Reference: Karpathy, char-rnn, 2015.
    """

    folder = "tinyshakespeare"
    files = (INPUT,)
    layouts = ("shakespeare",)

    _: KW_ONLY
    share: float = real(0.9, gt=0, lt=1)
    length: int = whole(80, ge=1)

    def instead(self, file: File) -> Sequence[Sequence[str]]:
        return [["tinyshakespeare-input.txt.gz"]]

    def read(self) -> Source:
        path = self.path(INPUT)
        speeches = named_speeches(lines(path, "utf-8"))
        if not speeches:
            raise UndriftError(f"{path}: no speakers found; expected lines such as 'ROMEO:'")
        return windows(path, speeches, TINY_SYMBOLS, self)


def etext_speeches(text: Iterable[str]) -> Speeches:
    """Lines of the 1994 etext by 'PLAY, SPEAKER'.

    A play begins at "by William Shakespeare"; its title is the last non-empty line before. A speech
    begins with two blanks, a name and a full stop; lines that begin with four blanks continue it,
    until the next speech. In The Comedy of Errors, names are not indented and any line continues a
    speech, so acts and copyright notices must be excluded.
    """
    speeches: Speeches = {}
    play, title, who, works, flush = "", "", "", 0, False
    for line in text:
        line = line.rstrip("\r\n")
        if "by William Shakespeare" in line:
            works += 1
            play, who = title, ""
            flush = play == "THE COMEDY OF ERRORS"
            continue
        title = line.strip() or title
        if works < 2:  # the Sonnets come first
            continue
        begins = (FLUSH_SPEECH if flush else SPEECH).match(line)
        if begins:
            who = f"{play}, {begins[1].upper()}"
            if flush and begins[1].upper().startswith("ACT "):
                who = ""
            else:
                speeches.setdefault(who, []).append(begins[2])
        elif who and flush and line.startswith("<"):
            who = ""
        elif who and (flush or line.startswith("    ")):
            speeches[who].append(line if flush else line[4:])
    return speeches


def named_speeches(text: Iterable[str]) -> Speeches:
    """Lines by speaker of a text in which 'ROMEO:' is on a separate line."""
    speeches: Speeches = {}
    who, fresh = "", True
    for line in text:
        line = line.rstrip("\r\n")
        if fresh and line.endswith(":"):
            who = line[:-1]
        elif line and who:
            speeches.setdefault(who, []).append(line)
        fresh = not line
    return speeches


def windows(
    path: Path, speeches: Speeches, alphabet: str, cut: Shakespeare | TinyShakespeare
) -> Source:
    """Every window of `cut.length` characters, and the character after it.

    A speaker with n windows trains on the first max(1, floor(share n)).
    """
    length = cut.length
    number = np.full(128, 255, np.uint8)
    number[[ord(symbol) for symbol in alphabet]] = np.arange(len(alphabet))
    texts: list[np.ndarray] = []
    train: list[np.ndarray] = []
    test: list[np.ndarray] = []
    owners: list[np.ndarray] = []
    start = 0
    for who in sorted(speeches):
        if len(speeches[who]) < FEWEST_LINES:
            continue
        text = re.sub("  +", " ", " ".join(speeches[who]) + " ")
        count = len(text) - length
        first = max(1, int(cut.share * count))
        if first + length - 1 >= count:
            continue
        symbols = number[np.minimum(np.frombuffer(text.encode("utf-32-le"), np.uint32), 127)]
        if symbols.max() == 255:
            strange = sorted(set(text) - set(alphabet))
            raise UndriftError(
                f"{path}: {who} has characters that are not among the {len(alphabet)} of this data "
                f"set: {strange[:5]}; is it another edition?"
            )
        owners.append(np.full(first, len(texts), np.int32))
        texts.append(symbols)
        train.append(np.arange(start, start + first))
        test.append(np.arange(start + first + length - 1, start + count))
        start += len(text)
    if not texts:
        raise UndriftError(f"{path}: no speaker has enough text for windows of {length}")
    flat = torch.from_numpy(np.concatenate(texts))
    inputs, test_inputs = (torch.from_numpy(np.concatenate(parts)) for parts in (train, test))
    return Source(
        inputs.int(),
        flat[inputs + length].long(),
        test_inputs.int(),
        flat[test_inputs + length].long(),
        classes=len(alphabet),
        client_ids=np.concatenate(owners),
        transform=Windows(flat, length),
    )
