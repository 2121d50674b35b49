"""FEMNIST out of LEAF's files."""

import json

import numpy as np
import pytest
import torch

from undrift.config import UndriftError
from undrift.data.files.fetch import use_data_dir
from undrift.data.partition.partitions import Natural, federate
from undrift.data.sources.femnist import FEMNIST, read_leaf


@pytest.fixture
def folder(tmp_path):
    use_data_dir(tmp_path)
    yield tmp_path / "femnist"
    use_data_dir(None)


def writer(n, level):
    """n images whose pixel k is of this level, but for the first, which tells the image."""
    images = np.full((n, 784), level / 255)
    images[:, 0] = np.arange(n) / 255
    return {"x": images.tolist(), "y": [k % 62 for k in range(n)]}


def write(path, writers):
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "users": list(writers),
        "num_samples": [len(entry["y"]) for entry in writers.values()],
        "user_data": writers,
    }
    path.write_text(json.dumps(content))


def test_unsplit_files(folder):
    write(folder / "all_data" / "all_data_0.json", {"f2": writer(20, 255), "f1": writer(15, 0)})
    write(folder / "all_data" / "all_data_1.json", {"f0": writer(30, 100), "few": writer(14, 0)})
    source = FEMNIST(writers=None).load(0)
    assert np.bincount(source.client_ids).tolist() == [12, 16, 24]  # f1, f2, f0
    assert len(source.test_targets) == 3 + 4 + 6
    assert (source.inputs.dtype, source.inputs.shape[1:]) == (torch.uint8, (1, 28, 28))
    batch = source.transform(source.inputs, None)
    assert batch.dtype == torch.float32
    levels = [batch[source.client_ids == k][:, 0, 1:].unique() for k in range(3)]
    assert [level.tolist() for level in levels] == [
        [1.0], [0.0], [pytest.approx(155 / 255)],
    ]  # fmt: skip
    drawn = torch.cat([source.inputs[source.client_ids == 2], source.test_inputs[-6:]])
    assert sorted((255 - drawn[:, 0, 0, 0].int()).tolist()) == list(range(30))
    assert source.targets[source.client_ids == 2].tolist() == sorted(
        (255 - source.inputs[source.client_ids == 2][:, 0, 0, 0].int()).tolist()
    )
    assert len(federate(source, Natural(), 0)) == 3


def test_a_writer_is_split_alike_whoever_else_is_there(folder):
    write(folder / "all_data" / "a.json", {"f1": writer(20, 0), "f2": writer(40, 0)})
    both, one = FEMNIST(writers=2).load(0), FEMNIST(writers=1).load(0)
    assert torch.equal(one.inputs, both.inputs[both.client_ids == 0])
    assert FEMNIST(writers=1).load(3) is one


def test_split_files(folder):
    write(folder / "data" / "train" / "a_train_8.json", {"f1": writer(16, 0), "f2": writer(17, 0)})
    write(folder / "data" / "test" / "a_test_8.json", {"f1": writer(4, 9), "f2": writer(5, 9)})
    source = FEMNIST(writers=2).load(0)
    assert np.bincount(source.client_ids).tolist() == [16, 17]
    assert len(source.test_targets) == 9
    with pytest.raises(UndriftError, match=r"only 2 writers with 15 images .*writers=None"):
        FEMNIST().load(0)
    write(folder / "data" / "test" / "a_test_8.json", {"f1": writer(4, 9)})
    with pytest.raises(UndriftError, match="the writers are not the same"):
        FEMNIST(writers=None).load(0)
    write(folder / "data" / "test" / "b_test_8.json", {"f2": writer(4, 9)})
    with pytest.raises(UndriftError, match="1 files in train, 2 in test"):
        FEMNIST(writers=1).load(0)


def test_missing_files_and_doubled_writers(folder):
    with pytest.raises(UndriftError, match=r"expected LEAF's files .*all_data, found none; make"):
        FEMNIST().load(0)
    for name in ("a", "b"):
        write(folder / "all_data" / f"{name}.json", {"f1": writer(20, 0)})
    with pytest.raises(UndriftError, match="writer f1 is in two files"):
        FEMNIST(writers=2).load(0)


def spoilt(**changes):
    entry = writer(2, 0) | changes
    return json.dumps({"users": ["f"], "num_samples": [2], "user_data": {"f": entry}})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "Expecting value"),
        ("[1, 2]", "no object with users"),
        ('{"users": [], "num_samples": []}', "no object with users"),
        ('{"user_data": {}}', "users"),
        (spoilt()[:-40], "delimiter|value"),
        (spoilt(y=[1]), r"expected rows of 784 pixels, found x of shape \(2, 784\)"),
        (spoilt(x=[[0.5] * 784, [0.5]]), "inhomogeneous"),
        (spoilt(x=[[0.5] * 783] * 2), "expected rows of 784 pixels"),
        (spoilt(x=[[2.0] * 784] * 2), "pixels are not between 0 and 1"),
        (spoilt(x=[[float("nan")] * 784] * 2), "pixels are not between 0 and 1"),
        (spoilt(x=[[None] * 784] * 2), "pixels are not between 0 and 1"),
        (spoilt(x=[["a"] * 784] * 2), "could not convert"),
        (spoilt(y=[1, 62]), "labels are not whole numbers from 0 to 61"),
        (spoilt(y=[0.5, 1]), "labels are not whole numbers"),
        (spoilt().replace("[2]", "[3]"), "writer f does not have 3 x and y"),
        ("[" * 100_000, "recursion"),
    ],
)
def test_damaged_files_are_refused(tmp_path, content, said):
    path = tmp_path / "all_data_0.json"
    path.write_text(content)
    with pytest.raises(UndriftError, match=rf"not a valid LEAF JSON file .*(?:{said})") as caught:
        read_leaf(path)
    assert str(path) in str(caught.value)
