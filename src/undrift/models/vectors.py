"""Word vectors from files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from undrift.config import UndriftError
from undrift.data.files.fetch import data_dir
from undrift.later import Tensor, np, torch


def read_words(path: str | Path) -> list[str]:
    """The words of a file, one per line."""
    return [line.rstrip("\r\n") for line in _lines(_located(Path(path)))]


def _located(path: Path) -> Path:
    """A path that exists neither here nor in the data folder is returned as it is."""
    inside = data_dir() / path
    return inside if inside.exists() and not path.exists() else path


def read_vectors(path: str | Path, words: Sequence[str], width: int) -> Tensor:
    """Word vectors, shape (words, width).

    The file is text in GloVe's format, or .npy with the words in a .txt of the same name. Words
    missing from it get random rows with the same standard deviation as the others.
    """
    path = _located(Path(path))
    row = {word: i for i, word in enumerate(words) if word}
    found = np.full((len(words), width), np.nan, dtype=np.float32)
    pairs = _array(path, width, row) if path.suffix == ".npy" else _text(path, width, row)
    for word, vector in pairs:
        found[row[word]] = vector
    known = torch.from_numpy(np.isfinite(found).all(axis=1))
    if not bool(known.any()):
        raise UndriftError(
            f"{path}: has none of the {len(words)} words of the data's vocabulary; give vectors "
            "for the same language and case"
        )
    vectors = torch.from_numpy(found)
    random = torch.randn(len(words), width) * vectors[known].std(unbiased=False)
    return torch.where(known[:, None], vectors, random)


def _text(path: Path, width: int, wanted: dict[str, int]) -> Iterator[tuple[str, np.ndarray]]:
    for number, line in enumerate(_lines(path), 1):
        word, *values = line.rstrip().rsplit(" ", width)
        if number == 1 and len(values) == 1 and (word + values[0]).isdigit():
            continue  # word2vec's header: number of words and width
        if len(values) != width:
            raise UndriftError(f"{path}, line {number}: expected a word and {width} numbers")
        if word in wanted:
            try:
                yield word, np.array(values, dtype=np.float32)
            except ValueError:
                raise UndriftError(
                    f"{path}, line {number}: expected {width} numbers after {word!r}"
                ) from None


def _array(path: Path, width: int, wanted: dict[str, int]) -> Iterable[tuple[str, np.ndarray]]:
    try:
        vectors = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise UndriftError(f"{path}: cannot be read as an array of vectors ({error})") from None
    words = read_words(path.with_suffix(".txt"))
    if vectors.shape != (len(words), width) or vectors.dtype.kind not in "fiu":
        raise UndriftError(
            f"{path}: expected numbers of shape {(len(words), width)}, one row per line of "
            f"{path.with_suffix('.txt').name}; found {vectors.dtype} of shape {vectors.shape}"
        )
    return ((word, vectors[i]) for i, word in enumerate(words) if word in wanted)


def _lines(path: Path) -> Iterator[str]:
    try:
        with path.open(encoding="utf-8", newline="\n") as file:
            yield from file
    except OSError as error:
        raise UndriftError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UndriftError(f"{path}: is not UTF-8 text ({error.reason})") from None
