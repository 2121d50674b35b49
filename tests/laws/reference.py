"""A slow, plain NumPy account of the federated algorithms, to test the library against.

Everything here is float64 and written for reading: one class per algorithm, loops over clients
and steps, gradients by hand. A ``Problem`` fixes all that is random (data, cohorts, batches),
and ``run`` plays every round of it and returns one ``Snapshot`` per round.

Symbols follow the specification. x is the cloud model and xbar the aggregate; the update of
client i is g_i = x - y_i, where y_i is the model it delivers, so that subtracting an update is
descent. Rounds are counted t = 1, 2, ... and round t trains with step size lr * lr_decay^(t-1).
A round in which nobody delivers changes nothing, but is counted.
"""

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray
State = dict[str, Any]


@dataclass
class Problem:
    """The whole input of a run; lists over rounds start with round 1."""

    loss: str  # "least_squares" or "softmax"
    xs: list[Array]  # features of each client, (n_i, d)
    ys: list[Array]  # targets (float) or labels (int) of each client, (n_i,)
    classes: int  # for softmax only
    start: Array  # first model, flat: weight (row major), then bias
    groups: list[int]  # sizes of the parameter groups, in order
    registered: list[list[int]]  # per round: clients that exist
    delivering: list[list[int]]  # per round: clients whose upload arrives; may be empty
    batches: list[dict[int, list[Array]]] | None  # per round, client and step; None = full batch
    lr: float
    lr_decay: float = 1.0
    weight_decay: float = 0.0
    steps: int | dict[int, int] = 1  # local steps, for full batches only


@dataclass
class Snapshot:
    """What is known after a round."""

    x: Array
    xbar: Array
    delta: Array | None  # combined update before FedGLAD rescales it; None in a void round
    server: State
    clients: dict[int, State]


def gradient(problem: Problem, client: int, theta: Array, rows: Array | None = None) -> Array:
    """Mean loss gradient over some rows (all by default), plus weight decay."""
    x, y = problem.xs[client], problem.ys[client]
    if rows is not None:
        x, y = x[rows], y[rows]
    n, d = x.shape
    if problem.loss == "least_squares":
        residual = x @ theta[:d] + theta[d] - y
        data = np.append(x.T @ residual, residual.sum()) / n
    elif problem.loss == "softmax":
        split = problem.classes * d
        scores = x @ theta[:split].reshape(problem.classes, d).T + theta[split:]
        residual = np.exp(scores - scores.max(axis=1, keepdims=True))
        residual /= residual.sum(axis=1, keepdims=True)
        residual[np.arange(n), y] -= 1.0
        data = np.append((residual.T @ x).ravel(), residual.sum(axis=0)) / n
    else:
        raise ValueError(f"unknown loss {problem.loss!r}")
    return data + problem.weight_decay * theta


