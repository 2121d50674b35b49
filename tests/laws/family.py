"""The reference's account of the later algorithms, each in the letters of its own paper.

Plain NumPy as in `reference`, whose frame it uses; nothing here knows that some of these are the
same algorithm.
"""

from typing import Any

import numpy as np

from tests.laws.reference import (
    ALGORITHMS,
    SCAFFOLD,
    Array,
    FedAvg,
    FedDyn,
    Problem,
    Snapshot,
    check,
    gradient,
)


class FedCM(FedAvg):
    """Clients step along alpha times their gradient plus 1 - alpha times the last mean step."""

    def __init__(self, problem: Problem, alpha: float = 0.1, **options: Any):
        super().__init__(problem, **{"weights": "uniform"} | options)
        self.alpha = alpha
        self.server["m"] = self.zero

    def local_gradient(self, i: int, y: Array, rows: Array | None) -> Array:
        own = super().local_gradient(i, y, rows)
        return self.alpha * own + (1 - self.alpha) * self.server["m"]

    def server_rule(self, delta: Array, used: Array) -> Array:
        self.server["m"] = delta / (self.eta * self.mean_steps())
        return used


class MomentumScaffold(SCAFFOLD):
    """SCAFFOLD-M: c_i becomes the mean of the plain gradients on the client's path."""

    def __init__(self, problem: Problem, alpha: float = 0.1):
        super().__init__(problem)
        self.alpha = alpha
        self.server["m"] = self.zero

    def begin_round(self) -> None:
        super().begin_round()
        self.seen: dict[int, list[Array]] = {i: [] for i in self.cohort}

    def local_gradient(self, i: int, y: Array, rows: Array | None) -> Array:
        g = gradient(self.problem, i, y, rows)
        self.seen[i].append(g)
        corrected = g - self.clients[i]["c"] + self.server["c"]
        return self.alpha * corrected + (1 - self.alpha) * self.server["m"]

    def end_client(self, i: int, g: Array) -> None:
        new = np.mean(self.seen[i], axis=0)
        self.change = self.change + new - self.clients[i]["c"]
        self.clients[i]["c"] = new

    def server_rule(self, delta: Array, used: Array) -> Array:
        self.server["m"] = delta / (self.eta * self.mean_steps())
        return super().server_rule(delta, used)


class FedACG(FedAvg):
    """The server keeps theta and a momentum m, and sends theta + lam m."""

    def __init__(self, problem: Problem, lam: float = 0.85, mu: float = 0.001):
        super().__init__(problem, weights="uniform")
        self.lam, self.mu = lam, mu
        self.theta, self.m = self.x, self.zero
        self.server.update(h=self.zero, beta=0.0)

    def local_gradient(self, i: int, y: Array, rows: Array | None) -> Array:
        return super().local_gradient(i, y, rows) + self.mu * (y - self.x)

    def server_rule(self, delta: Array, used: Array) -> Array:
        self.m = self.lam * self.m - delta
        self.theta = self.theta + self.m
        sent = self.theta + self.lam * self.m
        self.server.update(h=-self.lam * self.m, beta=self.lam)
        return self.x - sent


class Sharp(FedAvg):
    """Gradients are taken uphill; with `shift`, as ASAM does it."""

    rho, normalise, mix = 0.1, True, 1.0
    shift: float | None = None

    def local_gradient(self, i: int, y: Array, rows: Array | None) -> Array:
        g = gradient(self.problem, i, y, rows)
        scale = np.ones_like(y) if self.shift is None else np.abs(y) + self.shift
        e = self.rho * scale**2 * g
        if self.normalise:
            e = e / (np.sqrt(np.sum((scale * g) ** 2)) + 1e-12)
        there = gradient(self.problem, i, y + e, rows)
        return (1 - self.mix) * g + self.mix * there


class PartlySharp(Sharp):
    normalise, mix = False, 0.7


class Adaptive(Sharp):
    shift = 0.2


class FedGamma(SCAFFOLD, Sharp):
    """SCAFFOLD on gradients that are taken uphill."""


class MoFedSAM(FedCM, Sharp):
    """FedCM likewise."""


class SharpFedDyn(FedDyn, Sharp):
    """FedDyn likewise: FedSpeed as its authors code it."""


