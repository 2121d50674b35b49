"""SCAFFOLD: control variates that cancel the drift."""

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

    def direction(
        self, grad: Grad, local: Struct, down: Struct, me: Struct, client: Client
    ) -> Vector:
        return grad(local.y) - me.c + down.c

    def correction(self, s: Struct) -> Vector:
        return s.c


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
    ICML 2020, https://arxiv.org/abs/1910.06378.

    >>> undrift.algorithm("SCAFFOLD(option=1)")
    SCAFFOLD(option=1)
    """

    _: KW_ONLY
    option: int = choice(2, 1)
    acar_weights: bool = flag(False)

    unweighted = ("dc",)

    @property
    def even_steps(self) -> bool:
        return self.option == 2

    def direction(
        self, grad: Grad, local: Struct, down: Struct, me: Struct, client: Client
    ) -> Vector:
        c = down.c * (client.n_mean / client.n) if self.acar_weights else down.c
        return grad(local.y) - me.c + c

    def upload(
        self, local: Struct, down: Struct, me: Struct, client: Client
    ) -> tuple[Struct, Struct]:
        delta = down.x - local.y
        if self.option == 1:
            c_i = client.full_grad(down.x)  # c_i⁺ = ∇L_i(x)
        else:
            lr = client.lr0 if self.acar_weights else client.lr
            c_i = me.c - down.c + delta / (client.steps * lr)  # c_i⁺ = c_i − c + (x − y)/(Kη)
        dc = (c_i - me.c) * (client.n / client.n_mean) if self.acar_weights else c_i - me.c
        return Struct(delta=delta, dc=dc), Struct(c=c_i)

    def update(self, s: Struct, mean: Struct, round: RoundFacts) -> tuple[Vector, Struct]:
        d, changes = super().update(s, mean, round)
        c = s.c + (round.cohort / round.population) * mean.dc  # c ← c + (1/N) Σ Δc_i
        return d, changes | Struct(c=c)
