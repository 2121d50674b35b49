"""The state that a forked run starts from, converted for another algorithm where possible."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from undrift.config import UndriftError
from undrift.core import Algorithm
from undrift.experiment.origin import Origin
from undrift.experiment.registry import algorithm
from undrift.later import torch
from undrift.runs.identity import own_code
from undrift.runs.layout import origin_file

if TYPE_CHECKING:
    from undrift.data.federated import FederatedData
    from undrift.experiment.experiment import Experiment
    from undrift.federation.rounds import State
    from undrift.training.task import Task


def first_state(
    origin: Origin, run: Path, seed: int, made: Algorithm, task: Task, folder: Path | None = None
) -> State:
    """The state that a trial of a forked run starts from; client records go to `folder`."""
    from undrift.runs import checkpoint

    path = origin_file(run, seed)
    if not path.exists():
        raise UndriftError(
            f"{path}, from which this run starts, is missing; `undrift fork` writes it"
        )
    state = checkpoint.load(path)
    try:
        with own_code(run):
            source = algorithm(origin.algorithm)
        return carry(state, source, made, task, fresh=origin.fresh, folder=folder)
    finally:
        state.close()


def refuse_unfit(
    experiment: Experiment, source: Algorithm, task: Task, data: FederatedData
) -> None:
    """Raise if an algorithm of a forked run cannot start from the state of the source."""
    from undrift.federation.rounds import start

    empty, origin = start(source, task, data, experiment.sampler), experiment.origin
    for made in experiment.algorithms:
        carry(empty, source, made, task, fresh=origin is not None and origin.fresh)


def carry(
    state: State,
    source: Algorithm,
    made: Algorithm,
    task: Task,
    *,
    fresh: bool = False,
    folder: Path | None = None,
) -> State:
    """The state of one algorithm as the start of another.

    An algorithm with the same state fields takes over all of it. One without any, or with `fresh`,
    starts from the deployed model: a cloud model may contain corrections that only its own
    algorithm can use.
    """
    from undrift.federation.rounds import State
    from undrift.training.memory import Store

    x = state.server.x
    here, there = (_memory(one, x, task) for one in (source, made))
    whole = here == there and not fresh
    if there and not whole and not fresh:
        differing = [name for name in {**here, **there} if here.get(name) != there.get(name)]
        raise UndriftError(
            f"{made!r} cannot start from the state of {source!r}: their states differ in "
            f"{', '.join(differing)}; use --fresh to take over the model only"
        )
    deployed = x if source.deploys == "cloud" else state.server.xbar
    clients = Store(folder and folder / "clients")
    for client, memory in state.clients.items() if whole else ():
        clients.put(client, memory)
    models = None
    if state.models is not None:
        models = Store(folder and folder / "models")
        for client, model in state.models.items():
            models.put(client, model)
    return State(
        server=state.server if whole else made.init_server(deployed, task.groups),
        buffers=state.buffers,
        t=state.t,
        clients=clients,
        models=models,
        everyone=state.everyone,
        attention=state.attention,
        notes=state.notes,
    )


def _memory(made: Algorithm, x: torch.Tensor, task: Task) -> dict[str, str]:
    """The state fields of an algorithm beside the model, with their types and shapes."""
    server = dict(made.init_server(x, task.groups).leaves())
    kept = {f"the server's {k}": v for k, v in server.items() if k not in ("x", "xbar")}
    kept |= {f"a client's {k}": v for k, v in made.init_client(x).leaves()}
    return {
        name: f"{value.dtype} {tuple(value.shape)}" if isinstance(value, torch.Tensor) else "number"
        for name, value in kept.items()
    }
