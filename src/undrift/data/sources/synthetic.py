"""Synthetic classification problems with adjustable differences between clients."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass

from undrift.config import Config, flag, real, whole
from undrift.data.source import Source
from undrift.later import np, torch
from undrift.rng import stream

FEATURES, CLASSES = 60, 10

TEST_SHARE = 5
"""One in five samples of a client is for testing."""


@dataclass(frozen=True)
class Synthetic(Config):
    """Each client k has its own input distribution and its own linear model for the labels.

    alpha  variance between models:  u_k ~ N(0, alpha), W_k and b_k ~ N(u_k, 1)
    beta   variance between inputs:  B_k ~ N(0, beta), v_k ~ N(B_k, 1), x ~ N(v_k, Σ)

    The label is y = argmax softmax(W_k x + b_k), of 10 classes; x has 60 features. With `iid`, all
    clients have the same model, W and b ~ N(0, 1), and v = 0. A client has `samples` samples, or if
    that is None, 50 + LogNormal(4, 2). A fifth of them goes to the common test set. The samples of
    client k do not depend on the number of clients.

    Deviations: alpha and beta are variances, as in the paper; the authors' code uses them as
    standard deviations, which gives other data unless both are 0 or 1.
    Reference: Li et al., Federated optimization in heterogeneous networks, MLSys 2020.
    """

    alpha: float = real(1.0, ge=0, lt=math.inf)
    beta: float = real(1.0, ge=0, lt=math.inf)
    _: KW_ONLY
    clients: int = whole(30, ge=1)
    samples: int | None = whole(None, ge=TEST_SHARE, optional=True)
    iid: bool = flag(False)

    def load(self, seed: int) -> Source:
        clients = [self._client(seed, k) for k in range(self.clients)]
        sizes = [len(y) for _, y in clients]
        owners = np.repeat(np.arange(self.clients), sizes)
        train = np.concatenate([np.arange(n) >= n // TEST_SHARE for n in sizes])
        x, y = (torch.from_numpy(np.concatenate(arrays)) for arrays in zip(*clients, strict=True))
        return Source(x[train], y[train], x[~train], y[~train], CLASSES, owners[train])

    def _client(self, seed: int, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and labels of client k."""
        rng = stream(seed, "synthetic client", k)
        size = self.samples or 50 + int(rng.lognormal(4, 2))
        if self.iid:
            shared = stream(seed, "synthetic model")
            W, b = shared.normal(size=(CLASSES, FEATURES)), shared.normal(size=CLASSES)
            v = np.zeros(FEATURES)
        else:
            u, B = rng.normal(0, math.sqrt(self.alpha)), rng.normal(0, math.sqrt(self.beta))
            W, b = rng.normal(u, 1, (CLASSES, FEATURES)), rng.normal(u, 1, CLASSES)
            v = rng.normal(B, 1, FEATURES)
        spread = np.arange(1, FEATURES + 1) ** -0.6  # standard deviations: Σ = diag(j^-1.2)
        x = v + spread * rng.normal(size=(size, FEATURES))
        return x.astype(np.float32), (x @ W.T + b).argmax(axis=1)
