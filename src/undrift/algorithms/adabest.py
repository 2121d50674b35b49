"""AdaBest: adaptive bias estimates."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from undrift.algorithms.bias_correction import BiasCorrection
from undrift.core import Client, RoundFacts, Struct, Vector, Weights, choice, flag, member, real
from undrift.optim import Plateau
from undrift.vectors import effective_updates, safe_beta


@dataclass(frozen=True)
class AdaBest(BiasCorrection):
    """Clients discount their bias estimate h_i by its age; the server's h decays geometrically.

    client  y ← y − η(∇L_i(y) − μ_i h_i), K times    h_i ← h_i/(t − t'_i) + g_i,  g_i = x − y
    server  θ̄ᵗ = θᵗ⁻¹ − ḡᵗ    hᵗ = β(θ̄ᵗ⁻¹ − θ̄ᵗ) = Σ_τ β^(t−τ+1) ḡ^τ    θᵗ = θ̄ᵗ − hᵗ

    mu   strength of the local correction     beta  decay of the server's estimate h
    h_i  client's bias estimate               t'_i  round of its last participation

    `beta="auto"` takes 1 − 1/min(p + ½, 2 √(G min(G, a))) in a round with p clients, a their mean
    t − t'_i, G the effective number of updates (`undrift.vectors.safe_beta`). A fixed beta above
    1 − 1/(2p), with p of many clients a round, may let ||θ|| grow without bound.

    `form="text"` scales h_i where it is used, `"box"` where it is learned; equal for constant mu.
    `scale` adapts mu to unbalanced clients, mu_i = mu n̄/n_i: "progressive" takes n̄ over all past
    participations, "oracle" over all registered clients; both are "none" on balanced data.
    `discount=False` drops 1/(t − t'_i); `prox` adds prox·mu_i(y − x); `plateau` shrinks beta when
    ||h|| stops falling.

    Neutral: mu=0, beta=0.
    Cost: n kept by the server and by each client; n down (one number more if progressive), n up
    (two numbers more if auto).
    Deviations: h is stored to be reported, though θ̄ suffices; the paper announces a decay of beta
    without a procedure, `plateau` and "auto" are ours; fedsim's scaling, by batch size, is not
    offered.
    Reference: Varno et al., AdaBest: Minimizing client drift in federated learning via adaptive
    bias estimation, ECCV 2022, https://arxiv.org/abs/2204.13170.

    >>> undrift.algorithm("adabest")
    AdaBest(mu=0.02, beta=0.96)
    """

    mu: float = real(0.02, ge=0, tune="log(0.002, 0.2)")
    beta: float | str = real(0.96, ge=0, le=1, word="auto", tune="linear(0.2, 0.98)")
    _: KW_ONLY
    form: str = choice("text", "box")
    scale: str = choice("progressive", "oracle", "none")
    discount: bool = flag(True)
    prox: float = real(0.0, ge=0)
    plateau: Plateau | None = member(Plateau, None, optional=True)
    weights: Weights = choice("uniform", "samples")

    def init_server(self, x: Vector, groups: tuple[int, ...]) -> Struct:
        s = super().init_server(x, groups)
        s = s | Struct(beta=0.0, updates=0.0) if self.beta == "auto" else s
        return s | Struct(plateau=self.plateau.init()) if self.plateau else s

    def init_client(self, x: Vector) -> Struct:
        return Struct(h=0 * x, t=0)

    def begin(self, down: Struct, me: Struct, client: Client) -> Struct:
        mu = self.strength(down, client)
        return Struct(y=down.x, h=mu * me.h if self.form == "text" else me.h)

    def upload(
        self, local: Struct, down: Struct, me: Struct, client: Client
    ) -> tuple[Struct, Struct]:
        g = down.x - local.y
        age = client.t - me.t
        new = g if self.form == "text" else self.strength(down, client) * g
        h = me.h / (age if self.discount else 1) + new  # h_i ← h_i/(t−t'_i) + g_i
        up = Struct(delta=g, square=g @ g, age=age) if self.beta == "auto" else Struct(delta=g)
        return up, Struct(h=h, t=client.t)

    def update(self, s: Struct, mean: Struct, round: RoundFacts) -> tuple[Vector, Struct]:
        auto, beta = self.beta == "auto", self.beta
        if auto:
            updates = effective_updates(mean.square, mean.raw, round.cohort)
            beta = safe_beta(updates, round.cohort, mean.age)
        beta = beta * s.plateau.value if self.plateau else beta
        xbar = s.x - mean.delta  # θ̄ᵗ = θᵗ⁻¹ − ḡᵗ
        h = beta * (s.xbar - xbar)  # hᵗ = β(θ̄ᵗ⁻¹ − θ̄ᵗ)
        changes = Struct(xbar=xbar, h=h) | self.participations(s, round)
        if auto:
            changes |= Struct(beta=beta, updates=updates)
        if self.plateau:
            changes |= Struct(plateau=self.plateau.step(s.plateau, float(h.norm())))
        return mean.delta + h, changes  # θᵗ = θ̄ᵗ − hᵗ
