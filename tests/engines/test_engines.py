"""Engines agree with each other, for every kind of model, and say what they cannot do."""

from __future__ import annotations

import hashlib
import math
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from undrift.algorithms import AdaBest, FedAvg, MimeLite
from undrift.config import UndriftError
from undrift.core import Algorithm, Client, Grad, Struct
from undrift.data.federated import FederatedData
from undrift.data.transforms import FlipAndCrop
from undrift.engines import Auto, Compiled, Engine, Prepared, Sequential, Threads
from undrift.engines import engine as engine_by_name
from undrift.engines.native import library
from undrift.engines.native.launch import LaunchQueue
from undrift.engines.native.trainer import CompiledTrainer
from undrift.experiment.registry import algorithm
from undrift.federation.rounds import Round, rounds
from undrift.federation.sampling import Explicit, Uniform
from undrift.training.task import Task
from undrift.training.trainer import ClientError, ClientResult, Trainer, Work, client_rounds
from undrift.training.work import Local

SAMPLES = 11


class Last(nn.Module):
    """The last step of a recurrent layer."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(x)[0][:, -1]
        return found


class Tied(nn.Module):
    """The same matrix in and out."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(9, 6)
        self.scores = nn.Linear(6, 9, bias=False)
        self.scores.weight = self.words.weight

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.scores(self.words(x).mean(1))
        return found


def rows(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.randn(SAMPLES, *shape, dtype=torch.float64)


def words() -> Tensor:
    return torch.randint(9, (SAMPLES, 5))


def images(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), *layers, nn.Flatten(), nn.LazyLinear(4))


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "linear": (lambda: nn.Linear(6, 4), rows(6)),
    "linear, no bias": (lambda: nn.Linear(37, 7, bias=False), rows(37)),
    "linear, many outputs": (lambda: nn.Linear(6, 12), rows(6)),
    "flattened": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(40, 4)), rows(5, 8)),
    "mlp, dropout": (
        lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.4), nn.Linear(8, 4)),
        rows(6),
    ),
    "in place": (
        lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(inplace=True), nn.Linear(8, 4)),
        rows(6),
    ),
    "norms": (
        lambda: nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 4)),
        rows(6),
    ),
    "cnn": (lambda: images(nn.ReLU(), nn.MaxPool2d(2)), rows(3, 8, 8)),
    "batch norm": (lambda: images(nn.BatchNorm2d(4), nn.ReLU()), rows(3, 8, 8)),
    "group norm": (lambda: images(nn.GroupNorm(2, 4), nn.AvgPool2d(2)), rows(3, 8, 8)),
    "gru": (
        lambda: nn.Sequential(Last(nn.GRU(6, 5, 2, batch_first=True)), nn.Linear(5, 4)),
        rows(7, 6),
    ),
    "lstm": (
        lambda: nn.Sequential(
            Last(nn.LSTM(6, 5, 2, batch_first=True, bidirectional=True, dropout=0.3)),
            nn.Linear(10, 4),
        ),
        rows(7, 6),
    ),
    "embedding": (
        lambda: nn.Sequential(nn.Embedding(9, 6), nn.Flatten(), nn.Linear(30, 4)),
        words,
    ),
    "tied": (Tied, words),
    "transformer": (
        lambda: nn.Sequential(
            nn.TransformerEncoderLayer(6, 2, 12, dropout=0.1, batch_first=True),
            nn.Flatten(),
            nn.Linear(42, 4),
        ),
        rows(7, 6),
    ),
}


def federation(name: str, transform: Any = None) -> tuple[Task, FederatedData]:
    torch.manual_seed(0)
    build, sample = MODELS[name]
    model = build().double()
    model(sample())  # gives lazy layers their shape
    clients = [(sample(), torch.randint(4, (SAMPLES,))) for _ in range(5)]
    inputs, targets = (torch.cat(parts) for parts in zip(*clients, strict=True))
    order, offsets = np.arange(len(targets)), SAMPLES * np.arange(6)
    data = FederatedData(inputs, targets, order, offsets, inputs, targets, transform)
    return Task(model), data


