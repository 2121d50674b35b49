"""The methods as their papers define them, in plain NumPy; each is an adapter that is right."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from undrift.checks.conform.frame import Rule
from undrift.checks.conform.problem import Vector
from undrift.checks.conform.robust import Krum, Median, TrimmedMean
from undrift.config import UndriftError, unknown
from undrift.config.expressions import tree


class FedAvg(Rule):
    pass


class FedProx(Rule):
    """Pull towards x: a local loss of L_i(y) + (mu/2) ||y − x||²."""

    equations: ClassVar = {
        "x": "x ← x − Σ_P w_i g_i,  w_i = n_i / Σ_P n_j,  y ← y − η (∇L_i(y) + μ (y − x))"
    }
    settings: ClassVar = {"mu": 0.3}
    optional: ClassVar = {}
    neutral: ClassVar = {"mu": 0.0}

    def pull(self, i: int, y: Vector) -> Vector:
        return self.mu * (y - self.x)


class Scaffold(Rule):
    """SCAFFOLD with option 2, or 1, for the clients' control variates."""

    equations: ClassVar = {
        "x": "x ← x − η_g mean_P g_i,  y ← y − η (∇L_i(y) − c_i + c)",
        "c_i": "c_i ← c_i − c + (x − y_i) / (K_i η)",
        "c": "c ← c + (1/N) Σ_P Δc_i",
    }
    neutral: ClassVar = {}
    neutral_rounds = 1
    weights = "uniform"
    option = 2

    def prepare(self) -> None:
        self.c, self.c_i = self.zero, self.each()

    def survey(self) -> None:
        self.change = dict[int, Vector]()

    def correction(self, i: int) -> Vector:
        return self.c - self.c_i[i]

    def path(self, i: int) -> Vector:
        """The mean direction of the local path; with option 1, the gradient at x."""
        if self.option == 1:
            return self.clients[i].grad(self.x)
        return self.g[i] / (self.K(i) * self.eta())

    def control(self, i: int) -> Vector:
        """c_i⁺."""
        return self.path(i) if self.option == 1 else self.c_i[i] - self.c + self.path(i)

    def learn(self, i: int) -> None:
        new = self.control(i)
        self.change[i] = new - self.c_i[i]
        self.c_i = self.c_i | {i: new}

    def server(self) -> Vector:
        self.c = self.c + self.total_change() / self.N()
        return super().server()

    def total_change(self) -> Vector:
        return sum(self.change.values())


class FedDyn(Rule):
    """Dynamic regularisation."""

    equations: ClassVar = {
        "x": "x ← x − mean_P g_i − h,  y ← y − η (∇L_i(y) − μ a_i + μ (y − x))",
        "a_i": "a_i ← a_i + g_i",
        "h": "h ← h + (1/N) Σ_P g_i",
    }
    settings: ClassVar = {"mu": 0.3}
    optional: ClassVar = {}
    weights = "uniform"

    def prepare(self) -> None:
        self.h, self.a_i = self.zero, self.each()

    def correction(self, i: int) -> Vector:
        return -self.strength(i) * self.a_i[i]

    def pull(self, i: int, y: Vector) -> Vector:
        return self.strength(i) * (y - self.x)

    def learn(self, i: int) -> None:
        self.a_i = self.a_i | {i: self.a_i[i] + self.g[i]}

    def server(self) -> Vector:
        self.h = self.h + self.total() / self.N()
        return super().server() - self.h

    def total(self) -> Vector:
        return sum(self.g.values())


class AdaBest(Rule):
    """Bias estimates that age (clients) and fade (server)."""

    equations: ClassVar = {
        "x": "θ̄ ← x − mean_P g_i,  x ← θ̄ − h,  y ← y − η (∇L_i(y) − μ h_i)",
        "h_i": "h_i ← h_i / (t − t_i) + g_i",
        "h": "h ← β (θ̄_before − θ̄)",
    }
    settings: ClassVar = {"mu": 0.3, "beta": 0.8}
    optional: ClassVar = {}
    neutral: ClassVar = {"mu": 0.0, "beta": 0.0}
    weights = "uniform"
    beta: float

    def prepare(self) -> None:
        self.h, self.h_i, self.xbar = self.zero, self.each(), self.x
        self.seen = dict.fromkeys(self.h_i, 0)

    def correction(self, i: int) -> Vector:
        return -self.strength(i) * self.h_i[i]

    def age(self, i: int) -> float:
        return self.t - self.seen[i]

    def learn(self, i: int) -> None:
        self.h_i = self.h_i | {i: self.h_i[i] / self.age(i) + self.g[i]}
        self.seen[i] = self.t

    def server(self) -> Vector:
        xbar = super().server()
        self.h, self.xbar = self.beta * (self.xbar - xbar), xbar
        return xbar - self.h


