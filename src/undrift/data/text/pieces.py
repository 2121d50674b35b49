"""Tokenisation into BERT's word pieces, with the library `tokenizers`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from undrift.config import UndriftError
from undrift.data.files.formats import reading
from undrift.data.text.words import PAD, lines
from undrift.system.extras import require

PADDING, UNKNOWN, BEGIN, END = "[PAD]", "[UNK]", "[CLS]", "[SEP]"
FILES = ("vocab.txt", "tokenizer.json")


class Pieces:
    """A tokenizer for word pieces.

    where  vocab.txt, with one piece per line, or tokenizer.json; or a folder with one of them; or
           a name in the cache of Hugging Face. Nothing is ever downloaded.
    words  the piece of each token id; id 0 is padding

    With vocab.txt, texts are lower-cased and stripped of accents, split at blanks and punctuation,
    and each word is cut into the longest pieces in the file, from its beginning on; pieces inside
    a word start with ##. With tokenizer.json, its own rules apply.
    """

    def __init__(self, where: str) -> None:
        tokenizers = require("tokenizers", "text", "cutting texts into word pieces")
        path = _path(where)
        with reading(path, "tokenizer"):
            if path.suffix == ".json":
                self.tokenizer = tokenizers.Tokenizer.from_file(str(path))
                self.tokenizer.no_padding()
            else:
                self.tokenizer = _uncased(tokenizers, path)
            numbers = self.tokenizer.get_vocab()
            self.words = tuple(sorted(numbers, key=numbers.__getitem__))
            if [numbers[word] for word in self.words] != list(range(len(numbers))):
                raise ValueError("a piece is listed twice, or a token id is missing")
            if numbers.get(PADDING) != PAD or not {UNKNOWN, BEGIN, END} <= numbers.keys():
                raise ValueError(f"expected {PADDING} first, then {UNKNOWN}, {BEGIN} and {END}")
            self.tokenizer.post_processor = tokenizers.processors.BertProcessing(
                (END, numbers[END]), (BEGIN, numbers[BEGIN])
            )

    def __call__(self, texts: Sequence[str], length: int) -> list[list[int]]:
        """Token ids of each text, from [CLS] to [SEP], truncated to `length`."""
        self.tokenizer.enable_truncation(length)
        return [one.ids for one in self.tokenizer.encode_batch_fast(texts)]


def _uncased(tokenizers: Any, path: Path) -> Any:
    numbers = {line.rstrip("\r\n"): number for number, line in enumerate(lines(path, "utf-8"))}
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece(numbers, unk_token=UNKNOWN))
    made.normalizer = tokenizers.normalizers.BertNormalizer(strip_accents=True)
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    return made


def _path(where: str) -> Path:
    """The file that lists the pieces."""
    path = Path(where).expanduser()
    if path.is_file():
        return path
    hub = require("huggingface_hub", "text", "cutting texts into word pieces")
    for name in FILES:
        if (path / name).is_file():
            return path / name
        try:
            cached = hub.try_to_load_from_cache(where, name)
        except ValueError:  # not a valid name
            continue
        if isinstance(cached, str):
            return Path(cached)
    raise UndriftError(
        f"tokenizer={where!r}: neither a file, nor a folder with {' or '.join(FILES)}, nor a name "
        "in the cache of Hugging Face; give the vocab.txt of the model to train"
    )
