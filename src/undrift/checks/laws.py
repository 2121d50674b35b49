"""Laws that every algorithm must obey, ours and yours: `check_algorithm(MyAlgorithm())`."""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count
from pathlib import Path
from traceback import extract_tb
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from undrift.arithmetic import misaligned
from undrift.checks.plan import Plan
from undrift.checks.replay import Snapshot, replay
from undrift.config import UndriftError, unknown
from undrift.core import HOOKS, Algorithm, Part, Struct
from undrift.data.federated import FederatedData
from undrift.engines import Compiled, Engine, Sequential, Threads
from undrift.engines.base import ClientJob, Clients, Sums
from undrift.federation.rounds import Round, State, rounds
from undrift.federation.sampling import Explicit
from undrift.measure.cost import messages
from undrift.parts.fedglad import FedGLAD
from undrift.runs import checkpoint
from undrift.training.task import Task
from undrift.training.trainer import ClientResult, Trainer
from undrift.training.work import Local


class LawBroken(AssertionError):
    """An algorithm breaks a law; the message says which, and how."""


Law = Callable[[Algorithm], None]
A = TypeVar("A")
B = TypeVar("B")


@dataclass(frozen=True)
class LawResult:
    """Whether an algorithm obeys a law.

    law      its name in `LAWS`
    says     what it demands, in one sentence
    failure  how the algorithm breaks it; None if it does not
    """

    law: str
    says: str
    failure: str | None


def check_algorithm(algorithm: Algorithm, laws: Iterable[str] | None = None) -> dict[str, str]:
    """Check an algorithm against the named laws, or all of `LAWS`.

    Returns the laws, each with what it says; raises `LawBroken` with all that are broken. On the
    command line: `undrift check ./mine.py:Half`.

    >>> import undrift
    >>> undrift.check_algorithm(undrift.AdaBest(mu=0.02, beta=0.96), ["repeatable"])
    {'repeatable': 'The same inputs give the same bits.'}
    """
    results = list(check_laws(algorithm, laws))
    if broken := [f"{one.law}: {one.says} {one.failure}" for one in results if one.failure]:
        raise LawBroken(f"{algorithm!r} breaks\n  " + "\n  ".join(broken))
    return {one.law: one.says for one in results}


def check_laws(algorithm: Algorithm, laws: Iterable[str] | None = None) -> Iterator[LawResult]:
    """Check one law after the other."""
    if not isinstance(algorithm, Algorithm):
        raise UndriftError(f"{algorithm!r} is not an algorithm; give an instance of one")
    for name in LAWS if laws is None else laws:
        if name not in LAWS:
            raise UndriftError(unknown("law", name, LAWS))
        law = LAWS[name]
        failure = None
        try:
            law(algorithm)
        except LawBroken as error:
            failure = str(error)
        except Exception as error:  # whatever an algorithm's own code may raise
            failure = f"{type(error).__name__}{_line(error, algorithm)}: {error}"
        yield LawResult(name, law.__doc__ or "", failure)


def _line(error: Exception, algorithm: Algorithm) -> str:
    """Where in the algorithm's file an error came from."""
    file = getattr(sys.modules.get(type(algorithm).__module__), "__file__", None)
    frames = [one for one in extract_tb(error.__traceback__) if one.filename == file]
    return f" in line {frames[-1].lineno} of {Path(frames[-1].filename).name}" if frames else ""


def structure(algorithm: Algorithm) -> None:
    """Server state, client memory and messages keep their fields, shapes and types."""
    task, data = _problem()
    form = _form(algorithm.init_server(task.x0, task.groups))
    memory = _form(algorithm.init_client(task.x0))
    means = set()
    for round in _run(algorithm, task, data):  # memories are those of the latest round
        _same(form, _form(round.server), f"the server's state in round {round.t}")
        for i, me in round.clients.items():
            _same(memory, _form(me), f"the memory of client {i} in round {round.t}")
        if round.mean is not None:
            means.add(_form(round.mean))
    if len(means) != 1:
        raise LawBroken(f"the mean of the uploads has several forms: {sorted(means)}")


