"""Text as numbers: words, windows, sequences, bags, and the files they are read from."""

import gzip
import zipfile

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from undrift.config import UndriftError
from undrift.data.partition.split import training_mask
from undrift.data.text.words import (
    NO_TARGET,
    PAD,
    UNKNOWN,
    Bags,
    Sequences,
    Windows,
    bags,
    lines,
    most_frequent,
    sequences,
    table,
    words,
)
from undrift.training.task import PADDING

TEXTS = st.lists(st.lists(st.sampled_from("abcdef"), max_size=9), min_size=1, max_size=8)


def test_words():
    assert words("Don't STOP: it's 3-fold, naïve_x!") == [
        "don't", "stop", "it's", "3", "fold", "naïve", "x",
    ]  # fmt: skip
    assert words("... --") == []


def test_the_most_frequent_words_come_first():
    texts = [["b", "a", "c"], ["b", "a", "b"], ["d"]]
    assert most_frequent(texts, 3) == ("b", "a", "c")
    assert most_frequent(reversed(texts), None) == ("b", "a", "c", "d")


def test_windows_are_slices_of_the_text():
    text = torch.arange(50, dtype=torch.uint8)
    batch = Windows(text, 7)(torch.tensor([0, 3, 43], dtype=torch.int32))
    assert batch.dtype == torch.int64
    assert batch.tolist() == [list(range(i, i + 7)) for i in (0, 3, 43)]


@given(TEXTS, st.integers(1, 12))
def test_sequences_are_the_first_words(texts, length):
    known = ("a", "b", "c", "d")
    tokens, rows = sequences(texts, known, length)
    batch = Sequences(tokens, length, ("", "", *known))(rows)
    for text, row in zip(texts, batch.tolist(), strict=True):
        numbers = [known.index(w) + 2 if w in known else UNKNOWN for w in text[:length]]
        assert row == numbers + [PAD] * (length - len(numbers))


@given(TEXTS)
def test_bags_have_the_share_of_each_known_word(texts):
    known = ("c", "a", "b")
    tokens, rows = bags(texts, known)
    batch = Bags(tokens, known)(rows)
    unit = Bags(tokens, known, unit=True)(rows)
    for text, row, direction in zip(texts, batch, unit, strict=True):
        inside = [word for word in text if word in known]
        shares = [inside.count(word) / max(1, len(inside)) for word in known]
        assert row.tolist() == pytest.approx(shares)
        norm = max(1, sum(inside.count(word) ** 2 for word in known)) ** 0.5
        assert direction.tolist() == pytest.approx([inside.count(w) / norm for w in known])
    some = torch.tensor([len(texts) - 1, 0])
    assert torch.equal(Bags(tokens, known)(rows[some]), batch[some])


def test_small_vocabularies_take_two_bytes_a_word():
    assert bags([["a"]], ["a"])[0].dtype == torch.int16
    assert bags([["a"]], [*map(str, range(40_000)), "a"])[0].dtype == torch.int32
    assert NO_TARGET == PADDING


@given(st.lists(st.integers(0, 5), min_size=1, max_size=60), st.floats(0.01, 0.99))
def test_every_owner_trains_and_tests(owners, share):
    owners = np.array(owners)
    train = training_mask(owners, share)
    for owner in np.unique(owners):
        n, kept = (owners == owner).sum(), train[owners == owner].sum()
        assert kept == (1 if n == 1 else min(max(1, int(share * n)), n - 1))
    assert (train == training_mask(owners, share)).all()


def test_a_split_is_random():
    splits = [training_mask(np.zeros(200), 0.5, seed) for seed in (0, 1)]
    assert 60 < (splits[0] == splits[1]).sum() < 140
    assert 30 < splits[0][:100].sum() < 70


def test_lines_of_plain_and_packed_files(tmp_path):
    text = "one\r\ntwo é\n"
    plain, packed, archive = (tmp_path / name for name in ("a.txt", "a.txt.gz", "a.zip"))
    plain.write_bytes(text.encode())
    packed.write_bytes(gzip.compress(text.encode(), mtime=0))
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("other.txt", "no")
        file.writestr("a.txt", text)
    for path in (plain, packed, archive):
        assert list(lines(path, "utf-8", "a.txt")) == ["one\r\n", "two é\n"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (gzip.compress(b"word " * 9000, mtime=0)[:-20], "not a valid utf-8 text file"),
        (b"\xff\xfe\xff", "not a valid utf-8 text file"),
        (b"PK\x03\x04 but no archive", "not a valid zip file"),
    ],
)
def test_damaged_files_are_named(tmp_path, content, said):
    path = tmp_path / "text.txt"
    path.write_bytes(content)
    with pytest.raises(UndriftError, match=said) as caught:
        list(lines(path, "utf-8", "a.txt"))
    assert str(path) in str(caught.value)
    with pytest.raises(UndriftError, match="there is no such file"):
        list(lines(tmp_path / "none", "utf-8"))


def test_a_table_with_the_wrong_columns_is_refused(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('1,"a, b",c\n2,d\n')
    with pytest.raises(UndriftError, match=r"row 2: expected 3 columns \(x,y,z\), found 2: '2, d'"):
        list(table(path, "utf-8", "x,y,z"))
