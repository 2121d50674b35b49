"""Client memory on a node: versions, each stamped with the round that made it.

A version counts once the server has said so. Messages are delivered at most once, and nobody tells
a node what became of its upload, so each message of the server carries a receipt:

    accepted  the last round whose upload of this client is in the server's saved state; 0: none
    floor     the same in the oldest checkpoint that the server could still fall back to

The node starts from exactly the version `accepted`, forgets versions after it (they were never
accepted) and before `floor` (nobody can return to them), trains, writes the new version, and only
then answers. A missing version is never replaced by a guess: where the server's state is a mean of
what clients remember (SCAFFOLD, FedDyn), a client that starts again at 0 biases it for good.
"""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from undrift.config import UndriftError
from undrift.core import Struct
from undrift.runs.layout import checkpoint_file, checkpoint_files, round_of
from undrift.runs.record_file import put_together, read, take_apart, write
from undrift.system.files import Damaged, writing


class Lost(UndriftError):
    """A node does not have the version that the server counts on.

    last  the newest one that it has up to that round; 0: none
    """

    def __init__(self, wanted: int, last: int) -> None:
        self.wanted, self.last = wanted, last
        has = f"the last one it has is of round {last}" if last else "it has none"
        super().__init__(f"its memory of round {wanted} is lost; {has}")


class NodeMemory:
    """The versions of one client's memory, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)

    @property
    def stamps(self) -> list[int]:
        """The rounds of all versions, in ascending order."""
        return sorted(round_of(path) for path in checkpoint_files(self.folder))

    def at(self, accepted: int, fresh: Struct) -> Struct:
        """The memory to start from; `fresh` is that of a client that was never accepted.

        Raises `Lost` if the version is missing or damaged.
        """
        if accepted == 0 or not any(True for _ in fresh.leaves()):
            return fresh
        if accepted in self.stamps:
            try:
                return self._read(accepted)
            except Damaged:
                pass
        older = (t for t in self.stamps if t < accepted and self._sound(t))
        raise Lost(accepted, max(older, default=0))

    def settle(self, accepted: int, floor: int) -> None:
        """Forget the versions that were never accepted, and those nobody can return to."""
        for t in self.stamps:
            if t > accepted or t < floor:
                path = checkpoint_file(self.folder, t)
                with writing(path):
                    path.unlink()

    def put(self, t: int, memory: Struct) -> None:
        """Write the version of round t, durably; call it before the upload leaves the node."""
        tensors: dict[str, Tensor] = {}
        facts = {"t": t, "me": take_apart(memory, "me", tensors)}
        write(checkpoint_file(self.folder, t), facts, tensors)

    def _read(self, t: int) -> Struct:
        facts, tensors = read(checkpoint_file(self.folder, t), "memory")
        return put_together(facts["me"], "me", tensors)

    def _sound(self, t: int) -> bool:
        try:
            self._read(t)
        except Damaged:
            return False
        return True