class FedAvg:
    """Federated averaging, and the frame whose pieces the other algorithms replace.

    ``local`` is the clients' optimiser, started afresh every round: "sgd", "momentum" (heavy
    ball) or "adam" (with bias correction).
    """

    def __init__(
        self,
        problem: Problem,
        weights: str = "samples",
        server_lr: float = 1.0,
        local: str = "sgd",
        local_beta: float = 0.9,
        local_beta2: float = 0.999,
        local_eps: float = 1e-8,
    ):
        check(weights, "samples", "uniform")
        check(local, "sgd", "momentum", "adam")
        self.problem = problem
        self.weighting, self.server_lr = weights, server_lr
        self.local, self.local_eps = local, local_eps
        self.local_beta, self.local_beta2 = local_beta, local_beta2
        self.x = np.array(problem.start, dtype=np.float64)
        self.xbar = self.x.copy()
        self.zero = np.zeros_like(self.x)
        self.sizes = [len(y) for y in problem.ys]
        self.server: State = {}
        self.clients: dict[int, State] = {i: {} for i in range(len(self.sizes))}
        self.glad: Glad | None = None

    def play(self, t: int) -> Snapshot:
        """Play round t."""
        problem = self.problem
        self.t = t
        self.eta = problem.lr * problem.lr_decay ** (t - 1)
        self.members, self.cohort = problem.registered[t - 1], problem.delivering[t - 1]
        delta = None
        if self.cohort:
            self.begin_round()
            self.updates = {i: self.x - self.train(i) for i in self.cohort}
            self.share = self.weigh()
            for i in self.cohort:
                self.end_client(i, self.updates[i])
            delta = self.combine()
            used = delta
            if self.glad:
                used = self.glad.rescale(t, self.updates, self.share, delta)
            direction = self.server_rule(delta, used)
            self.xbar = self.x - used
            self.x = self.x - self.server_lr * direction
        server = self.server | (self.glad.state if self.glad else {})
        return copy.deepcopy(Snapshot(self.x, self.xbar, delta, server, self.clients))

    def begin_round(self) -> None:
        """Prepare what the clients of this round need from each other."""

    def step_count(self, i: int) -> int:
        """Number of local steps of client i in this round."""
        return len(self.batches(i))

    def batches(self, i: int) -> list[Array | None]:
        """The batches of client i in this round; None stands for all its rows."""
        if self.problem.batches is not None:
            return list(self.problem.batches[self.t - 1][i])
        steps = self.problem.steps
        return [None] * (steps[i] if isinstance(steps, dict) else steps)

    def train(self, i: int) -> Array:
        """The model client i delivers."""
        y, m, v = self.x, self.zero, self.zero
        b1, b2 = self.local_beta, self.local_beta2
        for k, rows in enumerate(self.batches(i), start=1):
            step = self.local_gradient(i, y, rows)
            if self.local == "momentum":
                step = m = b1 * m + step
            elif self.local == "adam":
                m = b1 * m + (1 - b1) * step
                v = b2 * v + (1 - b2) * step**2
                step = m / (1 - b1**k) / (np.sqrt(v / (1 - b2**k)) + self.local_eps)
            y = y - self.eta * step
        return y

    def local_gradient(self, i: int, y: Array, rows: Array | None) -> Array:
        """The vector a local step of client i follows downhill."""
        return gradient(self.problem, i, y, rows)

    def weigh(self) -> dict[int, float]:
        """Aggregation weights of the cohort; they sum to one."""
        raw = {i: float(self.sizes[i]) for i in self.cohort}
        if self.weighting == "uniform":
            raw = dict.fromkeys(self.cohort, 1.0)
        return normalised(raw)

    def average(self, values: dict[int, Any]) -> Any:
        """Weighted mean over the cohort."""
        return sum(self.share[i] * values[i] for i in self.cohort)

    def mean_steps(self) -> float:
        """Weighted mean of the cohort's step counts."""
        return self.average({i: self.step_count(i) for i in self.cohort})

    def mean_size(self) -> float:
        """Mean number of samples over all registered clients."""
        return float(np.mean([self.sizes[i] for i in self.members]))

    def end_client(self, i: int, g: Array) -> None:
        """Change the state of a client that delivered; the server's state is still the old one."""

    def combine(self) -> Array:
        """Turn the updates into one."""
        return self.average(self.updates)

    def server_rule(self, delta: Array, used: Array) -> Array:
        """The server's descent direction.

        ``used`` is what FedGLAD makes of ``delta``, or the same vector without FedGLAD.
        """
        return used


class FedProx(FedAvg):
    """FedAvg with a pull towards the model the round began with."""

    def __init__(self, problem: Problem, mu: float, **options: Any):
        super().__init__(problem, **options)
        self.mu = mu

    def local_gradient(self, i: int, y: Array, rows: Array | None) -> Array:
        return super().local_gradient(i, y, rows) + self.mu * (y - self.x)


class FedAvgM(FedAvg):
    """FedAvg with momentum at the server."""

    def __init__(
        self, problem: Problem, beta: float = 0.9, form: str = "heavy_ball", **options: Any
    ):
        super().__init__(problem, **options)
        check(form, "heavy_ball", "ema")
        self.beta = beta
        self.gain = 1.0 if form == "heavy_ball" else 1.0 - beta
        self.server["m"] = self.zero

    def server_rule(self, delta: Array, used: Array) -> Array:
        self.server["m"] = self.beta * self.server["m"] + self.gain * used
        return self.server["m"]


