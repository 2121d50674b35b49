"""FedNova: updates normalised by the local work behind them."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from undrift.core import (
    Algorithm,
    Client,
    Grad,
    RoundFacts,
    Struct,
    Vector,
    Weights,
    choice,
    real,
)


@dataclass(frozen=True)
class FedNova(Algorithm):
    """The mean of the updates per unit of work, times the mean work.

    θ ← θ − τ Σ p_i g_i / ||a_i||₁,  τ = Σ p_i ||a_i||₁,  p_i = n_i / Σ n_j

    momentum  local heavy-ball momentum ρ     mu    strength of a local pull to x
    ||a_i||₁  total weight that client i's update gives to its K gradients:
              K; with ρ, [K − ρ(1−ρᴷ)/(1−ρ)]/(1−ρ); with mu, Σ_{j<K} (1−ηmu)ʲ

    Cost: nothing kept; n down, n and one number up.
    Deviations: momentum and mu together are refused: the paper does not define them.
    Reference: Wang et al., Tackling the objective inconsistency problem in heterogeneous federated
    optimization, NeurIPS 2020, https://arxiv.org/abs/2007.07481.

    >>> undrift.algorithm("FedNova(momentum=0.9)")
    FedNova(momentum=0.9, mu=0.0)
    """

    momentum: float = real(0.0, ge=0, lt=1)
    mu: float = real(0.0, ge=0)
    _: KW_ONLY
    weights: Weights = choice("samples", "uniform")

    even_steps = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.momentum and self.mu:
            self.refuse("use one of momentum and mu", momentum=self.momentum, mu=self.mu)

    def work(self, client: Client) -> float:
        """||a_i||₁."""
        K, rho = client.steps, self.momentum
        if self.mu:
            return sum((1 - client.lr * self.mu) ** j for j in range(K))
        return (K - rho * (1 - rho**K) / (1 - rho)) / (1 - rho)

    def begin(self, down: Struct, me: Struct, client: Client) -> Struct:
        return Struct(y=down.x, m=0 * down.x) if self.momentum else Struct(y=down.x)

    def direction(
        self, grad: Grad, local: Struct, down: Struct, me: Struct, client: Client
    ) -> Vector:
        g = grad(local.y)
        return g + self.mu * (local.y - down.x) if self.mu else g

    def move(self, local: Struct, d: Vector, down: Struct, client: Client) -> Struct:
        if not self.momentum:
            return super().move(local, d, down, client)
        m = self.momentum * local.m + d
        return super().move(local, m, down, client) | Struct(m=m)

    def upload(
        self, local: Struct, down: Struct, me: Struct, client: Client
    ) -> tuple[Struct, Struct]:
        return Struct(delta=down.x - local.y, work=self.work(client)), me

    def receive(self, s: Struct, up: Struct, groups: tuple[int, ...]) -> Struct:
        return up | Struct(delta=up.delta / up.work)  # g_i / ||a_i||₁

    def update(self, s: Struct, mean: Struct, round: RoundFacts) -> tuple[Vector, Struct]:
        return super().update(s, mean | Struct(delta=mean.work * mean.delta), round)