def last(
    task: Task, data: FederatedData, engine: Engine, algorithm: Algorithm | None = None
) -> Round:
    *_, end = rounds(
        algorithm or AdaBest(mu=0.1),
        task,
        data,
        total=3,
        sampler=Uniform(4),
        local=Local(lr=0.05, weight_decay=0.01, batch_size=4, epochs=2, batching="keep"),
        engine=engine,
    )
    return end


def gap(a: Round, b: Round) -> float:
    pairs = [(a.server.x, b.server.x), (a.buffers, b.buffers)]
    return max(float((one - two).abs().max()) for one, two in pairs if one.numel())


@pytest.mark.parametrize("name", MODELS)
def test_engines_agree(name: str) -> None:
    """All to 1e-12, and each for any number of workers to the bit."""
    task, data = federation(name)
    plain = last(task, data, Sequential())
    for kind in (Threads, Compiled):
        one, many = last(task, data, kind(1)), last(task, data, kind(7))
        assert gap(one, many) == 0
        assert gap(one, plain) <= 1e-12
        assert one.train_loss == many.train_loss == pytest.approx(plain.train_loss, abs=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_recorded(name: str) -> None:
    task, data = federation(name)
    trainer = CompiledTrainer(task.replica())
    trainer.gradient(task.x0, task.unpack(task.buffers0), *data.batch(np.arange(4)))
    assert trainer.reasons == {}
    assert len(trainer.programs) == 1


def test_augmentation_is_the_same_everywhere() -> None:
    task, data = federation("cnn", FlipAndCrop(pad=2))
    plain, one, many = (last(task, data, kind) for kind in (Sequential(), Compiled(1), Compiled(3)))
    assert gap(one, many) == 0
    assert gap(one, plain) <= 1e-12
    assert gap(plain, last(*federation("cnn"), Sequential())) > 1e-6


def test_full_gradients_are_recorded_too() -> None:
    task, data = federation("batch norm")
    algorithm = MimeLite()
    ends = [last(task, data, kind, algorithm) for kind in (Sequential(), Compiled(2))]
    assert gap(*ends) <= 1e-12


# What cannot be recorded


class Looks(nn.Linear):
    """Branches on a value."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * (2.0 if x.sum() > 0 else 1.0)


class Masks(nn.Linear):
    """Computes with as many values as are positive."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + x[x > 0].mean()


class Counts(nn.Linear):
    """Changes with every call, unseen by torch."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(x) * (1 + self.calls % 2)


class Hoards(nn.Linear):
    """Changes a tensor that is neither buffer nor parameter."""

    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes)
        self.seen = torch.zeros((), dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        self.seen += 1
        return super().forward(x)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (Looks, "looks at values"),
        (Masks, "as many values as are true"),
        (Counts, "another result than PyTorch"),
        (Hoards, "neither buffer nor parameter"),
    ],
)
def test_a_model_that_cannot_be_recorded_runs_in_python(
    model: type[nn.Linear], reason: str
) -> None:
    torch.manual_seed(0)
    _, data = federation("linear")
    task = Task(model(6, 4).double())
    engine = Compiled(2)
    prepared = engine.prepare(task, data, Local(batch_size=4))
    assert reason in prepared.about
    assert prepared.rounding == "python"
    if model is not Counts:
        assert gap(last(task, data, engine), last(task, data, Sequential())) == 0


class Sorts(Algorithm):
    """An algorithm whose direction is no arithmetic on vectors."""

    def direction(self, grad: Grad, local: Struct, down: Struct, me: Struct, client: Client) -> Any:
        return torch.sort(grad(local.y)).values


def test_a_rule_that_cannot_be_recorded_runs_in_python(caplog: pytest.LogCaptureFixture) -> None:
    task, data = federation("mlp, dropout")
    ends = [last(task, data, kind, Sorts()) for kind in (Sequential(), Compiled(1), Compiled(3))]
    assert gap(ends[1], ends[2]) == 0
    assert gap(ends[0], ends[1]) <= 1e-12
    assert "Sorts() trains in Python: a local step with torch.sort" in caplog.text


class Branches(Algorithm):
    """An algorithm that looks at values."""

    def direction(self, grad: Grad, local: Struct, down: Struct, me: Struct, client: Client) -> Any:
        d = grad(local.y)
        return d if d.norm() < 1 else d / d.norm()


def test_a_rule_that_looks_at_values_says_so(caplog: pytest.LogCaptureFixture) -> None:
    last(*federation("linear"), Compiled(1), Branches())
    assert "Branches() trains in Python: a local step that looks at values" in caplog.text


@pytest.mark.parametrize(
    "loss", ["mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy"]
)
def test_losses_with_one_number_for_many_are_compiled_without_a_warning(loss: str) -> None:
    task, data = federation("linear")

    def of(outputs: Tensor, targets: Tensor) -> Tensor:
        wanted = (targets[:, None] == torch.arange(4)).to(outputs.dtype)
        found: Tensor = getattr(nn.functional, loss)(outputs.sigmoid(), wanted)
        return found

    task, engine = Task(task.model, of), Compiled(1)
    prepared = engine.prepare(task, data, Local(batch_size=4))
    assert prepared.rounding == "compiled", prepared.about
    assert gap(last(task, data, engine), last(task, data, Sequential())) <= 1e-12


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache folder, in which the library is looked for anew."""
    monkeypatch.setenv("UNDRIFT_CACHE", str(tmp_path))
    library.problem.cache_clear()
    yield tmp_path
    library.problem.cache_clear()


def test_no_compiler(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(cache))
    monkeypatch.delenv("CXX", raising=False)
    task, data = federation("linear")
    engine = Auto(2)
    prepared = engine.prepare(task, data, Local())
    assert "in Python: there is no C++ compiler; install one" in prepared.about
    assert gap(last(task, data, engine), last(task, data, Sequential())) == 0


def test_a_compiler_that_fails(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(UndriftError, match="could not be compiled"):
        library.load()
    assert not list(cache.rglob("*.so"))


def test_a_cache_that_cannot_be_written(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cache / "file").write_text("")
    monkeypatch.setenv("UNDRIFT_CACHE", str(cache / "file"))
    assert "set UNDRIFT_CACHE" in str(library.problem())


def test_a_user_without_a_home(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNDRIFT_CACHE")

    def homeless(name: str) -> str:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr("platformdirs.user_cache_dir", homeless)
    assert "set UNDRIFT_CACHE" in str(library.problem())


def planted(cache: Path) -> Path:
    """A library of somebody else where ours would be, with the right checksum."""
    file = cache / "native" / f"undrift-{library.fingerprint()}.so"
    file.parent.mkdir(mode=0o700)
    file.write_bytes(b"harm")
    file.with_suffix(".sha256").write_text(hashlib.sha256(b"harm").hexdigest())
    return file


@pytest.mark.skipif(os.name == "nt", reason="rights of files are others on Windows")
@pytest.mark.parametrize("what", ["folder", "library"])
def test_a_library_that_others_could_have_planted_is_not_loaded(
    what: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = planted(cache)
    (file if what == "library" else file.parent).chmod(0o777)
    monkeypatch.setattr(torch.ops, "load_library", lambda path: pytest.fail("it was loaded"))
    assert "others may write to it" in str(library.problem())


def test_a_library_that_was_cut_is_built_anew(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted(cache).write_bytes(b"ha")
    built: list[Path] = []
    monkeypatch.setattr(library, "_compile", built.append)
    monkeypatch.setattr(torch.ops, "load_library", lambda path: None)
    assert library.problem() is None
    assert [path.suffix for path in built] == [".so"]


def test_a_client_without_a_finite_loss_changes_nothing_for_others() -> None:
    """Whichever batch a worker meets first, its steps are recorded all the same."""
    task, data = federation("linear")
    for bad in (math.nan, math.inf):
        data.inputs[data.rows(0)] = bad
        ends = [last(task, data, Compiled(workers)) for workers in (1, 5)]
        assert gap(*ends) == 0
        trainer = CompiledTrainer(task.replica())
        assert trainer._program(*data.client(0), torch.arange(2)[None]) is not None


# Auto


def test_auto_chooses_by_the_task_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No clock, and nothing that a cache remembers, decides about bits."""

    def forbidden() -> float:
        raise AssertionError("a clock was read")

    monkeypatch.setattr(time, "perf_counter", forbidden)
    task, data = federation("linear")
    assert Auto(2).prepare(task, data, Local()) == Prepared("compiled", "2 workers, compiled")


def test_workers_must_be_some() -> None:
    with pytest.raises(
        UndriftError, match=r"Threads\(workers=0\): workers must be a whole number >= 1"
    ):
        Threads(0)


# Names


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("auto", Auto()),
        ("compiled", Compiled()),
        ("Compiled(workers=2)", Compiled(2)),
        ("Threads(3)", Threads(3)),
        ("sequential", Sequential()),
    ],
)
def test_engines_have_names(text: str, made: Engine) -> None:
    assert engine_by_name(text) == engine_by_name(repr(made)) == made


def test_workers_beside_the_name() -> None:
    assert engine_by_name("threads", 2) == Threads(2)
    assert engine_by_name("sequential", 2) == Sequential()
    with pytest.raises(UndriftError, match=r"Threads\(workers=3\) has its workers; leave out"):
        engine_by_name("Threads(3)", 2)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("compield", "no engine is called 'compield'; did you mean 'Compiled'"),
        ("Compiled(workers=0)", "workers must be a whole number >= 1"),
        ("undrift.algorithms.fedavg:FedAvg", "FedAvg' is not an engine; give one of Auto, "),
    ],
)
def test_bad_names(text: str, error: str) -> None:
    with pytest.raises(UndriftError, match=error):
        engine_by_name(text)


# What travels


def test_work_travels_without_what_was_computed_from_it() -> None:
    _, data = federation("linear")
    work = Work(t=1, client=2, seed=0, data=data, local=Local(batch_size=4), n_mean=1.0)
    before = len(pickle.dumps(work))
    batches = work.batches
    assert len(pickle.dumps(work)) == before
    assert np.array_equal(pickle.loads(pickle.dumps(work)).batches, batches)


class Deaf(Sequential):
    """An engine that gets no answer from client 1."""

    def map(self, job: Any, task: Task, items: Any) -> Iterator[Any]:
        for item, result in zip(items, super().map(job, task, items), strict=True):
            yield ClientResult.missing("no answer in time") if item[0].client == 1 else result


@pytest.mark.parametrize("name", ["AdaBest()", "Mime()", "IDA(FedAvg())"])
def test_a_client_that_does_not_answer(name: str) -> None:
    """It counts as if it had not been drawn, except for the places of the others."""
    task, data = federation("batch norm")
    options: dict[str, Any] = {"total": 2, "local": Local(batch_size=4)}
    made = algorithm(name)
    *_, heard = rounds(made, task, data, sampler=Uniform(5), engine=Deaf(), **options)
    assert heard.dropped == {1: "no answer in time"}
    assert heard.delivered == (0, 2, 3, 4)
    assert 1 not in heard.clients
    four = Explicit(((0, 2, 3, 4),) * 2)
    *_, drawn = rounds(made, task, data, sampler=four, engine=Sequential(), **options)
    assert gap(heard, drawn) <= 1e-12


# Errors and interrupts


@pytest.mark.parametrize("kind", [Sequential, Threads, Compiled])
def test_errors_name_round_client_and_stage(kind: Callable[[], Engine]) -> None:
    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        raise ValueError("no such loss, nor compiled")

    _, data = federation("linear")
    task = Task(nn.Linear(6, 4).double(), loss)
    if kind is Compiled:
        engine = Compiled(2)
        prepared = engine.prepare(task, data, Local())
        assert prepared.about.endswith("a step fails: no such loss, nor compiled")
        assert prepared.rounding == "python"  # which is no matter of how a sentence ends
    with pytest.raises(ClientError, match=r"round 1, client \d, local step 1: no such loss"):
        last(task, data, kind(), FedAvg())


def test_errors_inside_a_block_name_their_client() -> None:
    task, data = federation("linear")
    played = rounds(FedAvg(), task, data, total=9, sampler=Uniform(5), engine=Compiled(1))
    next(played)
    data.targets[data.rows(3)] = 99
    with pytest.raises(ClientError, match=r"round 2, client 3, local steps: .*out of bounds"):
        list(played)


def block_of_clients(task: Task, data: FederatedData) -> Callable[[], object]:
    """What trains five clients in one block, after they have shown that they draw nothing."""
    trainer = CompiledTrainer(task.replica())
    local = Local(batch_size=4, steps=2)
    works = [Work(t=1, client=i, seed=0, data=data, local=local, n_mean=1.0) for i in range(5)]
    clients, down = [(work, Struct()) for work in works], Struct(x=task.x0)
    client_rounds(FedAvg(), trainer, clients, down, task.buffers0)
    return lambda: client_rounds(FedAvg(), trainer, clients, down, task.buffers0)


@pytest.mark.parametrize(("name", "launches"), [("linear", [5]), ("batch norm", [1, 1, 1, 1])])
def test_nobody_trains_twice_to_find_whose_error_it_was(
    name: str, launches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    task, data = federation(name)
    train = block_of_clients(task, data)
    data.targets[data.rows(3)] = 99
    launched, run = [], LaunchQueue.run

    def counted(queue: LaunchQueue) -> None:
        launched.append(len(queue.launches))
        run(queue)

    monkeypatch.setattr(LaunchQueue, "run", counted)
    with pytest.raises(ClientError, match=r"round 1, client 3, local steps: .*out of bounds"):
        train()
    assert [count for count in launched if count] == launches


def test_the_first_client_that_fails_is_named() -> None:
    """Even if a later one fails before anything is launched."""

    def transform(batch: Tensor, rng: np.random.Generator | None) -> Tensor:
        if rng is not None and bool(batch.isnan().any()):
            raise ValueError("a value is missing")
        return batch

    task, data = federation("linear", transform)
    train = block_of_clients(task, data)
    data.inputs[data.rows(3)] = math.nan
    with pytest.raises(ClientError, match="round 1, client 3, local steps: a value is missing"):
        train()
    data.targets[data.rows(1)] = 99
    with pytest.raises(ClientError, match=r"round 1, client 1, local steps: .*out of bounds"):
        train()


def test_other_workers_stop_after_an_error() -> None:
    def job(trainer: Trainer, item: int) -> int:
        if item == 0:
            raise ValueError("broken")
        while not trainer.stop:
            time.sleep(0.001)
        return item

    task, _ = federation("linear")
    with pytest.raises(ValueError, match="broken"):
        list(Threads(2).map(job, task, range(8)))


def test_a_stopped_walk_ends_at_once() -> None:
    task, data = federation("linear")
    trainer = CompiledTrainer(task.replica())
    trainer.stop = torch.ones(1, dtype=torch.uint8)
    work = Work(t=1, client=0, seed=0, data=data, local=Local(), n_mean=1.0)
    with pytest.raises(ClientError, match="round 1, client 0, local steps: stopped"):
        client_rounds(FedAvg(), trainer, [(work, Struct())], Struct(x=task.x0), task.buffers0)


LONG = """
import torch
from dataclasses import dataclass
from undrift import FedAvg, FederatedData, Local, Task, Uniform, rounds
from undrift.engines import Compiled
clients = [(torch.randn(100, 1000), torch.randint(3, (100,))) for _ in range(4)]
data = FederatedData.of_clients(clients)
local = Local(steps=10**5)

@dataclass(frozen=True)
class Told(FedAvg):
    def upload(self, *given):
        print("a client finished", flush=True)
        return super().upload(*given)

engine = Compiled(2)
engine.prepare(Task(torch.nn.Linear(1000, 100)), data, local)
print("ready", flush=True)
for _ in rounds(Told(), Task(torch.nn.Linear(1000, 100)), data, total=1, sampler=Uniform(4),
                local=local, engine=engine):
    pass
"""


def test_ctrl_c_stops_in_the_middle_of_a_client() -> None:
    library.load()
    process = subprocess.Popen(
        [sys.executable, "-c", LONG], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.5)  # it is on its way by now; if not, it stops even so
    process.send_signal(signal.SIGINT)
    said, errors = process.communicate()
    assert "KeyboardInterrupt" in errors
    assert said == ""  # no client had to finish first
