"""SCAFFOLD and SCAFFOLD/m: control variates that cancel the drift."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from undrift.core import Algorithm, Client, Grad, RoundFacts, Struct, Vector, Weights, choice, flag


@dataclass(frozen=True)
class ControlVariates(Algorithm):
    """Each client replaces its own mean gradient c_i by everybody's, c: d = ∇L_i(y) − c_i + c."""

    _: KW_ONLY
    weights: Weights = choice("uniform", "samples")

    def init_server(self, x: Vector, groups: tuple[int, ...]) -> Struct:
        return super().init_server(x, groups) | Struct(c=0 * x)

    def init_client(self, x: Vector) -> Struct:
        return Struct(c=0 * x)

    def download(self, s: Struct) -> Struct:
        return Struct(x=s.x, c=s.c)

    def direction(self, grad: Grad, local: Struct, down: Struct, me: Struct, c: Client) -> Vector:
        return grad(local.y) - me.c + down.c


@dataclass(frozen=True)
class SCAFFOLD(ControlVariates):
    """Control variates, each client's own and their mean, that go down and up beside the model.

    c    server's control variate             c_i   client's control variate
    K    local steps                          η     local step size of the round

    `option=1` refreshes c_i with the full gradient at x (one more pass over the data); `option=2`
    with the mean gradient of the local path. `acar_weights`, for unbalanced data, is the rule of
    FedDyn's code with ω_i = n_i / mean n: local steps use c/ω_i, c moves by ω_i Δc_i, and the
    path's mean gradient is taken with the step size before decay.

    Cost: n kept by the server and by each client; 2n down, 2n up.
    Deviations: none; models are averaged uniformly.
    Reference: Karimireddy et al., SCAFFOLD: Stochastic controlled averaging for federated learning,
    ICML 2020.
    """

    _: KW_ONLY
    option: int = choice(2, 1)
    acar_weights: bool = flag(False)

    unweighted = ("dc",)

    def direction(self, grad: Grad, local: Struct, down: Struct, me: Struct, c: Client) -> Vector:
        common = down.c * (c.n_mean / c.n) if self.acar_weights else down.c
        return grad(local.y) - me.c + common

    def upload(self, local: Struct, down: Struct, me: Struct, c: Client) -> tuple[Struct, Struct]:
        delta = down.x - local.y
        if self.option == 1:
            own = c.full_grad(down.x)  # c_i⁺ = ∇L_i(x)
        else:
            lr = c.lr0 if self.acar_weights else c.lr
            own = me.c - down.c + delta / (c.steps * lr)  # c_i⁺ = c_i − c + (x − y)/(Kη)
        change = (own - me.c) * (c.n / c.n_mean) if self.acar_weights else own - me.c
        return Struct(delta=delta, dc=change), Struct(c=own)

    def update(self, s: Struct, mean: Struct, r: RoundFacts) -> tuple[Vector, Struct]:
        d, changes = super().update(s, mean, r)
        c = s.c + (r.cohort / r.population) * mean.dc  # c ← c + (1/N) Σ Δc_i
        return d, changes | Struct(c=c)


@dataclass(frozen=True)
class SCAFFOLDm(ControlVariates):
    """SCAFFOLD, option 2, whose clients send their model only.

    The server finds Σ Δc_i from the mean update ḡ: c ← (N−p)/N c + p/(N K η) ḡ, which equals
    SCAFFOLD as long as all clients have the same weight and take the same number of steps.

    Cost: n kept by the server and by each client; 2n down, n up.
    Deviations: `form="printed"` has the factor (N−1)/N of AdaBest's Algorithm 1, right only for
    p = 1; it diverges and is kept as a curiosity.
    Reference: Varno et al., AdaBest, ECCV 2022, Algorithm 1.
    """

    _: KW_ONLY
    form: str = choice("exact", "printed")

    def upload(self, local: Struct, down: Struct, me: Struct, c: Client) -> tuple[Struct, Struct]:
        delta = down.x - local.y
        return Struct(delta=delta), Struct(c=me.c - down.c + delta / (c.steps * c.lr))

    def update(self, s: Struct, mean: Struct, r: RoundFacts) -> tuple[Vector, Struct]:
        d, changes = super().update(s, mean, r)
        p, N = r.cohort, r.population
        keep = (N - p) / N if self.form == "exact" else (N - 1) / N
        return d, changes | Struct(c=keep * s.c + p / (N * r.steps * r.lr) * mean.raw)