class FedOpt(FedAvg):
    """An adaptive optimiser at the server; v always sees the update FedGLAD has not touched."""

    def __init__(
        self,
        problem: Problem,
        rule: str = "adam",
        beta1: float = 0.9,
        beta2: float = 0.99,
        tau: float = 1e-3,
        v0: float | None = None,
        bias_correction: bool = False,
        eps_form: str = "torch",
        **options: Any,
    ):
        super().__init__(problem, **options)
        check(rule, "adam", "yogi", "adagrad", "rmsprop")
        check(eps_form, "torch", "hf")
        if bias_correction and rule in ("adagrad", "rmsprop"):
            raise ValueError(f"bias correction is not defined for {rule}")
        self.rule, self.tau = rule, tau
        self.b1 = beta1 if rule in ("adam", "yogi") else 0.0
        self.b2 = beta2
        self.bias_correction, self.eps_form = bias_correction, eps_form
        self.server["m"] = self.zero
        self.server["v"] = self.zero + (tau**2 if v0 is None else v0)
        self.server["k"] = 0  # server steps taken so far

    def server_rule(self, delta: Array, used: Array) -> Array:
        q, v, b1, b2 = delta**2, self.server["v"], self.b1, self.b2
        m = b1 * self.server["m"] + (1 - b1) * used
        if self.rule == "adagrad":
            v = v + q
        elif self.rule == "yogi":
            v = v - (1 - b2) * q * np.sign(v - q)
        else:
            v = b2 * v + (1 - b2) * q
        k = self.server["k"] + 1
        self.server.update(m=m, v=v, k=k)
        if not self.bias_correction:
            return m / (np.sqrt(v) + self.tau)
        fix1, fix2 = 1 - b1**k, 1 - b2**k
        if self.eps_form == "torch":
            return m / fix1 / (np.sqrt(v / fix2) + self.tau)
        return np.sqrt(fix2) / fix1 * m / (np.sqrt(v) + self.tau)


class SCAFFOLD(FedAvg):
    """SCAFFOLD with control vectors at server and clients."""

    def __init__(
        self,
        problem: Problem,
        option: int = 2,
        acar_weights: bool = False,
        server_lr: float = 1.0,
    ):
        super().__init__(problem, weights="uniform", server_lr=server_lr)
        check(option, 1, 2)
        self.option, self.acar_weights = option, acar_weights
        self.server["c"] = self.zero
        for state in self.clients.values():
            state["c"] = self.zero

    def omega(self, i: int) -> float:
        """How much larger than the mean client i is, where that is asked for."""
        return self.sizes[i] / self.mean_size() if self.acar_weights else 1.0

    def begin_round(self) -> None:
        self.change = self.zero

    def local_gradient(self, i: int, y: Array, rows: Array | None) -> Array:
        g = super().local_gradient(i, y, rows)
        return g - self.clients[i]["c"] + self.server["c"] / self.omega(i)

    def end_client(self, i: int, g: Array) -> None:
        old = self.clients[i]["c"]
        if self.option == 1:
            new = gradient(self.problem, i, self.x)
        else:
            eta = self.problem.lr if self.acar_weights else self.eta
            new = old - self.server["c"] + g / (self.step_count(i) * eta)
        self.clients[i]["c"] = new
        self.change = self.change + self.omega(i) * (new - old)

    def server_rule(self, delta: Array, used: Array) -> Array:
        self.server["c"] = self.server["c"] + self.change / len(self.members)
        return used


class SCAFFOLDm(SCAFFOLD):
    """SCAFFOLD whose server works its control vector out from the models alone."""

    def __init__(self, problem: Problem, form: str = "exact", server_lr: float = 1.0):
        super().__init__(problem, option=2, server_lr=server_lr)
        check(form, "exact", "printed")
        self.form = form

    def server_rule(self, delta: Array, used: Array) -> Array:
        n, p = len(self.members), len(self.cohort)
        kept = (n - p) / n if self.form == "exact" else (n - 1) / n
        gain = p / (n * self.mean_steps() * self.eta)
        self.server["c"] = kept * self.server["c"] + gain * delta
        return used


