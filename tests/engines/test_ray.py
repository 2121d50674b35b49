"""The Ray engine on a cluster of two nodes on loopback: the bits of one machine, whatever fails."""

from __future__ import annotations

import json
import logging
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
import types
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import undrift
from undrift import arithmetic
from undrift.config import UndriftError
from undrift.core import Algorithm, Client, Struct
from undrift.data.federated import FederatedData
from undrift.engines import Compiled, Engine, Ray
from undrift.engines import engine as engine_by_name
from undrift.engines.ray.engine import block_size
from undrift.federation.rounds import Round, rounds
from undrift.federation.sampling import AdaFL, Uniform
from undrift.measure.metrics import Scoring
from undrift.runs.runner import run
from undrift.training.task import Task
from undrift.training.trainer import ClientError, Work
from undrift.training.work import Local

os.environ |= {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # else Ray replaces 127.0.0.1 by another address
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # 15 by default, which a busy machine starves
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
}
# Ray reads these when it is imported

ray = pytest.importorskip("ray", reason="needs the extra ray: pip install -e '.[ray]'")

from ray.cluster_utils import Cluster  # noqa: E402

from undrift.engines.ray import fleet, wire  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")  # what Ray warns of is not ours

NODE = {"num_cpus": 1, "node_ip_address": "127.0.0.1", "object_store_memory": 80 * 2**20}
TESTS = str(Path(__file__).parents[2])


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([*sys.path, TESTS]))
        made = Cluster(True, head_node_args={"include_dashboard": False, **NODE})
        made.add_node(**NODE)
        ray.init(made.address, log_to_driver=False, _node_ip_address="127.0.0.1")
        yield made
        ray.shutdown()
        made.shutdown()


@pytest.fixture(scope="module")
def shared(cluster: Any) -> Iterator[Ray]:
    engine = Ray()
    yield engine
    engine.close()


@pytest.fixture
def engine(shared: Ray) -> Ray:
    """The engine that most tests share, since sites take seconds to start."""
    return shared


def federation() -> tuple[Task, FederatedData]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 4))
    samples = torch.randn(220, 6), torch.randint(4, (220,))
    cuts = np.array([0, 0, *range(8, 212, 12), 220])  # client 0 has no samples
    return Task(model), FederatedData(*samples, np.arange(220), cuts, *samples)


LOCAL = Local(lr=0.05, weight_decay=0.01, batch_size=4)


def play(algorithm: Algorithm, engine: Engine, total: int = 3, **options: Any) -> list[Any]:
    options = {"sampler": Uniform(11), "local": LOCAL, "dropout": 0.2, **options}
    played = rounds(algorithm, *federation(), total=total, engine=engine, **options)
    return [bits(round) for round in played]


def bits(round: Round) -> list[Any]:
    """All that a round leaves behind, without its duration."""
    records = [round.server, *round.clients.values()]
    leaves = [(name, value) for record in records for name, value in record.leaves()]
    rest = replace(round, state=None, clients=None, seconds=0.0, mean=None)  # type: ignore[arg-type]
    more = [*leaves, ("buffers", round.buffers), ("everyone", round.state.everyone)]
    numbers = [round.train_loss, round.drift, round.gsi, round.bytes_up, round.steps]
    plain = [(k, v.tolist() if isinstance(v, Tensor) else v) for k, v in more]
    return [plain, numbers, rest.cohort, rest.delivered, dict(rest.dropped), dict(rest.weights)]


# The same bits


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("AdaBest()", {}),
        ("SCAFFOLD()", {}),  # has an upload without weights
        ("Mime(Adam())", {}),  # two exchanges
        ("FedGLAD(IDA(FedAvg()))", {}),  # needs all uploads at once
        ("Centralised()", {}),
        ("local-only", {}),
        ("FedDyn()", {"sampler": AdaFL(11), "keep_models": True}),  # needs single updates
    ],
)
def test_bits_are_those_of_one_machine(name: str, options: dict[str, Any], engine: Ray) -> None:
    algorithm = undrift.algorithm(name)
    assert play(algorithm, engine, **options) == play(algorithm, Compiled(1), **options)


def test_rows_of_an_experiment_are_those_of_one_machine(tmp_path: Path, engine: Ray) -> None:
    """Evaluation, validation, fairness and personal results run on the sites, too."""
    made = undrift.Experiment(
        algorithms=("AdaBest", "local-only"),
        data="Digits",
        model="MLP(hidden=(20,))",
        partition="Dirichlet(clients=20, alpha=0.3)",
        sampler="Uniform(5)",
        local=LOCAL,
        rounds=3,
        seeds=(0, 1),
        validation=3,
        fairness=True,
        personal_steps=2,
        all_clients=True,
        all_updates=True,
    )
    found = []
    for kind, chosen in (("ray", engine), ("local", "compiled")):
        for _ in run(made, tmp_path / kind, engine=chosen):
            pass
        lines = (tmp_path / kind / "metrics.jsonl").read_text().splitlines()
        found.append([json.loads(line) | {"seconds": 0} for line in lines])
    assert found[0] == found[1]
    (session,) = json.loads((tmp_path / "ray" / "environment.json").read_text())
    assert session["engine"] == "Ray: 2 sites with 2 workers, compiled"


