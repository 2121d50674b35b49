"""`rounds`: runs federated training as a generator that yields after every round."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from undrift.arithmetic import steadily
from undrift.config import UndriftError
from undrift.core import Algorithm
from undrift.data.federated import FederatedData
from undrift.engines import Engine, usual_engine
from undrift.federation.sampling import Cohort, Sampler, Uniform, Urn
from undrift.federation.server import Round as Round
from undrift.federation.server import Server
from undrift.federation.server import State as State
from undrift.rng import stream
from undrift.training.memory import Store
from undrift.training.task import Task
from undrift.training.trainer import Work
from undrift.training.work import Local

Population = Callable[[int], Sequence[int]]
"""Round → ids of the clients that are registered in it."""


def start(
    algorithm: Algorithm,
    task: Task,
    data: FederatedData,
    sampler: Sampler,
    *,
    keep_models: bool = False,
    folder: Path | None = None,
) -> State:
    """The state before round 1; client records go to `folder`, or to memory and temporary files."""
    return State(
        server=algorithm.init_server(task.x0, task.groups),
        buffers=task.buffers0,
        clients=Store(folder and folder / "clients"),
        models=Store(folder and folder / "models") if keep_models else None,
        everyone=task.x0.to(torch.float64, copy=True) if keep_models else None,
        attention=sampler.start(len(data)),
    )


@steadily
def rounds(
    algorithm: Algorithm,
    task: Task,
    data: FederatedData,
    *,
    total: int,
    sampler: Sampler | None = None,
    local: Local | None = None,
    seed: int = 0,
    engine: Engine | None = None,
    population: Population | None = None,
    available: Population | None = None,
    dropout: float = 0.0,
    state: State | None = None,
    keep_models: bool = False,
    compare: Callable[[int], bool] | None = None,
) -> Generator[Round, None, None]:
    """Run rounds up to number `total`, yielding each.

    sampler      which clients take part; 10 at random if not given
    local        what they do: step size, batches, amount of work
    seed         of cohorts, batches and everything else that is random
    engine       where clients run; the fastest for the task if not given. All but `Sequential`
                 copy model and loss at the start: later changes to them have no effect
    population   which clients are registered in a round; all of them if not given
    available    which of these can be drawn in it; all of them if not given
    dropout      chance that a client fails to deliver
    state        to resume from; it is changed in place
    keep_models  keep every client's last model, for the mean over all clients
    compare      whether to compare the cohort's updates in a round with those of all registered
                 clients, which train for it from the same state; nothing else is kept of that
    """
    if not isinstance(algorithm, Algorithm):
        raise UndriftError(
            f"{algorithm!r} is not an algorithm; give AdaBest() or undrift.algorithm('adabest')"
        )
    if not isinstance(task, Task):
        raise UndriftError(f"a {type(task).__name__} is not a task; give undrift.Task(model)")
    for name, value, kind, such in (
        ("data", data, FederatedData, "undrift.federate(Digits(), IID(clients=10), seed=0)"),
        ("sampler", sampler, Sampler | None, "undrift.Uniform(5)"),
        ("local", local, Local | None, "undrift.Local(lr=0.1)"),
        ("engine", engine, Engine | None, "undrift.engines.Compiled()"),
    ):
        if not isinstance(value, kind):
            raise UndriftError(f"{name}={value!r}: give an object, such as {such}")
    if seed < 0:
        raise UndriftError(f"seed={seed}: must be a whole number >= 0")
    if type(total) is not int or total < 1:
        raise UndriftError(f"total={total!r}: must be a whole number >= 1")
    if not 0 <= dropout < 1:
        raise UndriftError(f"dropout={dropout}: must be at least 0 and less than 1")
    if compare and algorithm.regime != "federated":
        why = "has no cohorts to compare with all clients; leave compare out"
        raise UndriftError(f"{algorithm!r} {why}")
    sampler = sampler or Uniform(min(10, len(data)))
    local = local or Local()
    engine = engine or usual_engine()
    require_quorum(algorithm, sampler, len(data))
    engine.prepare(task, data, local)
    pooled = algorithm.regime == "central"
    held = np.array([len(data.order)]) if pooled else data.sizes
    server = Server(algorithm, task, sampler, engine, held)
    state = state or start(algorithm, task, data, sampler, keep_models=keep_models)
    while state.t < total:
        began = time.perf_counter()
        t = state.t + 1
        registered = here = _registered(population, t, len(data))
        sizes = data.sizes if population is None else data.sizes[registered]
        n_mean = float(sizes.mean()) if len(sizes) else 0.0
        if available is not None:
            here = np.intersect1d(registered, _registered(available, t, len(data)))
            sizes = data.sizes[here]
        labels = data.label_counts[here] if sampler.reads_labels else None
        rng = stream(seed, "cohort", t)
        drawer = sampler if available is None else sampler.at_most(len(here))
        cohort = drawer.draw(Urn(t, here, sizes, rng, state.attention, labels))
        dropped = {i: "no samples" for i in cohort.ids if data.sizes[i] == 0}
        if dropout:
            luck = stream(seed, "dropout", t).random(len(data))
            dropped |= {i: "dropped out" for i in cohort.ids if luck[i] < dropout}
        works = [Work(t, i, seed, data, local, n_mean) for i in cohort.ids if i not in dropped]
        asked = registered.tolist() if compare and compare(t) else []
        everyone = [Work(t, i, seed, data, local, n_mean) for i in asked if data.sizes[i]]
        if pooled:
            yield server.play(state, Cohort((0,)), _pooled(works), {}, 1, began)
        else:
            yield server.play(state, cohort, works, dropped, len(registered), began, everyone)


def _pooled(works: Sequence[Work]) -> list[Work]:
    """The work of some clients as that of one, which holds the samples of all clients."""
    if not works:
        return []
    first, samples = works[0], len(works[0].data.order)
    pool = replace(first.data, offsets=np.array([0, samples]))
    steps = sum(len(work.batches) for work in works)
    local = replace(first.local, epochs=None, steps=steps)
    return [Work(first.t, 0, first.seed, pool, local, float(samples))]


def require_quorum(algorithm: Algorithm, sampler: Sampler, clients: int | None = None) -> None:
    """Raise if the sampler never draws enough clients for the algorithm, of so many in all."""
    everybody = algorithm.quorum == math.inf
    needed = clients if everybody else algorithm.quorum
    if sampler.largest is None or needed is None or sampler.largest >= needed:
        return
    count, fix = (f"all {needed}", "") if everybody else (needed, ", or tolerate fewer bad clients")
    raise UndriftError(
        f"{algorithm!r} needs {count} clients in a round, and {sampler!r} draws "
        f"{sampler.largest}; draw more{fix}"
    )


def _registered(population: Population | None, t: int, clients: int) -> np.ndarray:
    if population is None:
        return np.arange(clients)
    ids = np.unique(np.asarray(population(t), dtype=np.int64))
    wrong = ids[(ids < 0) | (ids >= clients)].tolist()
    if wrong:
        raise UndriftError(f"round {t}: there are no clients {wrong}; ids are 0..{clients - 1}")
    return ids
