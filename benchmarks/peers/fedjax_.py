"""FedJAX: one client after the other (jit), or one on each of two host devices (pmap).

All its batches are full: where an epoch ends within a batch, the next one fills it up.
"""

# ruff: noqa: E402 (JAX reads its settings when it is imported)

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.metadata import version

from work import BATCH, CLIENTS, DECAY, LR, Watch, Work, order

ASKED = order(__doc__, ("jit", "pmap on 2 devices"))
if ASKED.setup != "jit":
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

# FedJAX 0.0.17 expects these three, which newer JAX took away.
jax.tree_map = jax.tree_util.tree_map
jax.device_put_sharded = lambda trees, devices: jax.device_put(
    jax.tree_util.tree_map(lambda *leaves: np.stack(leaves), *trees),
    NamedSharding(Mesh(devices, "d"), PartitionSpec("d")),
)
jax.device_put_replicated = lambda tree, devices: jax.device_put_sharded(
    [tree] * len(devices), devices
)

import fedjax
import numpy as np
import optax
from fedjax.algorithms.fed_avg import federated_averaging


def parameters(work: Work) -> list[tuple[np.ndarray, np.ndarray]]:
    """Weights and biases, drawn as PyTorch does."""
    shapes = [(784, 100), (100, 100), (100, 26)]
    if work.name == "W2":
        shapes = [(5, 5, 3, 64), (5, 5, 64, 64), (1600, 384), (384, 192), (192, 100)]
    random = np.random.default_rng(0)

    def layer(shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        bound = np.prod(shape[:-1]) ** -0.5
        weights = random.uniform(-bound, bound, shape).astype(np.float32)
        return weights, random.uniform(-bound, bound, shape[-1]).astype(np.float32)

    return [layer(shape) for shape in shapes]


def predict(layers: list, x: jax.Array) -> jax.Array:
    """Convolutions, each pooled, then dense layers; images are (height, width, channel)."""
    for n, (w, b) in enumerate(layers, start=1):
        if w.ndim == 4:
            order = ("NHWC", "HWIO", "NHWC")
            x = jax.lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=order) + b
            pool = (1, 2, 2, 1)
            x = jax.lax.reduce_window(jax.nn.relu(x), -jnp.inf, jax.lax.max, pool, pool, "VALID")
        else:
            x = x.reshape(len(x), -1) @ w + b
            x = jax.nn.relu(x) if n < len(layers) else x
    return x


def loss(layers: list, batch: dict[str, jax.Array], rng: jax.Array) -> jax.Array:
    rows = optax.softmax_cross_entropy_with_integer_labels(predict(layers, batch["x"]), batch["y"])
    return rows.mean()


class Counted(fedjax.ClientDataset):
    """Counts the batches that are taken from it: each is one step."""

    steps = 0

    def shuffle_repeat_batch(self, hparams=None, **more: object) -> Iterator:
        for batch in super().shuffle_repeat_batch(hparams, **more):
            Counted.steps += 1
            yield batch


def main() -> None:
    work = ASKED.work
    watch = Watch("FedJAX", version("fedjax"), ASKED)

    def dataset(i: int) -> Counted:
        inputs, targets = work.client(i)
        inputs = np.moveaxis(inputs, 1, -1).copy() if inputs.ndim == 4 else inputs
        return Counted({"x": inputs, "y": targets.astype(np.int32)})

    data = [dataset(i) for i in range(CLIENTS)]
    decayed = optax.chain(optax.add_decayed_weights(DECAY), optax.sgd(LR))
    with fedjax.for_each_client_backend(ASKED.setup.split()[0]):
        # by steps, not by epochs: FedJAX would join the epochs and make one step less
        algorithm = federated_averaging(
            jax.grad(loss),
            fedjax.optimizers.create_optimizer_from_optax(decayed),
            fedjax.optimizers.sgd(1.0),
            fedjax.ShuffleRepeatBatchHParams(BATCH, num_epochs=None, num_steps=work.steps),
        )
        start = parameters(work)
        state = algorithm.init(start)
        for t in range(1 + ASKED.rounds):
            keys = jax.random.split(jax.random.PRNGKey(t), CLIENTS)
            cohort = [(str(i), data[i], keys[i]) for i in range(CLIENTS)]
            state, _ = algorithm.apply(state, cohort)
            # under newer JAX, updates that come from pmap have one axis too many
            params = jax.tree_util.tree_map(lambda x, x0: x.reshape(x0.shape), state.params, start)
            state = state.replace(params=jax.block_until_ready(params))
            watch.lap(Counted.steps, np.asarray(params[0][0])[..., work.dead, :])
    watch.report(jax=jax.__version__)


if __name__ == "__main__":
    main()
