"""FedDyn: dynamic regularisation."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from undrift.algorithms.bias_correction import BiasCorrection
from undrift.core import Client, RoundFacts, Struct, Vector, Weights, choice, flag, real


@dataclass(frozen=True)
class FedDyn(BiasCorrection):
    """Clients remember their summed updates a_i and correct their gradients by h_i = mu_i a_i.

    mu   strength of the correction           a_i   client's sum of its own updates g_i
    h    server's mean of all a_i             prox  factor of the pull to x (fedsim has 1/2)

    `scale="oracle"` weakens mu for large clients, mu_i = mu n̄/n_i, with n̄ over all registered
    clients; it is "none" where all have the same number of samples. With `h_raw`, FedGLAD does not
    rescale what enters h. `duals="active"` is the server of FedSpeed's and FedDC's papers: clients
    send g_i + a_i, and x becomes the mean of y_i − a_i over this round's clients; there is no h.

    Cost: n kept by the server (none if active) and by each client; n down, n up.
    Deviations: a_i is kept unscaled, so that mu_i may change between rounds. h is the mean of all
    a_i for uniform weights only; with others the limit is not the optimum.
    Reference: Acar et al., Federated learning based on dynamic regularization, ICLR 2021,
    https://arxiv.org/abs/2111.04263.

    >>> undrift.algorithm("ServerOpt(FedDyn(mu=0.1), SGD(lr=0.5))")
    ServerOpt(FedDyn(mu=0.1), SGD(lr=0.5))
    """

    mu: float = real(0.02, ge=0, tune="log(0.002, 0.2)")
    _: KW_ONLY
    prox: float = real(1.0, ge=0)
    scale: str = choice("oracle", "none")
    h_raw: bool = flag(False)
    duals: str = choice("all", "active")
    weights: Weights = choice("uniform", "samples")

    def init_server(self, x: Vector, groups: tuple[int, ...]) -> Struct:
        return Struct(x=x, xbar=x, h=0 * x) if self.duals == "all" else Struct(x=x, xbar=x)

    def init_client(self, x: Vector) -> Struct:
        return Struct(a=0 * x)

    def strength(self, down: Struct, client: Client) -> float:
        """mu_i; (mu n̄)/n_i rounds otherwise than mu (n̄/n_i), and results hold its last digits."""
        return self.mu * client.n_mean / client.n if self.scale == "oracle" else self.mu

    def begin(self, down: Struct, me: Struct, client: Client) -> Struct:
        return Struct(y=down.x, h=self.strength(down, client) * me.a)  # h_i = μ_i a_i

    def upload(
        self, local: Struct, down: Struct, me: Struct, client: Client
    ) -> tuple[Struct, Struct]:
        g = down.x - local.y
        a = me.a + g  # a_i ← a_i + g_i
        return Struct(delta=g if self.duals == "all" else g + a), Struct(a=a)

    def update(self, s: Struct, mean: Struct, round: RoundFacts) -> tuple[Vector, Struct]:
        if self.duals == "active":
            return mean.delta, Struct(xbar=s.x - mean.delta)  # θᵗ = mean of θ_i − a_i
        new = mean.raw if self.h_raw else mean.delta
        h = s.h + (round.cohort / round.population) * new  # hᵗ = hᵗ⁻¹ + (p/N) ḡᵗ
        return mean.delta + h, Struct(xbar=s.x - mean.delta, h=h)  # θᵗ = θ̄ᵗ − hᵗ

    def correction(self, s: Struct) -> Vector | None:
        return s.h if self.duals == "all" else None
