"""The interface of engines, and what those that run in this process share."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, Self, TypeAlias, TypeVar, runtime_checkable

from undrift.config import Config, UndriftError
from undrift.core import Struct
from undrift.data.federated import FederatedData
from undrift.later import Tensor, np, torch
from undrift.training.work import Local

if TYPE_CHECKING:
    from undrift.training.task import Task
    from undrift.training.trainer import ClientResult, Trainer, Work

A = TypeVar("A")
B = TypeVar("B")

Rounding = Literal["compiled", "python"]


@dataclass(frozen=True)
class Prepared:
    """How an engine runs a task.

    rounding  kind of arithmetic of its local steps; results of the two kinds differ in rounding
    about     a line for users: how many workers, and if not compiled, why
    mixed     whether it runs on machines that may round differently from each other
    """

    rounding: Rounding
    about: str
    mixed: bool = False


class Clients(Protocol):
    """Work and record of each client of a round, in the order of their places."""

    @property
    def weights(self) -> Sequence[float]:
        """Of each client, before normalisation."""
        ...

    @property
    def deltas(self) -> bool:
        """Whether the server needs single updates, beside their mean."""
        ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[tuple[Work, Struct]]: ...

    def part(self, places: slice) -> Self:
        """The clients of some places, with their records, to be sent elsewhere."""
        ...


class Sums(Protocol):
    """Sums over the places of a round; bits depend on the places alone."""

    def add(self, weight: float, record: Struct, side: Struct) -> None:
        """Fill the next place."""
        ...

    def skip(self) -> None:
        """Leave the next place empty."""
        ...

    def empty(self) -> Self:
        """Sums of the same kind over no places."""
        ...

    def join(self, later: Self) -> None:
        """Append the places of `later`, which begin here at a multiple of 2^k >= their number."""
        ...


ClientJob: TypeAlias = "Callable[[Trainer, tuple[Work, Struct]], ClientResult]"


@runtime_checkable
class Engine(Protocol):
    """Runs a job for many items and returns the results in order.

    A job is called as `job(trainer, item)`. It may have a method `at_once(trainer, items)`, which
    does several items in one call. Results must not depend on which trainer an item gets.
    """

    def prepare(self, task: Task, data: FederatedData, local: Local) -> Prepared:
        """Get ready for jobs on this task and data; returns how they will run.

        Raises `UndriftError` if they cannot. Calling it again for the same objects costs little.
        """
        ...

    def map(self, job: Callable[[Trainer, A], B], task: Task, items: Iterable[A]) -> Iterator[B]:
        """The results, in the order of the items; items are read as workers become free."""
        ...

    def gather(
        self, job: ClientJob, task: Task, clients: Clients, into: Sums
    ) -> Iterator[ClientResult]:
        """Run a job for clients, and add what they deliver to `into`, place by place.

        Yields the results in the order of the clients; `ClientResult.told` says what is in them.
        """
        ...

    def close(self) -> None:
        """Release what `prepare` acquired; the engine can be prepared again."""
        ...


@dataclass(frozen=True)
class InProcess(Config):
    """An engine whose clients run in this process."""

    def prepare(self, task: Task, data: FederatedData, local: Local) -> Prepared:
        batch = typical_batch(data, local)
        if batch is None:
            return Prepared("python", "no client has samples")
        refuse_misfit(task, data, *batch)
        return self._how(task, *batch)

    def _how(self, task: Task, inputs: Tensor, targets: Tensor) -> Prepared:
        """How batches like this one will run."""
        raise NotImplementedError

    def map(self, job: Callable[[Trainer, A], B], task: Task, items: Iterable[A]) -> Iterator[B]:
        raise NotImplementedError

    def gather(
        self, job: ClientJob, task: Task, clients: Clients, into: Sums
    ) -> Iterator[ClientResult]:
        return gathered(self.map(job, task, clients), clients, into)

    def close(self) -> None:
        pass


def gathered(
    results: Iterable[ClientResult], clients: Clients, into: Sums
) -> Iterator[ClientResult]:
    """The results, which are added to `into` on the way."""
    for result, weight in zip(results, clients.weights, strict=True):
        if result.delivered:
            into.add(weight, result.record, result.side)
        else:
            into.skip()  # keeps the places of the others, which fix the order of the sums
        yield result


def typical_batch(data: FederatedData, local: Local) -> tuple[Tensor, Tensor] | None:
    """Inputs and targets of a batch of the largest client; None if no client has samples."""
    client = int(np.argmax(data.sizes))
    count = int(data.sizes[client])
    if count == 0:
        return None
    rows = data.rows(client)[: count if local.batching == "full" else min(local.batch_size, count)]
    return data.batch(rows)


def refuse_misfit(task: Task, data: FederatedData, inputs: Tensor, targets: Tensor) -> None:
    """Raise if the model cannot read the inputs, or the loss broadcasts outputs against targets."""
    from undrift.keyed import Keyed

    inputs, targets = inputs[:2], targets[:2]
    twin = task.replica()  # calling the model may change it
    twin.model.eval()
    generator = torch.Generator(task.x0.device)
    with torch.no_grad(), Keyed(generator), warnings.catch_warnings():
        warnings.filterwarnings("error", "Using a target size")
        try:
            outputs = twin.model(inputs)
        except Exception as error:  # whatever a model may raise
            raise UndriftError(f"{task!r} cannot train on {data!r}: {error}") from error
        try:
            twin.loss(outputs, targets)
        except UserWarning:
            raise UndriftError(
                f"{task!r} on {data!r}: the loss would compare each output with all targets, since "
                f"two of them have the shapes {tuple(outputs.shape)} and {tuple(targets.shape)}; "
                "make these agree, such as with outputs.squeeze(1) in the loss"
            ) from None
        except Exception:
            return  # training raises it again, with the client and the round
