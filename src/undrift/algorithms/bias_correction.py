"""BiasCorrection: the base of FedDyn and AdaBest."""

from __future__ import annotations

from undrift.core import Algorithm, Client, Grad, RoundFacts, Struct, Vector


class BiasCorrection(Algorithm):
    """Local steps corrected by a bias estimate h_i that the client remembers.

    d = ∇L_i(y) − μ_i h_i + prox·μ_i (y − x)

    mu_i  by `scale`: "none" mu; otherwise mu n̄/n_i, with n̄ the mean samples over all registered
          clients ("oracle") or over all past participations ("progressive")

    An algorithm declares the settings, makes h_i μ_i in `begin` and says how h_i is learned.
    """

    mu: float
    prox: float
    scale: str

    deploys = "aggregate"

    def init_server(self, x: Vector, groups: tuple[int, ...]) -> Struct:
        s = super().init_server(x, groups) | Struct(h=0 * x)
        return s | Struct(events=0, n_mean=0.0) if self.scale == "progressive" else s

    def download(self, s: Struct) -> Struct:
        return Struct(x=s.x, n_mean=s.n_mean) if self.scale == "progressive" else Struct(x=s.x)

    def strength(self, down: Struct, client: Client) -> float:
        """mu_i; in the first round a progressive n̄ is not known yet (0) and mu_i is mu."""
        if self.scale == "none":
            return self.mu
        n_mean = client.n_mean if self.scale == "oracle" else down.n_mean
        return self.mu * (n_mean / client.n + (n_mean == 0))

    def direction(
        self, grad: Grad, local: Struct, down: Struct, me: Struct, client: Client
    ) -> Vector:
        d = grad(local.y) - local.h
        return d + self.prox * self.strength(down, client) * (local.y - down.x) if self.prox else d

    def participations(self, s: Struct, round: RoundFacts) -> Struct:
        """The progressive n̄ after a round: a mean over all participations so far."""
        if self.scale != "progressive":
            return Struct()
        events = s.events + round.cohort
        n_mean = s.n_mean + (round.n_mean - s.n_mean) * round.cohort / events
        return Struct(events=events, n_mean=n_mean)

    def correction(self, s: Struct) -> Vector | None:
        return s.h
