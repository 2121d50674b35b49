"""Random failures: messages, nodes and the server, in deployments without processes."""

import random
import re
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from undrift.deploy.nodes import Nodes
from undrift.deploy.reference import differences
from undrift.deploy.roster import Roster
from undrift.deploy.server import Deployment, deploy
from undrift.experiment.experiment import Experiment
from undrift.runs import checkpoint
from undrift.runs.layout import RunFile, checkpoint_files

pytest.importorskip("flwr", reason="flwr is not installed (undrift[flower])")

from tests.deploy.local_grid import FIRST, local_grid

ALGORITHMS = (
    "AdaBest(mu=0.02, beta=0.9)",
    "SCAFFOLD()",
    "FedDyn(mu=0.02)",
    "Mime(SGDm())",
    "FedGLAD(ServerOpt(FedProx(mu=0.1), Adam(lr=0.01)))",
)
NAMES = ("node-1", "node-2", "node-3", "node-4")
FAR = {FIRST + i: i for i in range(4)}


def experiment(*algorithms: str, **more: Any) -> Experiment:
    settings: dict[str, Any] = {
        "data": "synthetic(clients=4, samples=30)",
        "partition": "Natural()",
        "model": "Linear()",
        "local": "Local(lr=0.1, steps=2, batch_size=8)",
        "sampler": "Uniform(4)",
        "rounds": 10,
        "every": 1,
    }
    return Experiment(algorithms=algorithms, **settings | more)


class Died(BaseException):
    """The server's process ends here."""


class Server:
    """A server that dies now and then, and may find its newest checkpoint damaged."""

    def __init__(self, chosen: Experiment, folder: Path, seed: int) -> None:
        self.experiment, self.run, self.nodes = chosen, folder / "run", folder
        self.rng = random.Random(seed)
        self.seed, self.deaths, self.fallbacks = seed, 0, 0
        self.happened: Counter[str] = Counter()
        self.dead = False
        self.luck = 0.4

    def save(self, original: Any, state: Any, path: Any) -> None:
        luck = self.rng.random()
        if self.dead or luck < 0.12:
            self.dead = True
            raise Died
        original(state, path)
        if luck > 0.88:
            self.dead = True
            raise Died

    def play(self, monkeypatch: pytest.MonkeyPatch, faults: float) -> None:
        _, data = self.experiment.prepare(0)
        monkeypatch.setattr(checkpoint, "save", partial(self.save, checkpoint.save))
        for attempt in range(100):
            grid = local_grid(data, self.nodes, faults=faults, seed=1000 * self.seed + attempt)
            self.dead = False
            try:
                for _ in deploy(
                    grid,
                    self.experiment,
                    self.run,
                    NAMES,
                    deployment=Deployment(0.001),
                    nodes=FAR,
                    poll=0,
                ):
                    pass
                return
            except Died:
                self.deaths += 1
                self.fall_back()
            finally:
                self.happened += grid.happened
        raise AssertionError("the server never finished")

    def fall_back(self) -> None:
        """Lose the newest checkpoint, sometimes."""
        for folder in (self.run / "checkpoints").glob("*"):
            found = checkpoint_files(folder)
            if len(found) > 1 and self.rng.random() < self.luck:
                found[0].write_bytes(b"damaged")
                self.fallbacks += 1


@pytest.mark.parametrize("seed", range(20))
def test_failures_change_no_bits(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = experiment(ALGORITHMS[seed % len(ALGORITHMS)])
    server = Server(chosen, tmp_path, seed)
    server.play(monkeypatch, faults=0.45)
    monkeypatch.undo()
    assert list(differences(chosen, server.run)) == []
    roster = Roster.read(server.run)
    assert roster is not None
    assert [one.lost for one in roster.clients] == [None] * 4
    assert sum(server.happened[fault] for fault in server.happened if fault != "ok") > 3


def test_the_machine_notices_a_wrong_floor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If nodes forget all but the newest memory, a server that falls back finds some lost."""
    right = Nodes._stamps

    def wrong(self: Nodes, *given: Any) -> tuple[dict[int, int], dict[int, int]]:
        now, _ = right(self, *given)
        return now, now

    monkeypatch.setattr(Nodes, "_stamps", wrong)
    lost = []
    for seed in range(2):
        chosen = experiment("SCAFFOLD()")
        server = Server(chosen, tmp_path / str(seed), seed)
        server.luck = 1.0
        with monkeypatch.context() as patch:
            server.play(patch, faults=0)
        assert list(differences(chosen, server.run)) == []
        text = (server.run / RunFile.EXCHANGES).read_text(encoding="utf-8")
        lost += re.findall("its memory of round [0-9]+ is lost", text)
    assert lost
