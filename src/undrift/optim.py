"""Optimisers as pure functions over their statistics.

One optimiser serves on the server (`ServerOpt`), on clients (`LocalOpt`, `MFL`) and as statistics
that stay fixed while clients train (`FedGBO`, `MimeLite`, `Mime`). With b the decay of the momentum
and a the share of a new gradient, D = sqrt(v) + eps (1 without v):

    use     U(g) = (b m + a g) / D                      a step with the statistics held still
    track   T(g): m <- b m + a g,  v <- V(v, g * g)     statistics that have seen g
    invert  I(u) = (u D - b m) / a                      the g for which U(g) = u
    step    T, then m / D (g / D without momentum)      an ordinary, moving step

None of them multiplies by a step size: the place of use does, by `lr` times its own.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass

from undrift.core import Config, Struct, Vector, choice, flag, real, whole


@dataclass(frozen=True)
class Optimiser(Config):
    """Base of all optimisers: no momentum, no scaling, which is SGD."""

    _: KW_ONLY
    lr: float = real(1.0, gt=0, tune="log(0.1, 3)")

    @property
    def b(self) -> float:
        """Decay of the momentum; 0 where there is none."""
        return 0.0

    @property
    def a(self) -> float:
        """Share of a new gradient in the momentum."""
        return 1.0 - self.b

    @property
    def eps(self) -> float:
        """What is added to sqrt(v); 0 where there is no v."""
        return 0.0

    def init(self, x: Vector, v0: float) -> Struct:
        """Statistics at the start; v0 is the place's own default for the second moment."""
        return Struct(m=0 * x) if self.b else Struct()

    def scale(self, q: Struct) -> Vector:
        """D, the divisor of every step."""
        return 1.0

    def numerator(self, q: Struct, g: Vector) -> Vector:
        """b m + a g."""
        return self.b * q.m + self.a * g if self.b else g

    def use(self, q: Struct, g: Vector) -> Vector:
        """U: the step for a gradient while the statistics stay as they are."""
        return self.numerator(q, g)

    def invert(self, q: Struct, u: Vector) -> Vector:
        """I: the gradient whose step under these statistics is u."""
        u = u * self.scale(q)
        return (u - self.b * q.m) / self.a if self.b else u

    def track(self, q: Struct, g: Vector, raw: Vector | None = None) -> Struct:
        """T: the statistics after a gradient; squares are taken of `raw` where it is given."""
        return q | Struct(m=self.numerator(q, g)) if self.b else q

    def step(self, q: Struct, g: Vector, raw: Vector | None = None) -> tuple[Vector, Struct]:
        """An ordinary step: track, then use what was tracked."""
        q = self.track(q, g, raw)
        return (q.m if self.b else g), q

    def gain(self, steps: float) -> float:
        """Mean length of the first steps along a gradient of length 1 that stays the same."""
        b = self.b
        fading: float = b * (1 - b**steps) / (1 - b)  # of the last gradients, some is yet to come
        return self.lr * self.a / (1 - b) * (1 - fading / steps)


@dataclass(frozen=True)
class SGD(Optimiser):
    """d = g. As a server optimiser, its `lr` is the server's learning rate."""


@dataclass(frozen=True)
class HeavyBall(Optimiser):
    """m <- beta m + g, d = m: momentum as in Hsu et al. and `torch.optim.SGD`."""

    _: KW_ONLY
    beta: float = real(0.9, ge=0, lt=1, tune="linear(0.3, 0.99)")

    @property
    def b(self) -> float:
        return self.beta

    @property
    def a(self) -> float:
        return 1.0

    def numerator(self, q: Struct, g: Vector) -> Vector:
        return self.beta * q.m + g if self.beta else g


@dataclass(frozen=True)
class SGDm(Optimiser):
    """m <- beta m + (1 - beta) g, d = m: momentum as an exponential mean, as in FedGBO."""

    _: KW_ONLY
    beta: float = real(0.9, ge=0, lt=1, tune="linear(0.3, 0.99)")

    @property
    def b(self) -> float:
        return self.beta