def purity(algorithm: Algorithm) -> None:
    """No hook changes its arguments."""
    for _ in _run(_Watched(algorithm), *_problem()):
        pass


def repeatable(algorithm: Algorithm) -> None:
    """The same inputs give the same bits."""
    _equal(_replay(algorithm), _replay(algorithm), 0.0)


def order(algorithm: Algorithm) -> None:
    """Results do not depend on how clients are numbered."""
    if algorithm.regime == "central":
        return  # it has no clients, and batches depend on the order of samples
    new = [3, 0, 6, 1, 5, 2, 4]  # client i becomes client new[i]
    renamed = [_CLIENTS[new.index(i)] for i in range(len(new))]
    plans = [
        Plan(
            delivers=[new[i] for i in plan.delivers],
            registered=[new[i] for i in plan.registered or ()],
            batches={new[i]: batches for i, batches in (plan.batches or {}).items()},
        )
        for plan in _PLANS
    ]
    again = _replay(algorithm, renamed, plans)
    _equal(_plain_replay(algorithm), again, 1e-12, memories=False)


def engines(algorithm: Algorithm) -> None:
    """Results do not depend on the engine, the order of clients or the number of workers."""
    plain = _plain_run(algorithm)[-1].state
    kinds: list[Engine] = [_Blocks(), Threads(3), Compiled(1), Compiled(3)]
    blocks, threads, one, many = (
        list(_run(algorithm, *_problem(), engine=kind))[-1].state for kind in kinds
    )
    _same_bits(plain, blocks, "if clients run in another order, or are added up in blocks")
    _same_bits(plain, threads, "if clients run in threads")
    _same_bits(one, many, "with another number of workers")
    for (name, a), (_, b) in zip(_leaves(plain), _leaves(one), strict=True):
        if not np.allclose(a, b, rtol=1e-12, atol=1e-12, equal_nan=True):
            raise LawBroken(f"{name} differs by {np.abs(np.asarray(a) - b).max():.1e} if compiled")


def rejection(algorithm: Algorithm) -> None:
    """A client whose update is not finite is ignored, and its memory does not change."""
    if algorithm.regime == "central":
        return  # it has no clients
    poison = [(np.full_like(x, np.nan) if i == 1 else x, y) for i, (x, y) in enumerate(_CLIENTS)]
    everyone, others = range(7), [0, 2, 3, 4, 5, 6]
    sick = _replay(algorithm, poison, [Plan(everyone), Plan(everyone)])
    well = _replay(algorithm, plans=[Plan(others), Plan(others)])
    _equal(well, sick, 1e-12)
    if 1 not in sick[0].dropped or 1 not in sick[1].dropped:
        raise LawBroken("a client that sent NaN is not reported")


def stillness(algorithm: Algorithm) -> None:
    """If all gradients are zero, all values stay finite."""
    clients = [(np.zeros_like(x), np.zeros(len(y))) for x, y in _CLIENTS]
    for snapshot in _replay(algorithm, clients, model="least_squares"):
        if snapshot.dropped:
            raise LawBroken(f"clients are dropped in round {snapshot.t}: {snapshot.dropped}")
        for name, value in [("x", snapshot.x), *snapshot.server.items()]:
            # Exceptions: the similarity of zero updates is 0/0; plateau's best starts at infinity.
            if name == "fedglad.factor" and not snapshot.delivered:
                continue  # a void round has none
            if name not in ("fedglad.gsi", "plateau.best") and not np.isfinite(value).all():
                raise LawBroken(f"{name} is not finite after round {snapshot.t}")


def storageless(algorithm: Algorithm) -> None:
    """Client hooks never look at values, and messages have the declared size."""
    task, _ = _problem()
    declared = messages(algorithm, len(task.x0))
    for round in _plain_run(algorithm):
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
    """A run that is saved and restored half-way ends with the same bits."""
    task, data = _problem()
    whole = _plain_run(algorithm)[-1].state
    half = list(_run(algorithm, task, data, total=3))[-1].state
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.safetensors"
        checkpoint.save(half, path)
        restored = checkpoint.load(path)
    resumed = list(_run(algorithm, task, data, state=restored))[-1].state
    _same_bits(whole, resumed, "after a restart")


