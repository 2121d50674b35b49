"""Client memory on a node: the failure matrix of messages that are delivered at most once."""

from pathlib import Path

import pytest
import torch

from undrift.core import Struct
from undrift.deploy.memory import Lost, NodeMemory
from undrift.runs.layout import checkpoint_file

FRESH = Struct(h=torch.zeros(3), last=0)


def version(t: int) -> Struct:
    return Struct(h=torch.full((3,), t / 7), last=t, deep=Struct(c=torch.tensor([-0.0, 1e-45])))


class Node:
    """A node with its server's receipts: `play` is one message, up to where something fails."""

    def __init__(self, folder: Path) -> None:
        self.memory = NodeMemory(folder)
        self.accepted = self.floor = 0

    def play(self, t: int, until: str = "accepted") -> int:
        """Train in round t; returns the round whose memory the training started from."""
        me = self.memory.at(self.accepted, FRESH)
        self.memory.settle(self.accepted, self.floor)
        if until != "training":
            self.memory.put(t, version(t))
        if until == "accepted":
            self.accepted = t
        return int(me.last)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "client")


def test_a_version_is_read_as_it_was_written(node: Node) -> None:
    node.memory.put(3, version(3))
    found, expected = node.memory.at(3, FRESH), version(3)
    assert [name for name, _ in found.leaves()] == [name for name, _ in expected.leaves()]
    assert found.last == 3
    assert torch.equal(found.h, expected.h)
    assert found.deep.c.numpy().tobytes() == expected.deep.c.numpy().tobytes()


def test_a_client_that_was_never_accepted_is_fresh(node: Node) -> None:
    assert node.play(1, until="uploading") == 0
    assert node.play(2) == 0


def test_nothing_is_looked_for_where_clients_remember_nothing(node: Node) -> None:
    assert list(node.memory.at(4, Struct()).leaves()) == []


@pytest.mark.parametrize("until", ["training", "uploading"])
def test_a_round_that_was_not_accepted_is_forgotten(node: Node, until: str) -> None:
    """The node dies in training, before or while uploading; or the upload is late, not finite, or
    part of a void round: all the same to the node, which hears of no acceptance."""
    node.play(1)
    node.play(2, until)
    assert node.play(3) == 1
    assert 2 not in node.memory.stamps


def test_a_node_that_dies_after_its_upload_was_accepted_has_it(node: Node) -> None:
    node.play(1)
    node.play(2, until="uploading")
    node.accepted = 2  # the upload arrived, and the node never heard of it
    assert node.play(3) == 2


def test_a_round_that_is_played_twice_starts_from_the_same_memory(node: Node) -> None:
    """Delivered twice, or played again by a server that died before its checkpoint."""
    node.play(1)
    assert [node.play(2, until="uploading"), node.play(2)] == [1, 1]
    assert node.play(3) == 2


def test_a_server_can_fall_back_to_the_floor(node: Node) -> None:
    for t in range(1, 6):
        node.floor = max(0, node.accepted - 1)
        node.play(t)
    assert node.memory.stamps == [3, 4, 5]
    node.accepted = node.floor = 3
    assert node.play(4) == 3


def test_versions_below_the_floor_are_forgotten(node: Node) -> None:
    node.play(1)
    node.play(2)
    node.floor = 2
    node.play(3)
    assert node.memory.stamps == [2, 3]


def test_a_lost_disk_is_reported_and_not_guessed(node: Node, tmp_path: Path) -> None:
    node.play(1)
    node.memory = NodeMemory(tmp_path / "another disk")
    with pytest.raises(Lost, match="memory of round 1 is lost; it has none") as caught:
        node.play(2)
    assert caught.value.last == 0


def test_a_backup_is_reported_with_the_last_version_that_it_has(node: Node) -> None:
    node.play(1)
    node.play(2)
    checkpoint_file(node.memory.folder, 2).unlink()
    with pytest.raises(Lost, match="round 2 is lost; the last one it has is of round 1") as caught:
        node.play(3)
    assert caught.value.last == 1


def test_damaged_versions_are_lost(node: Node) -> None:
    node.play(1)
    node.play(2)
    for t in (1, 2):
        path = checkpoint_file(node.memory.folder, t)
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
    with pytest.raises(Lost, match="it has none"):
        node.play(3)


def test_a_crash_while_writing_leaves_no_version(node: Node) -> None:
    node.play(1)
    (node.memory.folder / ".round-000002.safetensors.partial").write_bytes(b"half")
    assert node.memory.stamps == [1]
    assert node.play(2) == 1
