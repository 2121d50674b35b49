"""Engines agree with each other, for every kind of model, and have names."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.engines.kinds import (
    MODELS,
    federation,
    gap,
    last,
)
from undrift.algorithms import MimeLite
from undrift.config import UndriftError
from undrift.data.transforms import FlipAndCrop
from undrift.engines import Auto, Compiled, Engine, Prepared, Sequential, Threads
from undrift.engines import engine as engine_by_name
from undrift.engines.native.trainer import SHAPES, CompiledTrainer
from undrift.experiment.registry import algorithm
from undrift.federation.rounds import rounds
from undrift.federation.sampling import Explicit, Uniform
from undrift.training.task import Task
from undrift.training.trainer import LEAST, ClientResult, Work, in_parts
from undrift.training.work import Local


@pytest.mark.parametrize("name", MODELS)
def test_engines_agree(name: str) -> None:
    """Compiled or not to 1e-12, and each for any number of workers to the bit."""
    task, data = federation(name)
    kinds = (Sequential(), Threads(7), Compiled(1), Compiled(7))
    plain, threads, one, many = (last(task, data, kind) for kind in kinds)
    assert gap(plain, threads) == gap(one, many) == 0
    assert gap(one, plain) <= 1e-12
    assert threads.train_loss == plain.train_loss
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


def test_parts_of_clients_have_few_sizes_and_none_is_small_without_need() -> None:
    """A program is compiled for each size, and all must fit into the cache with those of steps."""
    seen: set[int] = set()
    for n in range(1, 1000):
        parts = in_parts(np.arange(n))
        assert np.array_equal(np.concatenate(parts), np.arange(n))
        seen |= {len(part) for part in parts}
        assert min(map(len, parts)) >= min(n, LEAST)
    assert len(seen) <= SHAPES - 20


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