def addresses(algorithm: Algorithm) -> None:
    """Results do not depend on the memory addresses of state and data."""
    task, data = _wide_problem()
    elsewhere = replace(data)
    object.__setattr__(elsewhere, "inputs", misaligned(data.inputs))
    whole = list(_run(algorithm, task, data, total=2))[-1].state
    half = list(_run(algorithm, task, data, total=1))[-1].state
    shift = count(1)  # another misalignment for each vector
    half.server = half.server.map(
        lambda value: misaligned(value, next(shift)) if isinstance(value, Tensor) else value
    )
    moved = list(_run(algorithm, task, elsewhere, total=2, state=half))[-1].state
    _same_bits(whole, moved, "at other addresses")


def precision(algorithm: Algorithm) -> None:
    """In float32 the state is float32, and close to that in float64."""
    single = _replay(algorithm, dtype=torch.float32)
    for a, b in zip(_plain_replay(algorithm), single, strict=True):
        for name, value in [("x", b.x), *b.server.items()]:
            if isinstance(value, np.ndarray) and value.dtype != np.float32:
                raise LawBroken(f"{name} is {value.dtype}")
        if np.abs(a.x - b.x).max() > 1e-3:
            raise LawBroken(f"x differs by {np.abs(a.x - b.x).max():.1e} in round {a.t}")


def rescaling(algorithm: Algorithm) -> None:
    """Inside FedGLAD, what is recovered from models uses mean.raw, not the rescaled mean.delta."""
    try:
        still, free = FedGLAD(algorithm, gamma=0.0), FedGLAD(algorithm, gamma=math.inf)
    except UndriftError:
        return  # FedGLAD is not defined for this algorithm
    plain, same, other = (
        list(_run(one, *_problem(), total=2))[-1].state for one in (algorithm, still, free)
    )
    found = dict(_leaves(same))
    for name, value in _leaves(plain):
        if not np.array_equal(value, found[name], equal_nan=True):
            raise LawBroken(f"{name} differs inside FedGLAD though nothing is rescaled")
    sent = dict(algorithm.download(other.server).leaves())
    for name, value in algorithm.download(plain.server).leaves():
        if name not in ("x", "xbar") and not np.array_equal(value, sent[name], equal_nan=True):
            raise LawBroken(f"{name}, sent to clients, is computed from the rescaled mean.delta")


LAWS: dict[str, Law] = {
    law.__name__: law
    for law in (
        structure,
        purity,
        repeatable,
        order,
        engines,
        rejection,
        stillness,
        storageless,
        restore,
        addresses,
        precision,
        rescaling,
    )
}

_RNG = np.random.default_rng(7)
_SIZES = (4, 9, 5, 7, 6, 8, 5)
_CLIENTS = [(_RNG.normal(i / 4, 1.0, (n, 3)), _RNG.integers(0, 3, n)) for i, n in enumerate(_SIZES)]
_CLIENTS[0][1][0] = 2  # so that every class exists
_COHORTS = [[0, 1, 3, 4, 6], [1, 2], [], [0, 1, 2, 3, 4, 5, 6], [1, 3]]
_ABSENT = [[5], [0, 3], [], [], [6]]
_PLANS = [
    Plan(
        ids,
        registered=[i for i in range(7) if i not in absent],
        batches={i: _RNG.integers(0, _SIZES[i], (2, 3)).tolist() for i in ids},
    )
    for ids, absent in zip(_COHORTS, _ABSENT, strict=True)
]


def _replay(
    algorithm: Algorithm,
    clients: Sequence[Any] = _CLIENTS,
    plans: Sequence[Plan] = _PLANS,
    **options: Any,
) -> list[Snapshot]:
    return replay(algorithm, clients, plans, lr=0.05, lr_decay=0.9, weight_decay=1e-3, **options)


@lru_cache(maxsize=1)
def _plain_replay(algorithm: Algorithm) -> list[Snapshot]:
    """What several laws compare another replay with."""
    return _replay(algorithm)