class FedNova(Rule):
    """Updates normalised by the clients' numbers of steps."""

    equations: ClassVar = {
        "x": "x ← x − τ Σ_P w_i g_i / K_i,  τ = Σ_P w_i K_i,  w_i = n_i / Σ_P n_j",
    }
    optional: ClassVar = {}
    neutral: ClassVar = {}

    def server(self) -> Vector:
        return self.step(self.mean({i: self.factor(i) * g for i, g in self.g.items()}))

    def factor(self, i: int) -> float:
        """τ / K_i."""
        return self.work() / self.K(i)

    def work(self) -> float:
        return float(self.mean({i: self.K(i) for i in self.P}))


class FedAvgM(Rule):
    """Momentum on the server."""

    equations: ClassVar = {"x": "x ← x − η_g m", "m": "m ← β m + Σ_P w_i g_i"}
    settings: ClassVar = {"beta": 0.6, "server_lr": 0.8}
    optional: ClassVar = {}
    neutral: ClassVar = {"beta": 0.0, "server_lr": 1.0}
    form = "heavy_ball"
    beta: float

    def prepare(self) -> None:
        self.m = self.zero

    def server(self) -> Vector:
        self.m = self.beta * self.m + self.gain() * self.mean(self.g)
        return self.step(self.m)

    def gain(self) -> float:
        return 1.0 if self.form == "heavy_ball" else 1.0 - self.beta


class Adaptive(Rule):
    """An optimiser on the server that divides by √v + ε."""

    optional: ClassVar = {}
    scales = False
    beta1 = 0.0
    eps: float

    def prepare(self) -> None:
        self.m, self.v = self.zero, self.zero + self.v0()

    def v0(self) -> float:
        return self.eps**2

    def server(self) -> Vector:
        g = self.mean(self.g)
        self.m = self.beta1 * self.m + (1 - self.beta1) * g
        self.v = self.second(self.squared(g))
        return self.step(self.ratio())

    def squared(self, g: Vector) -> Vector:
        return g * g

    def second(self, q: Vector) -> Vector:
        return self.v + q

    def ratio(self) -> Vector:
        return self.m / (np.sqrt(self.v) + self.eps)


class FedAdagrad(Adaptive):
    equations: ClassVar = {
        "x": "x ← x − η_g ḡ / (√v + ε),  ḡ = Σ_P w_i g_i",
        "v": "v ← v + ḡ²,  v₀ = ε²",
    }
    settings: ClassVar = {"server_lr": 0.1, "eps": 0.05}


class FedAdam(Adaptive):
    equations: ClassVar = {
        "x": "x ← x − η_g m / (√v + ε)",
        "m": "m ← β₁ m + (1−β₁) ḡ,  ḡ = Σ_P w_i g_i",
        "v": "v ← β₂ v + (1−β₂) ḡ²,  v₀ = ε²",
    }
    settings: ClassVar = {"server_lr": 0.1, "beta1": 0.7, "beta2": 0.9, "eps": 0.05}
    beta1: float
    beta2: float

    def second(self, q: Vector) -> Vector:
        return self.beta2 * self.v + (1 - self.beta2) * q


class FedYogi(FedAdam):
    equations: ClassVar = FedAdam.equations | {
        "v": "v ← v − (1−β₂) ḡ² sign(v − ḡ²),  v₀ = ε²",
    }

    def second(self, q: Vector) -> Vector:
        return self.v - (1 - self.beta2) * q * np.sign(self.v - q)


class MimeLite(Rule):
    """Local steps with the server's momentum held still."""

    equations: ClassVar = {
        "x": "x ← x − mean_P g_i,  y ← y − η (β m + (1−β) ∇L_i(y))",
        "m": "m ← β m + (1−β) mean_P ∇L_i(x)",
    }
    settings: ClassVar = {"beta": 0.6}
    optional: ClassVar = {}
    neutral: ClassVar[Mapping[str, float] | None] = {"beta": 0.0}
    weights = "uniform"
    form = "ema"
    beta: float

    def prepare(self) -> None:
        self.m = self.zero

    def moved(self, g: Vector) -> Vector:
        """m after a gradient, and the step along it."""
        return self.beta * self.m + (1 - self.beta if self.form == "ema" else 1) * g

    def survey(self) -> None:
        self.full = self.mean({i: self.clients[i].grad(self.x) for i in self.P})

    def local(self, i: int, y: Vector, rows: np.ndarray) -> Vector:
        return self.clients[i].grad(y, rows)

    def direction(self, i: int, y: Vector, rows: np.ndarray) -> Vector:
        return self.moved(self.local(i, y, rows))

    def server(self) -> Vector:
        self.m = self.moved(self.full)
        return super().server()