class FedDyn(FedAvg):
    """FedDyn; clients keep the plain sum of their updates, mu enters when it is used."""

    def __init__(
        self,
        problem: Problem,
        mu: float = 0.02,
        prox: float = 1.0,
        scale: str = "oracle",
        server_lr: float = 1.0,
    ):
        super().__init__(problem, weights="uniform", server_lr=server_lr)
        check(scale, "none", "oracle")
        self.mu, self.prox, self.scale = mu, prox, scale
        self.server["h"] = self.zero
        for state in self.clients.values():
            state["a"] = self.zero

    def local_gradient(self, i: int, y: Array, rows: Array | None) -> Array:
        mu = self.mu * (self.mean_size() / self.sizes[i] if self.scale == "oracle" else 1.0)
        pull = self.prox * (y - self.x) - self.clients[i]["a"]
        return super().local_gradient(i, y, rows) + mu * pull

    def end_client(self, i: int, g: Array) -> None:
        self.clients[i]["a"] = self.clients[i]["a"] + g

    def server_rule(self, delta: Array, used: Array) -> Array:
        part = len(self.cohort) / len(self.members)
        kept = delta if self.glad and self.glad.h_raw else used
        self.server["h"] = self.server["h"] + part * kept
        return used + self.server["h"]


class AdaBest(FedAvg):
    """AdaBest; form "text" applies mu when h_i is used, form "box" when it is stored."""

    def __init__(
        self,
        problem: Problem,
        mu: float = 0.02,
        beta: float = 0.96,
        form: str = "text",
        scale: str = "progressive",
        discount: bool = True,
        prox: float = 0.0,
        weights: str = "uniform",
        server_lr: float = 1.0,
    ):
        super().__init__(problem, weights=weights, server_lr=server_lr)
        check(form, "text", "box")
        check(scale, "none", "oracle", "progressive")
        self.mu, self.beta, self.form, self.scale = mu, beta, form, scale
        self.discount, self.prox = discount, prox
        self.seen: list[int] = []  # sizes of the clients of all past rounds, with repetition
        self.server["h"] = self.zero
        for state in self.clients.values():
            state.update(h=self.zero, t=0)

    def begin_round(self) -> None:
        """Fix each client's mu before the round adds to the sizes seen."""
        self.mus = dict.fromkeys(self.cohort, self.mu)
        for i in self.cohort:
            if self.scale == "oracle":
                self.mus[i] *= self.mean_size() / self.sizes[i]
            elif self.scale == "progressive" and self.seen:
                self.mus[i] *= float(np.mean(self.seen)) / self.sizes[i]

    def local_gradient(self, i: int, y: Array, rows: Array | None) -> Array:
        mu, h = self.mus[i], self.clients[i]["h"]
        correction = mu * h if self.form == "text" else h
        pull = self.prox * mu * (y - self.x)
        return super().local_gradient(i, y, rows) - correction + pull

    def end_client(self, i: int, g: Array) -> None:
        state = self.clients[i]
        gap = self.t - state["t"] if self.discount else 1
        gain = self.mus[i] if self.form == "box" else 1.0
        state.update(h=state["h"] / gap + gain * g, t=self.t)
        self.seen.append(self.sizes[i])

    def server_rule(self, delta: Array, used: Array) -> Array:
        kept = delta if self.glad and self.glad.h_raw else used
        self.server["h"] = self.beta * (self.xbar - (self.x - kept))
        return used + self.server["h"]


class FedNova(FedAvg):
    """Averaging of updates normalised by the length of the local path."""

    def __init__(
        self,
        problem: Problem,
        momentum: float = 0.0,
        mu: float = 0.0,
        server_lr: float = 1.0,
    ):
        if momentum and mu:
            raise ValueError("FedNova takes momentum or mu, not both")
        local = "momentum" if momentum else "sgd"
        super().__init__(problem, server_lr=server_lr, local=local, local_beta=momentum)
        self.momentum, self.mu = momentum, mu

    def local_gradient(self, i: int, y: Array, rows: Array | None) -> Array:
        return super().local_gradient(i, y, rows) + self.mu * (y - self.x)

    def length(self, i: int) -> float:
        """Sum of the factors with which the gradients of client i enter its update."""
        k, rho = self.step_count(i), self.momentum
        if rho:
            return (k - rho * (1 - rho**k) / (1 - rho)) / (1 - rho)
        return sum((1 - self.eta * self.mu) ** j for j in range(k))

    def combine(self) -> Array:
        lengths = {i: self.length(i) for i in self.cohort}
        normal = {i: self.updates[i] / lengths[i] for i in self.cohort}
        return self.average(lengths) * self.average(normal)