@lru_cache(maxsize=1)
def _plain_run(algorithm: Algorithm) -> list[Round]:
    """What several laws look at, or compare another run with."""
    return list(_run(algorithm, *_problem()))


def _problem() -> tuple[Task, FederatedData]:
    model = nn.Linear(3, 3).double()
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    return Task(model), FederatedData.of_clients(_CLIENTS)


def _wide_problem() -> tuple[Task, FederatedData]:
    """A problem in float32, with products large enough for vector instructions."""
    rng = np.random.default_rng(8)
    clients = [
        (rng.normal(0, 1, (n, 50)).astype(np.float32), y)
        for n, (_, y) in zip(_SIZES, _CLIENTS, strict=True)
    ]
    model = nn.Linear(50, 10)
    with torch.no_grad():
        model.weight.copy_(torch.from_numpy(rng.normal(0, 0.1, (10, 50))))
        model.bias.zero_()
    return Task(model), FederatedData.of_clients(clients)


def _run(
    algorithm: Algorithm,
    task: Task,
    data: FederatedData,
    total: int = len(_PLANS),
    state: State | None = None,
    engine: Engine | None = None,
) -> Iterable[Round]:
    sampler = Explicit(tuple(tuple(plan.delivers) for plan in _PLANS))
    local = Local(lr=0.05, lr_decay=0.9, batch_size=3, epochs=1)
    return rounds(
        algorithm,
        task,
        data,
        total=total,
        sampler=sampler,
        local=local,
        state=state,
        engine=engine or Sequential(),
        population=lambda t: cast(Sequence[int], _PLANS[t - 1].registered),
    )


class _Blocks(Sequential):
    """An engine that adds up two clients at a time, as if on different machines, the last first."""

    def map(self, job: Callable[[Trainer, A], B], task: Task, items: Iterable[A]) -> Iterator[B]:
        trainer = Trainer(task)
        return iter([job(trainer, item) for item in reversed(list(items))][::-1])

    def gather(
        self, job: ClientJob, task: Task, clients: Clients, into: Sums
    ) -> Iterator[ClientResult]:
        for place in range(0, len(clients), 2):
            some, sums = clients.part(slice(place, place + 2)), into.empty()
            results = [one.told(clients.deltas) for one in super().gather(job, task, some, sums)]
            into.join(sums)
            yield from results


@dataclass(frozen=True)
class _Watched(Part):
    """An algorithm whose hooks are checked not to change their arguments."""

    rank = 9

    def __getattribute__(self, name: str) -> Any:
        if name not in HOOKS:
            return super().__getattribute__(name)
        hook = getattr(self.inner, name)

        def watched(*given: Any) -> Any:
            before = [(path, leaf, leaf.clone()) for path, leaf in _tensors(given)]
            result = hook(*given)
            for path, leaf, copy in before:
                if not torch.equal(leaf, copy):
                    raise LawBroken(f"{name} changes {path} in place")
            return result

        return watched


def _tensors(given: Iterable[Any]) -> Iterator[tuple[str, Tensor]]:
    """All tensors in the arguments of a hook; those with NaN cannot be compared and are skipped."""
    for value in given:
        if isinstance(value, Struct):
            for name, leaf in value.leaves():
                yield from ((name, one) for _, one in _tensors([leaf]))
        elif isinstance(value, list | tuple):
            yield from _tensors(value)
        elif isinstance(value, Tensor) and not value.isnan().any():
            yield "an argument", value


def _form(record: Struct) -> tuple[Any, ...]:
    return tuple(
        (name, tuple(v.shape), str(v.dtype)) if isinstance(v, Tensor) else (name, type(v).__name__)
        for name, v in record.leaves()
    )


def _same(a: tuple[Any, ...], b: tuple[Any, ...], where: str) -> None:
    if a != b:
        changed = sorted(set(a) ^ set(b), key=str)
        raise LawBroken(f"{where} changed its form: {changed}")


def _same_bits(a: State, b: State, when: str) -> None:
    for (name, one), (_, two) in zip(_leaves(a), _leaves(b), strict=True):
        if not np.array_equal(one, two, equal_nan=True):
            raise LawBroken(f"{name} differs {when}")


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