class FedSpeed(Sharp):
    """As printed: duals, a step uphill by rho g, the mean of y - lam * dual over the active."""

    normalise = False

    def __init__(self, problem: Problem, lam: float = 10.0):
        super().__init__(problem, weights="uniform")
        self.lam = lam
        self.dual = dict.fromkeys(self.clients, self.zero)
        for state in self.clients.values():
            state["a"] = self.zero

    def local_gradient(self, i: int, y: Array, rows: Array | None) -> Array:
        g = super().local_gradient(i, y, rows)
        return g - self.dual[i] + (y - self.x) / self.lam

    def end_client(self, i: int, g: Array) -> None:
        self.dual[i] = self.dual[i] + g / self.lam
        self.clients[i]["a"] = self.lam * self.dual[i]

    def combine(self) -> Array:
        sent = {i: self.x - g - self.lam * self.dual[i] for i, g in self.updates.items()}
        return self.x - self.average(sent)


class FedDC(FedAvg):
    """Drift variables, the sums of y - x, and control vectors; both servers."""

    def __init__(self, problem: Problem, mu: float = 0.01, active: bool = False):
        super().__init__(problem, weights="uniform")
        self.mu, self.active = mu, active
        self.drift = dict.fromkeys(self.clients, self.zero)
        self.server["c"] = self.zero
        if not active:
            self.server["h"] = self.zero
        for state in self.clients.values():
            state.update(a=self.zero, c=self.zero)

    def begin_round(self) -> None:
        self.change = self.zero

    def local_gradient(self, i: int, y: Array, rows: Array | None) -> Array:
        mu = self.mu * self.mean_size() / self.sizes[i]
        penalty = mu * (self.drift[i] + y - self.x)
        control = self.server["c"] - self.clients[i]["c"]
        return super().local_gradient(i, y, rows) + penalty + control

    def end_client(self, i: int, g: Array) -> None:
        self.drift[i] = self.drift[i] - g
        old = self.clients[i]["c"]
        new = old - self.server["c"] + g / (self.step_count(i) * self.eta)
        self.change = self.change + new - old
        self.clients[i].update(a=-self.drift[i], c=new)

    def combine(self) -> Array:
        if not self.active:
            return super().combine()
        corrected = {i: self.x - g + self.drift[i] for i, g in self.updates.items()}
        return self.x - self.average(corrected)

    def server_rule(self, delta: Array, used: Array) -> Array:
        self.server["c"] = self.server["c"] + self.change / len(self.members)
        if self.active:
            return used
        self.server["h"] = self.server["h"] + len(self.cohort) / len(self.members) * used
        return used + self.server["h"]


class FedVARP(FedAvg):
    """The last update of every client stands in for it; MIFA steps by their new mean."""

    def __init__(self, problem: Problem, mifa: bool = False):
        super().__init__(problem, weights="uniform")
        self.mifa = mifa
        self.server["u"] = self.zero
        for state in self.clients.values():
            state["u"] = self.zero

    def begin_round(self) -> None:
        self.change = self.zero

    def end_client(self, i: int, g: Array) -> None:
        self.change = self.change + g - self.clients[i]["u"]
        self.clients[i]["u"] = g

    def combine(self) -> Array:
        return self.server["u"] + self.change / len(self.cohort)

    def server_rule(self, delta: Array, used: Array) -> Array:
        self.server["u"] = self.server["u"] + self.change / len(self.members)
        return self.server["u"] if self.mifa else used

    def play(self, t: int) -> Snapshot:
        snapshot = super().play(t)
        self.xbar = self.x
        snapshot.xbar = self.x
        return snapshot


class FedAU(FedAvg):
    """Every round, every client counts how long it has been away."""

    def __init__(self, problem: Problem, cut: int = 50):
        super().__init__(problem, weights="uniform")
        self.cut = cut
        self.away = dict.fromkeys(self.clients, 0)
        self.gaps: dict[int, list[int]] = {i: [] for i in self.clients}
        for state in self.clients.values():
            state.update(count=0, t=0)

    def play(self, t: int) -> Snapshot:
        for i in self.clients:
            self.away[i] += 1
        snapshot = super().play(t)
        for i in self.clients:
            if i in self.cohort or self.away[i] == self.cut:
                self.gaps[i].append(self.away[i])
                self.away[i] = 0
            if i in self.cohort:
                self.clients[i].update(count=len(self.gaps[i]), t=t)
        snapshot.clients = {i: dict(state) for i, state in self.clients.items()}
        snapshot.xbar = self.xbar = self.x
        return snapshot

    def combine(self) -> Array:
        weights = {i: float(np.mean(self.gaps[i] or [1])) for i in self.cohort}
        return self.average({i: weights[i] * g for i, g in self.updates.items()})

    def server_rule(self, delta: Array, used: Array) -> Array:
        return len(self.cohort) / len(self.members) * used


