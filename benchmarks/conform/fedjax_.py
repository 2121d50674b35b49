"""FedJAX: its algorithms, made anew for the step size of each round; the state is kept.

The server optimisers are those of `fedjax.optimizers`.
"""

# ruff: noqa: E402 (JAX reads its settings when it is imported)

from __future__ import annotations

import os
from functools import cache
from typing import Any

os.environ |= {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1"}

import jax

jax.tree_map = jax.tree_util.tree_map  # which FedJAX 0.0.17 expects and newer JAX took away

import fedjax
import jax.numpy as jnp
import numpy as np
from fedjax.algorithms.fed_avg import federated_averaging
from fedjax.algorithms.fed_prox import fed_prox
from fedjax.algorithms.mime import mime
from fedjax.algorithms.mime_lite import mime_lite

LIBRARY, PACKAGE = "FedJAX", "fedjax"
SOME = fedjax.ShuffleRepeatBatchHParams(batch_size=1)
ALL = fedjax.PaddedBatchHParams(batch_size=64)


def squares(x: jax.Array, batch: dict[str, jax.Array], rng: jax.Array) -> jax.Array:
    """½ (inputs·x − target)² of each sample."""
    return 0.5 * (batch["x"] @ x - batch["y"]) ** 2


def gradient(x: jax.Array, batch: dict[str, jax.Array], rng: jax.Array) -> jax.Array:
    return jax.grad(lambda x: squares(x, batch, rng).mean())(x)


class Samples(fedjax.ClientDataset):
    """A client's samples, whose mini-batches come in the order given."""

    def __init__(self, client: Any, batches: Any, epochs: int) -> None:
        super().__init__({"x": client.inputs, "y": client.targets})
        self.rows = [*batches] * epochs

    def shuffle_repeat_batch(self, hparams: Any = None, **_: Any) -> Any:
        every = self.all_examples()
        return [{name: one[rows] for name, one in every.items()} for rows in self.rows]


# Whatever JAX compiles belongs to one algorithm, so algorithms and optimisers are made once.


@cache
def averaging(lr: float, server: Any) -> Any:
    return federated_averaging(gradient, optimiser("sgd", lr), server, SOME)


@cache
def proximal(lr: float, mu: float) -> Any:
    return fed_prox(squares, optimiser("sgd", lr), optimiser("sgd", 1.0), SOME, mu)


@cache
def optimiser(name: str, *given: float, **options: float) -> Any:
    return getattr(fedjax.optimizers, name)(*given, **options)


@cache
def mimicking(make: Any, lr: float, beta: float) -> Any:
    base = optimiser("sgd", lr, momentum=beta)
    return make(squares, base, SOME, ALL, server_learning_rate=1.0)


class FedAvg:
    def start(self, x0: np.ndarray, clients: Any, server_lr: float) -> None:
        self.begin(x0, clients, optimiser("sgd", server_lr))

    def begin(self, x0: np.ndarray, clients: Any, server: Any) -> None:
        self.clients, self.server = clients, server
        self.state = self.algorithm(0.1).init(jnp.asarray(x0))

    def algorithm(self, lr: float) -> Any:
        return averaging(lr, self.server)

    def round(
        self, cohort: Any, batches: Any, lr: float, epochs: int, dropped: Any = ()
    ) -> np.ndarray:
        here = [
            (str(i), Samples(self.clients[i], batches[i], epochs), jax.random.PRNGKey(0))
            for i in cohort
            if i not in dropped
        ]
        self.state, _ = self.algorithm(lr).apply(self.state, here)
        return np.asarray(self.state.params)

    def statistics(self, **names: str) -> dict[str, np.ndarray]:
        """Statistics of the optimiser, by the names that optax gives them."""
        found = {}
        for one in jax.tree_util.tree_leaves(self.state.opt_state, is_leaf=hasattr_any(*names)):
            found |= {
                ours: np.asarray(getattr(one, name))
                for name, ours in names.items()
                if hasattr(one, name)
            }
        return found


def hasattr_any(*names: str) -> Any:
    return lambda one: any(hasattr(one, name) for name in names)


class FedProx(FedAvg):
    def start(self, x0: np.ndarray, clients: Any, mu: float) -> None:
        self.mu = mu
        self.begin(x0, clients, None)

    def algorithm(self, lr: float) -> Any:
        return proximal(lr, self.mu)


class FedAvgM(FedAvg):
    def start(self, x0: np.ndarray, clients: Any, beta: float, server_lr: float) -> None:
        self.begin(x0, clients, optimiser("sgd", server_lr, momentum=beta))

    def states(self) -> dict[str, np.ndarray]:
        return self.statistics(trace="m")


class FedAdam(FedAvg):
    name = "adam"

    def start(
        self,
        x0: np.ndarray,
        clients: Any,
        server_lr: float,
        beta1: float,
        beta2: float,
        eps: float,
    ) -> None:
        self.begin(x0, clients, optimiser(self.name, server_lr, b1=beta1, b2=beta2, eps=eps))

    def states(self) -> dict[str, np.ndarray]:
        return self.statistics(mu="m", nu="v")


class FedYogi(FedAdam):
    name = "yogi"


class FedAdagrad(FedAvg):
    def start(self, x0: np.ndarray, clients: Any, server_lr: float, eps: float) -> None:
        self.begin(x0, clients, optimiser("adagrad", server_lr, eps**2, eps))

    def states(self) -> dict[str, np.ndarray]:
        return self.statistics(sum_of_squares="v")


class MimeLite(FedAvg):
    make: Any = staticmethod(mime_lite)

    def start(self, x0: np.ndarray, clients: Any, beta: float) -> None:
        self.beta = beta
        self.begin(x0, clients, None)

    def algorithm(self, lr: float) -> Any:
        return mimicking(self.make, lr, self.beta)

    def states(self) -> dict[str, np.ndarray]:
        return self.statistics(trace="m")


class Mime(MimeLite):
    make = staticmethod(mime)


ADAPTERS = {
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "fedavgm: server sgd(momentum)": FedAvgM,
    "fedadam: server adam": FedAdam,
    "fedyogi: server yogi": FedYogi,
    "fedadagrad: server adagrad": FedAdagrad,
    "mimelite(weights='samples', form='heavy_ball')": MimeLite,
    "mime(weights='samples', form='heavy_ball')": Mime,
}