class Ida(FedAvg):
    """Weights inverse to the distance from the plain mean of the round's models."""

    def __init__(self, problem: Problem, **options: Any):
        super().__init__(problem, weights="uniform", **options)

    def weigh(self) -> dict[int, float]:
        mean = np.mean([self.updates[i] for i in self.cohort], axis=0)
        distance = {i: float(np.linalg.norm(self.updates[i] - mean)) for i in self.cohort}
        return normalised({i: 1.0 / max(distance[i], 1e-12) for i in self.cohort})


class Krum(FedAvg):
    """Multi-Krum: the plain mean of the m updates that have the closest neighbours."""

    def __init__(self, problem: Problem, f: int, m: int = 1, **options: Any):
        super().__init__(problem, weights="uniform", **options)
        self.f, self.m = f, m

    def weigh(self) -> dict[int, float]:
        r = len(self.cohort)
        if self.m > r:
            raise ValueError(f"Krum is to keep {self.m} of {r} updates")
        scores = []
        for i in self.cohort:
            others = [self.updates[i] - self.updates[j] for j in self.cohort if j != i]
            squares = sorted(float(o @ o) for o in others)
            scores.append(sum(squares[: max(r - self.f - 2, 1)]))
        kept = np.argsort(scores, kind="stable")[: self.m]
        return normalised({i: float(k in kept) for k, i in enumerate(self.cohort)})


class Median(FedAvg):
    """The median of the updates, coordinate by coordinate."""

    def __init__(self, problem: Problem, **options: Any):
        super().__init__(problem, weights="uniform", **options)

    def combine(self) -> Array:
        return np.median([self.updates[i] for i in self.cohort], axis=0)


class TrimmedMean(FedAvg):
    """Per coordinate, the mean without the ``trim`` largest and the ``trim`` smallest."""

    def __init__(self, problem: Problem, trim: int, **options: Any):
        super().__init__(problem, weights="uniform", **options)
        self.trim = trim

    def combine(self) -> Array:
        r = len(self.cohort)
        if 2 * self.trim >= r:
            raise ValueError(f"cannot trim {self.trim} on both sides of {r} updates")
        ordered = np.sort([self.updates[i] for i in self.cohort], axis=0)
        return ordered[self.trim : r - self.trim].mean(axis=0)


class SharedOptimiser(FedAvg):
    """What FedGBO, MFL, MimeLite and Mime have in common: optimiser statistics at the server.

    With "sgdm" there is m, with "rmsprop" v, with "adam" both. ``beta`` is the factor of m
    ("sgdm", "adam") or of v ("rmsprop"), ``beta2`` that of v with "adam".
    """

    def __init__(
        self,
        problem: Problem,
        optimiser: str = "sgdm",
        beta: float = 0.9,
        beta2: float = 0.99,
        eps: float = 1e-3,
        v0: float = 1.0,
        weights: str = "uniform",
        server_lr: float = 1.0,
    ):
        super().__init__(problem, weights=weights, server_lr=server_lr)
        check(optimiser, "sgdm", "rmsprop", "adam")
        if beta == 1 or (optimiser != "sgdm" and eps == 0 and v0 == 0):
            raise ValueError("beta = 1, and eps = 0 with v0 = 0, cannot be inverted")
        self.b = 0.0 if optimiser == "rmsprop" else beta
        self.bv = beta if optimiser == "rmsprop" else beta2
        self.eps = eps
        if optimiser != "rmsprop":
            self.server["m"] = self.zero
        if optimiser != "sgdm":
            self.server["v"] = self.zero + v0

    def tracked(self, state: State, g: Array) -> State:
        """The statistics after seeing g."""
        new = {}
        if "m" in state:
            new["m"] = self.b * state["m"] + (1 - self.b) * g
        if "v" in state:
            new["v"] = self.bv * state["v"] + (1 - self.bv) * g**2
        return new

    def divisor(self, state: State) -> Array | float:
        """What the step is divided by."""
        return np.sqrt(state["v"]) + self.eps if "v" in state else 1.0

    def frozen_step(self, g: Array) -> Array:
        """The step for g when the server's statistics stay as they are."""
        momentum = self.b * self.server.get("m", 0.0)
        return (momentum + (1 - self.b) * g) / self.divisor(self.server)