class Scaffnew(FedAvg):
    """The correction moves when the next model arrives."""

    def __init__(self, problem: Problem):
        super().__init__(problem, weights="uniform")
        for state in self.clients.values():
            state.update(h=self.zero, y=self.x, work=1.0)
        self.new = set(self.clients)

    def begin_round(self) -> None:
        for i in self.cohort:
            state = self.clients[i]
            if i not in self.new:
                state["h"] = state["h"] + (self.x - state["y"]) / state["work"]
        self.new -= set(self.cohort)

    def local_gradient(self, i: int, y: Array, rows: Array | None) -> Array:
        return super().local_gradient(i, y, rows) - self.clients[i]["h"]

    def end_client(self, i: int, g: Array) -> None:
        self.clients[i].update(y=self.x - g, work=self.step_count(i) * self.eta)


class FedExP(FedAvg):
    """A server step of at least 1; the mean of the last two models counts."""

    def __init__(self, problem: Problem, eps: float = 1e-3, form: str = "paper", **options: Any):
        super().__init__(problem, **options)
        check(form, "paper", "code")
        self.eps, self.form = eps, form
        self.server["factor"] = 1.0

    def play(self, t: int) -> Snapshot:
        before = self.x
        snapshot = super().play(t)
        if self.cohort:
            self.xbar = snapshot.xbar = (before + self.x) / 2
        return snapshot

    def server_rule(self, delta: Array, used: Array) -> Array:
        eps = self.eps
        if self.form == "code":
            eps *= len(self.cohort) * self.problem.lr_decay ** (2 * (self.t - 1))
        squares = sum(self.share[i] * g @ g for i, g in self.updates.items())
        self.server["factor"] = max(1.0, squares / (2 * (delta @ delta + eps)))
        return self.server["factor"] * delta


class FedHyper(FedAvg):
    """A server step that grows by the product of successive mean updates."""

    def __init__(self, problem: Problem, bound: float = 3.0, cosine: bool = False):
        super().__init__(problem)
        self.bound, self.cosine = bound, cosine
        self.server.update(g=self.zero, rate=1.0)

    def play(self, t: int) -> Snapshot:
        before = self.x
        snapshot = super().play(t)
        if self.cohort and snapshot.delta is not None:
            snapshot.xbar = before - self.server["rate"] * snapshot.delta
            self.xbar = snapshot.xbar
        return snapshot

    def server_rule(self, delta: Array, used: Array) -> Array:
        last = self.server["g"]
        product = float(delta @ last)
        if self.cosine and product:
            product /= np.linalg.norm(delta) * np.linalg.norm(last)
        rate = float(np.clip(self.server["rate"] + product, 1 / self.bound, self.bound))
        self.server.update(g=delta, rate=rate)
        return rate * delta


class FedInit(FedAvg):
    """Clients start beyond x, seen from where they ended last time."""

    def __init__(self, problem: Problem, beta: float = 0.1, form: str = "paper"):
        super().__init__(problem)
        check(form, "paper", "code")
        self.beta, self.form = beta, form
        for state in self.clients.values():
            state["fedinit.y"] = self.x
        self.new = set(self.clients)

    def train(self, i: int) -> Array:
        last = self.x if i in self.new else self.clients[i]["fedinit.y"]
        self.new.discard(i)
        y = begin = self.x + self.beta * (self.x - last)
        for rows in self.batches(i):
            y = y - self.eta * gradient(self.problem, i, y, rows)
        self.clients[i]["fedinit.y"] = y
        return y if self.form == "paper" else self.x + (y - begin)


class DeltaSGD(FedAvg):
    """Every client finds its step sizes."""

    def __init__(self, problem: Problem, start: float = 0.2, growth: float = 0.02, c: float = 1.0):
        super().__init__(problem)
        self.start, self.growth, self.c = start, growth, c

    def train(self, i: int) -> Array:
        before, y, eta, theta = None, self.x, self.start, 1.0
        for rows in self.batches(i):
            g = gradient(self.problem, i, y, rows)
            if before is not None:
                far = np.linalg.norm(y - before)
                apart = np.linalg.norm(g - gradient(self.problem, i, before, rows))
                new = min(far / (self.c * apart), eta * np.sqrt(1 + self.growth * theta))
                theta, eta = new / eta, new
            before, y = y, y - eta * g
        return y


ALGORITHMS.update(
    fedcm=FedCM,
    scaffold_momentum=MomentumScaffold,
    fedacg=FedACG,
    sam=Sharp,
    sam_mixed=PartlySharp,
    asam=Adaptive,
    fedgamma=FedGamma,
    mofedsam=MoFedSAM,
    sharp_feddyn=SharpFedDyn,
    fedspeed=FedSpeed,
    feddc=FedDC,
    fedvarp=FedVARP,
    fedau=FedAU,
    scaffnew=Scaffnew,
    fedexp=FedExP,
    fedhyper=FedHyper,
    fedinit=FedInit,
    delta_sgd=DeltaSGD,
)