class Mime(MimeLite):
    """MimeLite whose local gradients are corrected by the cohort's."""

    equations: ClassVar = MimeLite.equations | {
        "x": "x ← x − mean_P g_i,  y ← y − η (β m + (1−β) (∇L_i(y; ζ) − ∇L_i(x; ζ) + c)),"
        "  c = mean_P ∇L_i(x)",
    }
    neutral: ClassVar = None

    def local(self, i: int, y: Vector, rows: np.ndarray) -> Vector:
        client = self.clients[i]
        return client.grad(y, rows) - client.grad(self.x, rows) + self.full


class FedSAM(Rule):
    """Gradients that are taken a step uphill."""

    equations: ClassVar = {
        "x": "x ← x − Σ_P w_i g_i,  w_i = n_i / Σ_P n_j,"
        "  y ← y − η ∇L_i(y + e),  e = ρ ∇L_i(y) / ||∇L_i(y)||"
    }
    settings: ClassVar = {"rho": 0.1}
    optional: ClassVar = {}
    neutral: ClassVar = {"rho": 0.0}
    scales = False
    rests = False
    rho: float

    def direction(self, i: int, y: Vector, rows: np.ndarray) -> Vector:
        grad = self.clients[i].grad
        return grad(y + self.uphill(grad(y, rows)), rows)

    def uphill(self, g: Vector) -> Vector:
        return self.rho * g / (np.linalg.norm(g) + 1e-12)


class FedExP(Rule):
    """A server's step that is the longer, the more updates differ."""

    equations: ClassVar = {
        "x": "x ← x − ζ ḡ,  ḡ = mean_P g_i",
        "zeta": "ζ = max(1, mean_P ||g_i||² / (2 (||ḡ||² + ε)))",
    }
    optional: ClassVar = {"eps": 0.01}
    neutral: ClassVar = {"eps": np.inf}
    scales = False
    weights = "uniform"
    eps = 1e-3

    def prepare(self) -> None:
        self.zeta = 1.0

    def server(self) -> Vector:
        mean = self.mean(self.g)
        below = 2 * (float(mean @ mean) + self.epsilon())
        self.zeta = max(self.least(), self.spread() / below if below > 0 else 1.0)
        return self.step(self.zeta * mean)

    def spread(self) -> float:
        return float(self.mean({i: g @ g for i, g in self.g.items()}))

    def epsilon(self) -> float:
        return self.eps

    def least(self) -> float:
        return 1.0


METHODS: dict[str, type[Rule]] = {
    rule.__name__.lower(): rule
    for rule in (
        *(FedAvg, FedProx, Scaffold, FedDyn, AdaBest, FedNova),
        *(FedAvgM, FedAdam, FedYogi, FedAdagrad, MimeLite, Mime),
        *(FedSAM, FedExP, Krum, Median, TrimmedMean),
    )
}

CHOICES: dict[type[Rule], dict[str, tuple[object, ...]]] = {
    Rule: {"weights": ("samples", "uniform")},
    Scaffold: {"option": (2, 1)},
    FedDyn: {"scale": ("none", "oracle")},
    AdaBest: {"scale": ("none", "oracle")},
    FedAvgM: {"form": ("heavy_ball", "ema")},
    MimeLite: {"form": ("ema", "heavy_ball")},
    FedExP: {"eps": (1e-3, 1e-4)},
}
"""what a method leaves open"""


def method(text: str) -> type[Rule]:
    """A method by its name and choices: `scaffold`, `scaffold(option=1)`."""
    name, given = text, list[ast.keyword]()
    with contextlib.suppress(SyntaxError):
        match tree(text.strip()).body:
            case ast.Call(func=ast.Name(id=name), args=[], keywords=given):
                pass
            case ast.Name(id=name):
                pass
    if name.lower() not in METHODS:
        raise UndriftError(unknown("method", name, METHODS))
    rule = METHODS[name.lower()]
    choices = {
        key: all
        for base, some in CHOICES.items()
        if issubclass(rule, base)
        for key, all in some.items()
        if rule.weighted or key != "weights"
    }
    chosen = {one.arg or "": ast.literal_eval(one.value) for one in given}
    for key, value in chosen.items():
        if key not in choices:
            raise UndriftError(f"{name}: " + unknown("choice", key, choices))
        if value not in choices[key]:
            raise UndriftError(f"{name}({key}={value!r}): choose one of {choices[key]}")
    return type(rule.__name__, (rule,), chosen)
