"""The only local training there is: every engine runs `client_round`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from undrift.core import Algorithm, Client, Grad, Struct
from undrift.data.federated import Transform
from undrift.rng import stream, torch_stream
from undrift.task import CHUNK, Task


class ClientError(RuntimeError):
    """A client's code failed; the message names the round, the client and the stage."""


@dataclass(frozen=True)
class Work:
    """Everything a client needs for its part in a round."""

    t: int
    client: int
    seed: int
    inputs: Tensor
    targets: Tensor
    batches: list[np.ndarray]
    lr: float
    lr0: float
    weight_decay: float
    n_mean: float
    transform: Transform | None = None


@dataclass(frozen=True)
class Delivery:
    """What a client hands over: its upload, its next memory, its buffers and its mean loss."""

    up: Struct
    me: Struct
    buffers: Tensor
    loss: float


def client_round(
    algorithm: Algorithm, task: Task, work: Work, down: Struct, me: Struct, buffers: Tensor
) -> Delivery:
    """One client's local training: begin, K times direction and move, upload."""
    own = task.unpack(buffers)
    losses: list[Tensor] = []
    rng = stream(work.seed, "augmentation", work.t, work.client)
    stage = "begin"
    try:
        with torch_stream(work.seed, "model", work.t, work.client):
            c = client_facts(task, work, buffers)
            local = algorithm.begin(down, me, c)
            for k, batch in enumerate(work.batches):
                stage = f"local step {k + 1}"
                grad = _gradient(task, work, batch, own, losses, rng)
                d = algorithm.direction(grad, local, down, me, c)
                local = algorithm.move(local, d, down, c)
            stage = "upload"
            up, me = algorithm.upload(local, down, me, c)
    except Exception as error:
        raise ClientError(f"round {work.t}, client {work.client}, {stage}: {error}") from error
    loss = float(torch.stack(losses).mean()) if losses else 0.0
    return Delivery(up, me, task.pack(own), loss)


def client_survey(
    algorithm: Algorithm, task: Task, work: Work, down: Struct, me: Struct, buffers: Tensor
) -> Struct:
    """One client's answer to the first exchange of a round."""
    try:
        with torch_stream(work.seed, "survey", work.t, work.client):
            return algorithm.survey(down, me, client_facts(task, work, buffers))
    except Exception as error:
        raise ClientError(f"round {work.t}, client {work.client}, survey: {error}") from error


def client_facts(task: Task, work: Work, buffers: Tensor) -> Client:
    """The facts that an algorithm may ask for. Gradients asked for here leave buffers alone."""
    n = len(work.targets)

    def full_grad(x: Tensor) -> Tensor:
        parts = np.array_split(np.arange(n), -(-n // CHUNK))
        counts = [task.answers(work.targets[part]) for part in parts]
        whole = (
            _gradient(task, work, part, task.unpack(buffers))(x) * (count / sum(counts))
            for part, count in zip(parts, counts, strict=True)
            if count
        )
        return sum(whole, torch.zeros_like(x))

    def first_grad(x: Tensor) -> Tensor:
        gradient: Tensor = _gradient(task, work, work.batches[0], task.unpack(buffers))(x)
        return gradient

    return Client(
        t=work.t,
        n=n,
        steps=len(work.batches),
        lr=work.lr,
        lr0=work.lr0,
        n_mean=work.n_mean,
        full_grad=full_grad,
        first_grad=first_grad,
    )


def _gradient(
    task: Task,
    work: Work,
    batch: np.ndarray,
    buffers: dict[str, Tensor],
    losses: list[Tensor] | None = None,
    rng: np.random.Generator | None = None,
) -> Grad:
    """The gradient function of one mini-batch, weight decay included.

    Only the first call belongs to the local path: it notes its loss and moves the buffers.
    """
    positions = torch.from_numpy(batch).to(work.targets.device)
    inputs, targets = work.inputs[positions], work.targets[positions]
    if work.transform is not None:
        inputs = work.transform(inputs, rng)

    called = False

    def grad(x: Tensor) -> Tensor:
        nonlocal called
        if called:
            _, g = task.gradient(x, {k: v.clone() for k, v in buffers.items()}, inputs, targets)
        else:
            called = True
            loss, g = task.gradient(x, buffers, inputs, targets)
            if losses is not None:
                losses.append(loss)
        return g + work.weight_decay * x if work.weight_decay else g

    return grad