class FedGBO(SharedOptimiser):
    """Frozen statistics at the clients; the server recovers the mean gradient from the update."""

    def local_gradient(self, i: int, y: Array, rows: Array | None) -> Array:
        return self.frozen_step(super().local_gradient(i, y, rows))

    def server_rule(self, delta: Array, used: Array) -> Array:
        per_step = delta * self.divisor(self.server) / (self.eta * self.mean_steps())
        g = (per_step - self.b * self.server.get("m", 0.0)) / (1 - self.b)
        self.server = self.tracked(self.server, g) | {"g": g}
        return used


class MFL(SharedOptimiser):
    """Clients carry the statistics on as they step; the server averages models and statistics."""

    def begin_round(self) -> None:
        self.ends: dict[int, State] = {}

    def train(self, i: int) -> Array:
        y, state = self.x, self.server
        for rows in self.batches(i):
            g = gradient(self.problem, i, y, rows)
            state = self.tracked(state, g)
            y = y - self.eta * state.get("m", g) / self.divisor(state)
        self.ends[i] = state
        return y

    def server_rule(self, delta: Array, used: Array) -> Array:
        for name in self.server:
            self.server[name] = self.average({i: self.ends[i][name] for i in self.cohort})
        return used


class MimeLite(SharedOptimiser):
    """Frozen statistics at the clients, tracked with full-batch gradients at the old model."""

    def begin_round(self) -> None:
        self.share = self.weigh()
        self.full = self.average({i: gradient(self.problem, i, self.x) for i in self.cohort})

    def local_gradient(self, i: int, y: Array, rows: Array | None) -> Array:
        return self.frozen_step(super().local_gradient(i, y, rows))

    def server_rule(self, delta: Array, used: Array) -> Array:
        self.server = self.tracked(self.server, self.full) | {"g": self.full}
        return used


class Mime(MimeLite):
    """MimeLite with variance-reduced local gradients."""

    def local_gradient(self, i: int, y: Array, rows: Array | None) -> Array:
        here = gradient(self.problem, i, y, rows)
        there = gradient(self.problem, i, self.x, rows)
        return self.frozen_step(here - there + self.full)


class Glad:
    """FedGLAD's rescaling of the combined update, one factor per parameter group."""

    def __init__(
        self,
        groups: list[int],
        gamma: float = 0.02,
        beta: float = 0.9,
        mode: str = "group",
        h_raw: bool = False,
    ):
        check(mode, "group", "universal")
        sizes = groups if mode == "group" else [sum(groups)]
        ends = [int(e) for e in np.cumsum(sizes)]
        self.parts = [slice(e - s, e) for s, e in zip(sizes, ends, strict=True)]
        self.gamma, self.beta, self.h_raw = gamma, beta, h_raw
        unknown = np.full(len(sizes), np.nan)
        self.state: State = {"B": unknown, "gsi": unknown.copy(), "factor": unknown.copy()}

    def rescale(
        self, t: int, updates: dict[int, Array], share: dict[int, float], delta: Array
    ) -> Array:
        """Multiply every group of delta by its factor and renew the running means B."""
        room = self.gamma * (t - 1)
        result = delta.copy()
        for k, part in enumerate(self.parts):
            squares = sum(share[i] * float(g[part] @ g[part]) for i, g in updates.items())
            mean_square = float(delta[part] @ delta[part])
            running = self.state["B"][k]
            if squares == 0:
                gsi, factor = np.nan, 1.0
            elif mean_square == 0:
                gsi, factor = np.inf, 1.0 + room
            else:
                gsi = np.sqrt(squares / mean_square)
                running = gsi if np.isnan(running) else running
                factor = np.clip(gsi / running, 1.0 - room, 1.0 + room)
                running = self.beta * running + (1 - self.beta) * gsi
            self.state["B"][k], self.state["gsi"][k] = running, gsi
            self.state["factor"][k] = factor
            result[part] *= factor
        return result


def normalised(raw: dict[int, float]) -> dict[int, float]:
    """The same numbers, scaled to sum to one."""
    total = sum(raw.values())
    return {i: value / total for i, value in raw.items()}


