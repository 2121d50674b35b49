"""Laws that every algorithm must obey, ours and yours: `check_algorithm(MyAlgorithm())`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from undrift import checkpoint
from undrift.batches import Local
from undrift.core import Algorithm, Struct
from undrift.cost import messages
from undrift.data.federated import FederatedData
from undrift.replay import Plan, Snapshot, replay
from undrift.rounds import Round, State, rounds
from undrift.sampling import Explicit
from undrift.task import Task


class LawBroken(AssertionError):
    """An algorithm breaks a law; the message says which, and how."""


Law = Callable[[Algorithm], None]


def check_algorithm(algorithm: Algorithm, laws: Iterable[str] | None = None) -> None:
    """Check an algorithm against the laws, all of `LAWS` or those named.

    Raises `LawBroken` with every law that is broken; returns silently if none is.

    >>> import undrift
    >>> undrift.check_algorithm(undrift.AdaBest(mu=0.02, beta=0.96))
    """
    broken = []
    for name in LAWS if laws is None else laws:
        try:
            LAWS[name](algorithm)
        except (LawBroken, ArithmeticError, LookupError, TypeError, RuntimeError) as error:
            broken.append(f"{name}: {LAWS[name].__doc__} {error or type(error).__name__}")
    if broken:
        raise LawBroken(f"{algorithm!r} breaks\n  " + "\n  ".join(broken))


def structure(algorithm: Algorithm) -> None:
    """Records keep their fields, shapes and types, on the server, in memory and in messages."""
    task, data = _problem()
    form = _form(algorithm.init_server(task.x0, task.groups))
    memory = _form(algorithm.init_client(task.x0))
    means = set()
    for round in _run(algorithm, task, data):
        _same(form, _form(round.server), f"the server's state in round {round.t}")
        for i, me in round.clients.items():
            _same(memory, _form(me), f"the memory of client {i} in round {round.t}")
        if round.mean is not None:
            means.add(_form(round.mean))
    if len(means) != 1:
        raise LawBroken(f"the mean of the uploads has several forms: {sorted(means)}")


def purity(algorithm: Algorithm) -> None:
    """No hook changes a record that it was given."""
    task, data = _problem()
    for round in _run(algorithm, task, data):
        for name, value in [*round.server.leaves(), *_memories(round)]:
            if isinstance(value, Tensor) and value._version:
                raise LawBroken(f"{name} was changed in place in round {round.t}")


def repeatable(algorithm: Algorithm) -> None:
    """The same inputs give the same bits."""
    _equal(_replay(algorithm), _replay(algorithm), 0.0)


def order(algorithm: Algorithm) -> None:
    """Which number a client has does not matter."""
    new = [3, 0, 6, 1, 5, 2, 4]  # client i becomes client new[i]
    renamed = [_CLIENTS[new.index(i)] for i in range(len(new))]
    plans = [
        Plan(
            [new[i] for i in plan.delivers],
            None if plan.registered is None else [new[i] for i in plan.registered],
            None if plan.batches is None else {new[i]: b for i, b in plan.batches.items()},
        )
        for plan in _PLANS
    ]
    _equal(_replay(algorithm), _replay(algorithm, renamed, plans), 1e-12, memories=False)


def void(algorithm: Algorithm) -> None:
    """A round in which nobody delivers changes nothing."""
    before, after = _replay(algorithm, plans=[_PLANS[0], Plan([])])
    _equal([before], [after], 0.0)


def rejection(algorithm: Algorithm) -> None:
    """A client whose update is not finite counts for nothing, and its memory stays."""
    poison = [(np.full_like(x, np.nan) if i == 1 else x, y) for i, (x, y) in enumerate(_CLIENTS)]
    everyone, others = range(7), [0, 2, 3, 4, 5, 6]
    sick = _replay(algorithm, poison, [Plan(everyone), Plan(everyone)])
    well = _replay(algorithm, plans=[Plan(others), Plan(others)])
    _equal(well, sick, 0.0)
    if 1 not in sick[0].dropped or 1 not in sick[1].dropped:
        raise LawBroken("a client that sent NaN is not reported")


def stillness(algorithm: Algorithm) -> None:
    """Where no client finds a gradient, all stays finite."""
    clients = [(np.zeros_like(x), np.zeros(len(y))) for x, y in _CLIENTS]
    for snapshot in _replay(algorithm, clients, model="least_squares"):
        for name, value in [("x", snapshot.x), *snapshot.server.items()]:
            if name == "fedglad.gsi":
                continue  # 0/0, by definition
            if np.isnan(value).any():
                raise LawBroken(f"{name} is NaN after round {snapshot.t}")


def storageless(algorithm: Algorithm) -> None:
    """Client hooks never look at values, and messages have the size that they claim."""
    task, data = _problem()
    declared = messages(algorithm, len(task.x0))
    for round in _run(algorithm, task, data):
        if not round.delivered:
            continue
        size = task.x0.element_size()
        down = round.bytes_down / len(round.cohort)
        up = round.bytes_up / len(round.cohort)
        for way, found, claimed in (
            ("down", down, declared.down.bytes(size)),
            ("up", up, declared.up.bytes(size)),
        ):
            if found != claimed:
                raise LawBroken(f"{found} bytes went {way}, {claimed} were declared")


def restore(algorithm: Algorithm) -> None:
    """A run saved half-way and restored goes on bit for bit."""
    task, data = _problem()
    whole = list(_run(algorithm, task, data))[-1].state
    half = list(_run(algorithm, task, data, total=3))[-1].state
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.safetensors"
        checkpoint.save(half, path)
        restored = checkpoint.load(path)
    resumed = list(_run(algorithm, task, data, state=restored))[-1].state
    for (name, a), (_, b) in zip(_leaves(whole), _leaves(resumed), strict=True):
        if not np.array_equal(a, b, equal_nan=True):
            raise LawBroken(f"{name} differs after a restart")


def precision(algorithm: Algorithm) -> None:
    """In float32 the state is float32, and near to what float64 gives."""
    for a, b in zip(_replay(algorithm), _replay(algorithm, dtype=torch.float32), strict=True):
        for name, value in [("x", b.x), *b.server.items()]:
            if isinstance(value, np.ndarray) and value.dtype != np.float32:
                raise LawBroken(f"{name} is {value.dtype}")
        if np.abs(a.x - b.x).max() > 1e-3:
            raise LawBroken(f"x differs by {np.abs(a.x - b.x).max():.1e} in round {a.t}")


LAWS: dict[str, Law] = {
    law.__name__: law
    for law in (
        structure,
        purity,
        repeatable,
        order,
        void,
        rejection,
        stillness,
        storageless,
        restore,
        precision,
    )
}

_RNG = np.random.default_rng(7)
_SIZES = (4, 9, 5, 7, 6, 8, 5)
_CLIENTS = [(_RNG.normal(i / 4, 1.0, (n, 3)), _RNG.integers(0, 3, n)) for i, n in enumerate(_SIZES)]
_CLIENTS[0][1][0] = 2  # every class exists whatever was drawn
_PLANS = [
    Plan(list(ids), batches={i: _RNG.integers(0, _SIZES[i], (2, 3)).tolist() for i in ids})
    for ids in ([0, 1, 3, 4, 6], [1, 2, 4, 5, 6], [], [0, 2, 3, 4, 5], [1, 3], range(7))
]


def _replay(
    algorithm: Algorithm,
    clients: Sequence[Any] = _CLIENTS,
    plans: Sequence[Plan] = _PLANS,
    **options: Any,
) -> list[Snapshot]:
    return replay(algorithm, clients, plans, lr=0.05, lr_decay=0.9, weight_decay=1e-3, **options)


def _problem() -> tuple[Task, FederatedData]:
    model = nn.Linear(3, 3).double()
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    return Task(model), FederatedData.of_clients(_CLIENTS)


def _run(
    algorithm: Algorithm,
    task: Task,
    data: FederatedData,
    total: int = 6,
    state: State | None = None,
) -> Iterable[Round]:
    sampler = Explicit(tuple(tuple(plan.delivers) for plan in _PLANS))
    local = Local(lr=0.05, lr_decay=0.9, batch_size=3, epochs=1.5)
    return rounds(algorithm, task, data, total=total, sampler=sampler, local=local, state=state)


def _form(record: Struct) -> tuple[Any, ...]:
    return tuple(
        (name, tuple(v.shape), str(v.dtype)) if isinstance(v, Tensor) else (name, type(v).__name__)
        for name, v in record.leaves()
    )


def _same(a: tuple[Any, ...], b: tuple[Any, ...], where: str) -> None:
    if a != b:
        changed = sorted(set(a) ^ set(b), key=str)
        raise LawBroken(f"{where} changed its form: {changed}")


def _memories(round: Round) -> list[tuple[str, Any]]:
    return [(f"client {i}'s {k}", v) for i, me in round.clients.items() for k, v in me.leaves()]


def _leaves(state: State) -> list[tuple[str, Any]]:
    memories = [(f"{i}.{k}", v) for i, me in sorted(state.clients.items()) for k, v in me.leaves()]
    return [*state.server.leaves(), *memories]


def _equal(
    a: Sequence[Snapshot], b: Sequence[Snapshot], tolerance: float, memories: bool = True
) -> None:
    for one, two in zip(a, b, strict=True):
        pairs = [("x", one.x, two.x), ("xbar", one.xbar, two.xbar)]
        pairs += [(name, value, two.server[name]) for name, value in one.server.items()]
        if memories:
            pairs += [
                (f"client {i}'s {name}", value, two.clients[i][name])
                for i, me in one.clients.items()
                for name, value in me.items()
            ]
        for name, left, right in pairs:
            if not np.allclose(left, right, rtol=tolerance, atol=tolerance, equal_nan=True):
                gap = np.abs(np.asarray(left) - np.asarray(right)).max()
                raise LawBroken(f"{name} differs by {gap:.1e} in round {two.t}")