@dataclass(frozen=True)
class Adaptive(Optimiser):
    """Base of the optimisers that divide by sqrt(v) + eps.

    `v0` is the start of v; None leaves it to the place of use: eps^2 on the server (Reddi et al.),
    1 for statistics that clients share (FedGBO's code), 0 for a client's own (torch).
    """

    _: KW_ONLY
    lr: float = real(1.0, gt=0, tune="log(0.001, 1)")
    eps: float = real(1e-3, ge=0)
    v0: float | None = real(None, ge=0, optional=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.eps == 0 and not self.v0:
            self.refuse("with eps=0, v0 must be > 0 or the first step divides by 0", v0=self.v0)

    def init(self, x: Vector, v0: float) -> Struct:
        return super().init(x, v0) | Struct(v=0 * x + (v0 if self.v0 is None else self.v0))

    def scale(self, q: Struct) -> Vector:
        return q.v.sqrt() + self.eps

    def second(self, v: Vector, q: Vector) -> Vector:
        """V: the second moment after a squared gradient q."""
        raise NotImplementedError

    def use(self, q: Struct, g: Vector) -> Vector:
        return self.numerator(q, g) / self.scale(q)

    def gain(self, steps: float) -> float:
        """1: they do not grow with the gradient."""
        return 1.0

    def track(self, q: Struct, g: Vector, raw: Vector | None = None) -> Struct:
        raw = g if raw is None else raw
        return super().track(q, g) | Struct(v=self.second(q.v, raw * raw))

    def step(self, q: Struct, g: Vector, raw: Vector | None = None) -> tuple[Vector, Struct]:
        d, q = super().step(q, g, raw)
        return d / self.scale(q), q


@dataclass(frozen=True)
class Adagrad(Adaptive):
    """v <- v + g^2, d = g / (sqrt(v) + eps)."""

    def second(self, v: Vector, q: Vector) -> Vector:
        return v + q


@dataclass(frozen=True)
class RMSProp(Adaptive):
    """v <- beta v + (1 - beta) g^2, d = g / (sqrt(v) + eps)."""

    _: KW_ONLY
    beta: float = real(0.9, ge=0, lt=1, tune="linear(0.3, 0.99)")

    def second(self, v: Vector, q: Vector) -> Vector:
        return self.beta * v + (1 - self.beta) * q


@dataclass(frozen=True)
class Adam(Adaptive):
    """m <- beta1 m + (1 - beta1) g, v <- beta2 v + (1 - beta2) g^2, d = m / (sqrt(v) + eps).

    With `bias_correction`, after k steps, `eps_form` tells two customs apart:
    "torch"  m/(1 - beta1^k) / (sqrt(v/(1 - beta2^k)) + eps)
    "hf"     sqrt(1 - beta2^k)/(1 - beta1^k) * m / (sqrt(v) + eps)
    """

    _: KW_ONLY
    beta1: float = real(0.9, ge=0, lt=1, tune="linear(0.3, 0.99)")
    beta2: float = real(0.99, ge=0, lt=1)
    bias_correction: bool = flag(False)
    eps_form: str = choice("torch", "hf")

    @property
    def b(self) -> float:
        return self.beta1

    def init(self, x: Vector, v0: float) -> Struct:
        q = super().init(x, v0)
        return q | Struct(k=0) if self.bias_correction else q

    def second(self, v: Vector, q: Vector) -> Vector:
        return self.beta2 * v + (1 - self.beta2) * q

    def step(self, q: Struct, g: Vector, raw: Vector | None = None) -> tuple[Vector, Struct]:
        d, q = super().step(q, g, raw)
        if not self.bias_correction:
            return d, q
        k = q.k + 1
        root, share = (1 - self.beta2**k) ** 0.5, 1 - self.beta1**k
        if self.eps_form == "hf":
            return root / share * d, q | Struct(k=k)
        m = q.m if self.b else g
        return m / share / (q.v.sqrt() / root + self.eps), q | Struct(k=k)


@dataclass(frozen=True)
class Yogi(Adam):
    """As Adam, but v <- v - (1 - beta2) g^2 sign(v - g^2)."""

    def second(self, v: Vector, q: Vector) -> Vector:
        return v - (1 - self.beta2) * q * (v - q).sign()


@dataclass(frozen=True)
class Plateau(Config):
    """A factor that shrinks whenever a watched value has stopped falling.

    After `patience` rounds in a row without a value below (1 - threshold) times the best so far,
    the factor is multiplied by `factor` and the count starts anew.
    """

    _: KW_ONLY
    factor: float = real(0.9, gt=0, lt=1)
    patience: int = whole(10, ge=1)
    threshold: float = real(1e-3, ge=0, lt=1)

    def init(self) -> Struct:
        return Struct(value=1.0, best=math.inf, waited=0)

    def step(self, state: Struct, watched: float) -> Struct:
        if watched < (1 - self.threshold) * state.best:
            return state | Struct(best=watched, waited=0)
        if state.waited + 1 < self.patience:
            return state | Struct(waited=state.waited + 1)
        return state | Struct(value=state.value * self.factor, waited=0)