# What fails, leaves and joins


@dataclass(frozen=True)
class Deadly(undrift.AdaBest):
    """In round 2, the first client that begins on a machine kills it, or its site only."""

    place: str = ""
    node: str = ""

    def begin(self, down: Struct, me: Struct, client: Client) -> Struct:
        if client.t == 2 and (not self.node or self.node == here()):
            mark = Path(self.place) / ("node" if self.node else "site")
            if not mark.exists():
                mark.touch()
                os.kill(os.getppid() if self.node else os.getpid(), signal.SIGKILL)
                threading.Event().wait()  # the site ends with its machine
        return super().begin(down, me, client)


def here() -> str:
    found: str = ray.get_runtime_context().get_node_id()
    return found


@pytest.mark.parametrize("what", ["site", "machine"])
def test_whatever_is_killed_the_bits_stay(
    what: str, cluster: Any, engine: Ray, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ends, joined = next(iter(cluster.worker_nodes)), what == "machine"
    deadly = Deadly(place=str(tmp_path), node=ends.node_id if joined else "")
    wanted = play(undrift.AdaBest(), Compiled(1), total=4)
    assert play(deadly, engine, total=4) == wanted
    assert "the site on 127.0.0.1 is lost: " in caplog.text
    assert list(tmp_path.iterdir())
    if joined:
        assert len(engine._fleet.sites) == 1
        cluster.remove_node(ends, allow_graceful=False)
        cluster.add_node(**NODE)
    seen = set()
    for _ in rounds(undrift.AdaBest(), *federation(), total=1, engine=engine, local=LOCAL):
        seen = {*engine._fleet.sites}
    assert len(seen) == 2


def test_a_block_that_kills_every_site_is_given_up(engine: Ray) -> None:
    @dataclass(frozen=True)
    class Fatal(undrift.FedAvg):
        def begin(self, down: Struct, me: Struct, client: Client) -> Struct:
            os.kill(os.getpid(), signal.SIGKILL)
            return super().begin(down, me, client)

    engine.close()  # for its CPUs
    doomed = Ray()
    with pytest.raises(UndriftError, match=r"clients lost their site 3 times|machines .* are lost"):
        play(Fatal(), doomed)
    doomed.close()


def test_a_driver_prints_its_own_words_and_ctrl_c_frees_the_sites(
    cluster: Any, engine: Ray
) -> None:
    """What Ray tells when a machine dies, `died` tells at once."""
    engine.close()  # for its CPUs
    died = {"lines": ["a machine died"], "pid": "raylet", "is_err": False}
    script = f"""
import ray, torch, undrift
from undrift import engines
data = undrift.FederatedData.of_clients([(torch.randn(99, 999), torch.arange(99) % 3)] * 4)
task, local = undrift.Task(torch.nn.Linear(999, 99)), undrift.Local(steps=10**6)
engine = engines.engine("Ray(address={cluster.address!r})")
print(engine.prepare(task, data, local).about, flush=True)
ray._private.worker.print_to_stdstream({died}, ignore_prefix=False)
list(undrift.rounds(undrift.FedAvg(), task, data, total=1, local=local, engine=engine))
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "Ray: 2 sites with 2 workers, compiled\n", (
        process.communicate()[1]
    )
    time.sleep(0.5)  # it is on its way by now; if not, it stops even so
    process.send_signal(signal.SIGINT)
    chatter, errors = process.communicate()
    assert chatter == ""
    assert "KeyboardInterrupt" in errors
    assert engine.prepare(*federation(), LOCAL).about.startswith("Ray: ")


# What is refused


def test_two_engines_at_once(engine: Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.prepare(*federation(), LOCAL)
    monkeypatch.setattr(fleet, "PATIENCE", 0.0)
    with pytest.raises(UndriftError, match="needs 1 CPUs, and 0 are free in the cluster: another"):
        Ray().prepare(*federation(), LOCAL)


class Locked:
    """A loss that cannot be sent."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, targets)


def test_a_loss_that_cannot_be_sent(engine: Ray) -> None:
    _, data = federation()
    task = Task(nn.Linear(6, 4), Locked())
    with pytest.raises(UndriftError, match=r"^Task\(.*\) cannot be sent .*: cannot pickle .*lock"):
        engine.prepare(task, data, LOCAL)


def test_a_model_that_other_machines_cannot_import(
    engine: Ray, monkeypatch: pytest.MonkeyPatch
) -> None:
    module: Any = types.ModuleType("only_here")
    module.Net = type("Net", (nn.Linear,), {"__module__": "only_here"})
    monkeypatch.setitem(sys.modules, "only_here", module)
    _, data = federation()
    with pytest.raises(UndriftError, match="No module named 'only_here'; what they need must be"):
        engine.prepare(Task(module.Net(6, 4)), data, LOCAL)


def test_errors_name_round_client_and_stage(engine: Ray) -> None:
    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        raise ValueError("no such loss")

    _, data = federation()
    played = rounds(undrift.FedAvg(), Task(nn.Linear(6, 4), loss), data, total=1, engine=engine)
    with pytest.raises(ClientError, match=r"round 1, client \d+, local step 1: no such loss"):
        list(played)


def test_machines_that_round_differently(
    engine: Ray, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    facts = arithmetic.facts() | {"processor": "a better one"}
    monkeypatch.setattr(arithmetic, "facts", lambda: facts)
    engine.close()
    with pytest.raises(UndriftError, match=r"round differently, 127.* \(here a better one\); use"):
        engine.prepare(*federation(), LOCAL)
    mixed = Ray(mixed=True)
    prepared = mixed.prepare(*federation(), LOCAL)
    mixed.close()
    assert prepared.mixed
    assert prepared.about.endswith(", on machines that may round differently")


def test_another_cluster_than_the_one_in_use(cluster: Any) -> None:
    with pytest.raises(UndriftError, match=r"connected to the cluster at 127\.0\.0\.1:\d+; leave"):
        Ray("10.9.9.9:6379").prepare(*federation(), LOCAL)


def test_a_cluster_without_authentication(caplog: pytest.LogCaptureFixture) -> None:
    one, two = ({"NodeManagerAddress": f"10.0.0.{i}"} for i in (1, 2))
    fleet.warn_if_open([one, one], {})
    fleet.warn_if_open([one, two], {"RAY_AUTH_MODE": "token"})
    assert not caplog.records
    fleet.warn_if_open([one, two], {})
    assert "has no authentication: whoever reaches its ports can run code" in caplog.text


def test_notes_of_sites_are_told_once(caplog: pytest.LogCaptureFixture, engine: Ray) -> None:
    @dataclass(frozen=True)
    class Sorts(undrift.FedAvg):
        def direction(self, grad: Any, local: Struct, *rest: Any) -> Tensor:
            return torch.sort(grad(local.y)).values

    caplog.set_level(logging.WARNING)
    play(Sorts(), engine)
    assert caplog.text.count("Sorts() trains in Python: ") == 1


# How work is cut and packed


@pytest.mark.parametrize("workers", [1, 2, 8, 64])
@pytest.mark.parametrize("sites", [1, 2, 3, 64])
@pytest.mark.parametrize("items", [0, 1, 2, 10, 100, 10_000])
def test_blocks_are_powers_of_two_that_keep_everybody_busy(
    items: int, sites: int, workers: int
) -> None:
    size = block_size(items, sites, workers)
    assert size.bit_count() == 1
    if items >= sites:
        assert items / size >= sites
        assert size >= min(workers, items / sites) / 2


def test_what_is_packed_comes_back() -> None:
    tensors = [
        torch.tensor(1.5),
        torch.empty(0, 3),
        torch.arange(5, dtype=torch.int16),
        torch.randn(3, 4).to(torch.bfloat16).T,
    ]
    for views in (False, True):
        back = wire.unpack(wire.pack(tensors, views=views))
        for one, two in zip(tensors, back, strict=True):
            assert one.dtype == two.dtype
            assert torch.equal(one, two)


def test_data_do_not_travel_with_jobs() -> None:
    task, data = federation()
    big = replace(data, inputs=torch.randn(10**5, 6))
    resident = {id(big): "data", id(big.inputs): "inputs"}
    works = [Work(1, i, 0, big, LOCAL, 1.0) for i in range(3)]
    pool = replace(big, offsets=np.array([0, 220]))
    for job in (Scoring(task.x0, task.buffers0, big, "test"), works, pool):
        parcel = wire.pack(job, resident)
        assert wire.size(parcel) < 50_000
    back = wire.unpack(wire.pack(works, resident), {"data": data})
    assert back[0].data is data


def test_the_engine_has_a_name() -> None:
    made = Ray("10.0.0.1:6379", workers=2)
    assert engine_by_name(repr(made)) == engine_by_name("Ray('10.0.0.1:6379')", 2) == made