def check(value: Any, *allowed: Any) -> None:
    """Refuse an option outside the allowed values."""
    if value not in allowed:
        raise ValueError(f"{value!r} is not one of {allowed}")


ALGORITHMS: dict[str, type[FedAvg]] = {
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "fedavgm": FedAvgM,
    "fedopt": FedOpt,
    "scaffold": SCAFFOLD,
    "scaffold_m": SCAFFOLDm,
    "feddyn": FedDyn,
    "adabest": AdaBest,
    "fednova": FedNova,
    "ida": Ida,
    "krum": Krum,
    "median": Median,
    "trimmed_mean": TrimmedMean,
    "fedgbo": FedGBO,
    "mfl": MFL,
    "mimelite": MimeLite,
    "mime": Mime,
}

GLAD_BASES = (
    "fedavg", "fedprox", "fedavgm", "fedopt", "scaffold", "scaffold_m", "feddyn", "adabest",
    "ida", "krum",
)  # fmt: skip


def run(problem: Problem, algorithm: str, **options: Any) -> list[Snapshot]:
    """Play all rounds of a problem.

    ``algorithm`` is a name in ALGORITHMS, with that class's options, or "fedglad" with
    ``base`` (a name in GLAD_BASES), ``base_options`` (a dict) and the options of Glad.
    """
    if algorithm == "fedglad":
        base = options.pop("base", "fedavg")
        check(base, *GLAD_BASES)
        method = ALGORITHMS[base](problem, **options.pop("base_options", {}))
        method.glad = Glad(problem.groups, **options)
    else:
        method = ALGORITHMS[algorithm](problem, **options)
    return [method.play(t) for t in range(1, len(problem.delivering) + 1)]


def random_problem(
    seed: int,
    loss: str = "softmax",
    clients: int = 6,
    dim: int = 3,
    classes: int = 3,
    rounds: int = 8,
    unequal_steps: bool = False,
    unbalanced: bool = True,
    changing_population: bool = False,
    with_void_round: bool = False,
    minibatch: bool = True,
    lr_decay: float = 0.99,
    weight_decay: float = 1e-3,
    full_participation: bool = False,
) -> Problem:
    """A small problem whose clients differ in features, in true model and in size."""
    rng = np.random.default_rng(seed)
    everyone = list(range(clients))
    outputs = classes if loss == "softmax" else 1
    common = rng.normal(size=(outputs, dim))
    xs: list[Array] = []
    ys: list[Array] = []
    for _ in everyone:
        n = int(rng.integers(5, 21)) if unbalanced else 12
        x = rng.normal(size=(n, dim)) + 0.7 * rng.normal(size=dim)
        own = common + 0.7 * rng.normal(size=(outputs, dim))
        scores = x @ own.T + rng.normal(size=outputs) + 0.3 * rng.normal(size=(n, outputs))
        xs.append(x)
        ys.append(scores.argmax(axis=1) if loss == "softmax" else scores[:, 0])

    steps = {i: int(rng.integers(1, 6)) if unequal_steps else 3 for i in everyone}
    registered: list[list[int]] = []
    delivering: list[list[int]] = []
    for t in range(rounds):
        size = int(rng.integers(max(clients // 2, 1), clients + 1))
        present = sorted(rng.permutation(clients)[:size].tolist())
        members = present if changing_population else everyone
        count = int(rng.integers(1, max(len(members) // 2, 1) + 1))
        cohort = sorted(rng.permutation(members)[:count].tolist())
        if full_participation:
            cohort = list(members)
        if with_void_round and t == rounds // 2:
            cohort = []
        registered.append(list(members))
        delivering.append(cohort)

    batches = None
    if minibatch:
        batches = [
            {i: [rng.permutation(len(ys[i]))[:4] for _ in range(steps[i])] for i in cohort}
            for cohort in delivering
        ]
    return Problem(
        loss=loss,
        xs=xs,
        ys=ys,
        classes=classes,
        start=0.3 * rng.normal(size=outputs * (dim + 1)),
        groups=[outputs * dim, outputs],
        registered=registered,
        delivering=delivering,
        batches=batches,
        lr=0.1,
        lr_decay=lr_decay,
        weight_decay=weight_decay,
        steps=steps if unequal_steps else 3,
    )
