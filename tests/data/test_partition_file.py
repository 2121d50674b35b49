"""Partitions in files: what comes back is what was saved, or one sentence says why not."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from undrift.config import UndriftError
from undrift.config.expressions import parse
from undrift.data.partition.partitions import PARTITIONS, Dirichlet, Saved, federate
from undrift.data.partition.saved import PartitionFile, labels_hash, read_hash
from undrift.data.partition.skew import hellinger, label_entropy, total_variation
from undrift.data.sources import Digits, Synthetic

LABELS = np.array([0, 1, 0, 2, 1, 2, 2])
PARTS = [np.array([4, 1]), np.array([], dtype=np.int64), np.array([6, 0, 3])]


@pytest.fixture
def path(tmp_path):
    return str(PartitionFile.of(PARTS, LABELS, "by hand").save(tmp_path / "small.safetensors"))


def split(partition, labels=LABELS):
    return partition.split(labels, np.random.default_rng(0))


def rewrite(path, facts=None, **arrays):
    """The same file with something changed, and all the rest as it was."""
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        said = json.loads(file.metadata()["undrift-partition"])
    said |= facts or {}
    save_file(load_file(path) | arrays, path, metadata={"undrift-partition": json.dumps(said)})


def test_a_partition_comes_back(path):
    for back in (Saved(path), parse(f"saved(path={path!r})", PARTITIONS, "partition")):
        assert [part.tolist() for part in split(back)] == [[4, 1], [], [6, 0, 3]]
        assert back.hash == read_hash(path) == PartitionFile.of(PARTS, LABELS).hash
        assert parse(repr(back), PARTITIONS) == back


def test_federations_are_the_same(tmp_path):
    partition = Dirichlet(clients=20, alpha=0.1, sigma=0.3)
    made = federate(Digits(), partition, seed=3)
    labels = made.targets.numpy()
    parts = np.split(made.order, made.offsets[1:-1])
    file = PartitionFile.of(parts, labels).save(tmp_path)
    assert file.name == f"partition-{read_hash(file)}.safetensors"
    assert file.stat().st_size < 4 * len(labels)  # two bytes for each of them, and a header
    again = federate(Digits(), Saved(str(file)), seed=8)
    assert np.array_equal(made.order, again.order)
    assert np.array_equal(made.offsets, again.offsets)


@given(st.lists(st.lists(st.integers(0, 9), max_size=5), min_size=1, max_size=5), st.data())
def test_a_hash_is_of_the_content_alone(sizes, data):
    labels = np.arange(30) % 4
    order = np.array(data.draw(st.permutations(range(30))))
    ends = np.cumsum([len(some) for some in sizes])
    parts = np.split(order[: ends[-1]], ends[:-1])
    one = PartitionFile.of(parts, labels, "one")
    assert one.hash == PartitionFile.of(parts, labels.astype(np.int8), "two").hash
    assert one.hash != PartitionFile.of(parts, labels[::-1]).hash
    assert one.hash != PartitionFile.of([*parts, order[:0]], labels).hash
    assert all(np.array_equal(a, b) for a, b in zip(one.parts, parts, strict=True))


def test_labels_of_any_kind_have_a_hash():
    assert labels_hash(np.array([1, 2], np.uint8)) == labels_hash(np.array([1, 2], np.int64))
    assert labels_hash(np.array([1.0, 2.0])) != labels_hash(np.array([1.0, 2.5]))
    assert labels_hash(np.zeros((2, 3), np.int64)) != labels_hash(np.zeros((3, 2), np.int64))


def test_another_hash_than_wanted(path):
    with pytest.raises(UndriftError, match="the file holds another partition"):
        Saved(path, hash="0123456789abcdef")


def test_other_data(path):
    with pytest.raises(UndriftError, match=r"by hand.*of 7 samples, but these data have 6"):
        split(Saved(path), LABELS[:-1])
    with pytest.raises(UndriftError, match=r"by hand.*other data"):
        split(Saved(path), LABELS[::-1])
    with pytest.raises(UndriftError, match="of 7 samples, but these data have"):
        federate(Synthetic(), Saved(path), seed=0)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"order": np.array([4, 1, 6, 0, 2])}, "its content has the hash"),
        ({"order": np.array([[4, 1]])}, "row of integers"),
        ({"order": np.array([0.5])}, "row of integers"),
        ({"facts": {"hash": "0123456789abcdef"}}, "its content has the hash"),
        ({"facts": {"samples": 8}}, "its content has the hash"),
        ({"facts": {"format": 2}}, "its format is 2"),
        ({"facts": {"samples": "7"}}, "metadata are missing"),
        ({"facts": {"labels": None}}, "metadata are missing"),
    ],
)
def test_a_file_that_was_changed(path, change, says):
    rewrite(path, **change)
    with pytest.raises(UndriftError, match=says):
        split(Saved(path))


@pytest.mark.parametrize(
    ("order", "offsets", "samples", "says"),
    [
        ([0, 1], [0, 1], 7, "do not fit"),
        ([0, 1], [1, 2], 7, "do not fit"),
        ([0, 1], [], 7, "do not fit"),
        ([0, 1, 2], [0, 2, 1, 3], 7, "offsets decrease"),
        ([0, 7], [0, 2], 7, "must be from 0 to 6, found"),
        ([0, -1], [0, 2], 7, "must be from 0 to 6, found"),
        ([0, 0], [0, 2], 7, "twice"),
    ],
)
def test_a_file_that_lies(tmp_path, order, offsets, samples, says):
    path = tmp_path / "lie.safetensors"
    arrays = [np.array(numbers, dtype=np.int64) for numbers in (order, offsets)]
    lie = PartitionFile(*arrays, samples, labels_hash(LABELS))
    PartitionFile.of(PARTS, LABELS).save(path)
    rewrite(path, {"hash": lie.hash}, order=lie.order, offsets=lie.offsets)
    with pytest.raises(UndriftError, match=says):
        split(Saved(str(path)))


@pytest.mark.parametrize("kind", ["BF16", "F16", "F8_E4M3", "F8_E5M2", "F8_E8M0", "C64", "BOOL"])
def test_numbers_that_are_not_whole(tmp_path, kind):
    whole = PartitionFile.of(PARTS, LABELS).save(tmp_path / "whole.safetensors").read_bytes()
    start = 8 + int.from_bytes(whole[:8], "little")
    header, size = json.loads(whole[8:start]), {"C64": 8, "BF16": 2, "F16": 2}.get(kind, 1)
    header["order"] = {"dtype": kind, "shape": [0], "data_offsets": [0, 0]}
    header["offsets"] = {"dtype": kind, "shape": [2], "data_offsets": [0, 2 * size]}
    text = json.dumps(header).encode()
    path = tmp_path / "odd.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(2 * size))
    with pytest.raises(UndriftError, match=f"order must be a row of integers, found {kind}"):
        split(Saved(str(path)))


def test_a_file_can_be_read_by_whoever_may_read_others(tmp_path):
    path = PartitionFile.of(PARTS, LABELS).save(tmp_path)
    (tmp_path / "other").write_bytes(b"")
    assert path.stat().st_mode == (tmp_path / "other").stat().st_mode


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 something else", b"\xff" * 200])
def test_another_kind_of_file(tmp_path, content):
    path = tmp_path / "other.safetensors"
    path.write_bytes(content)
    with pytest.raises(UndriftError, match="not a valid partition file"):
        Saved(str(path))


def test_files_that_do_not_say_what_they_are(tmp_path):
    path = tmp_path / "plain.safetensors"
    save_file({"order": np.arange(3)}, path)
    with pytest.raises(UndriftError, match="metadata are missing"):
        Saved(str(path))
    with pytest.raises(UndriftError, match="there is no partition file"):
        Saved(str(tmp_path / "missing"))
    with pytest.raises(UndriftError, match="cannot be written"):
        PartitionFile.of(PARTS, LABELS).save(tmp_path / "no" / "folder")
    half = tmp_path / "half.safetensors"
    whole = PartitionFile.of(PARTS, LABELS).save(tmp_path / "whole.safetensors")
    half.write_bytes(whole.read_bytes()[:-3])
    with pytest.raises(UndriftError, match="not a valid partition file"):
        Saved(str(half))


def test_a_million_samples_are_quick(tmp_path):
    labels = np.arange(1_000_000) % 10
    parts = np.split(np.random.default_rng(0).permutation(1_000_000), 10_000)
    path = PartitionFile.of(parts, labels).save(tmp_path)
    back = split(Saved(str(path)), labels)
    assert len(back) == 10_000
    assert np.array_equal(back[-1], parts[-1])


# How much clients differ


def test_skew_by_hand():
    counts = np.array([[4, 0], [2, 2], [0, 4], [0, 0]])
    assert label_entropy(counts).tolist() == pytest.approx([0, 1, 0, np.nan], nan_ok=True)
    assert total_variation(counts).tolist() == pytest.approx([0.5, 0, 0.5, np.nan], nan_ok=True)
    far = np.sqrt(1 - np.sqrt(0.5))
    assert hellinger(counts).tolist() == pytest.approx([far, 0, far, np.nan], nan_ok=True)


@given(st.lists(st.lists(st.integers(0, 5), min_size=3, max_size=3), min_size=1, max_size=6))
def test_skew_is_inside_its_bounds(rows):
    counts = np.array(rows)
    full = counts.sum(axis=1) > 0
    entropy, variation, distance = (
        way(counts)[full] for way in (label_entropy, total_variation, hellinger)
    )
    assert (entropy >= 0).all()
    assert (entropy <= np.log2(3) + 1e-12).all()
    assert (distance**2 <= variation + 1e-12).all()
    assert (variation <= np.sqrt(2) * distance + 1e-12).all()
    assert (distance <= 1).all()
