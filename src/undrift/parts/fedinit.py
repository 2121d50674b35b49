"""FedInit: clients start a little away from where they ended last time."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from undrift.core import Client, Part, Struct, Vector, choice, real


@dataclass(frozen=True)
class FedInit(Part):
    """Relaxed initialisation: clients start beyond x, seen from their last model.

    y₀ = x + β(x − y_i'),  y_i' the model that the client reached last time (x at first)

    `form="code"`, of the authors' code, adds the mean of y_K − y₀ to x; the inner algorithm sees
    the way from y₀ as if it had begun at x. "paper" averages the models y_K, and refuses what
    divides updates by Kη. Where clients come back late, y_i' is old and far behind x, and "paper"
    lets ||x|| grow.

    Neutral: beta=0.
    Cost: n kept by each client; no traffic.
    Deviations: none.
    Reference: Sun et al., Understanding how consistency works in federated learning via stage-wise
    relaxed initialization, NeurIPS 2023, https://arxiv.org/abs/2306.05706.

    >>> undrift.algorithm("FedInit(SCAFFOLD(), beta=0.05)")
    FedInit(SCAFFOLD(), beta=0.05)
    """

    beta: float = real(0.1, ge=0, tune="log(0.01, 0.5)")
    _: KW_ONLY
    form: str = choice("code", "paper")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inner.even_steps and self.form == "paper":
            reason = "takes x − y for K local steps, but y does not start at x; use form='code'"
            self.refuse(f"{type(self.core).__name__} {reason}", inner=self.inner)

    def ahead(self, down: Struct, me: Struct) -> Vector:
        """y₀ − x."""
        return self.beta * (down.x - me.fedinit.y)

    def init_client(self, x: Vector) -> Struct:
        return self.inner.init_client(x) | Struct(fedinit=Struct(y=x))

    def begin(self, down: Struct, me: Struct, client: Client) -> Struct:
        local = self.inner.begin(down, me, client)
        return local | Struct(y=local.y + self.ahead(down, me))

    def upload(
        self, local: Struct, down: Struct, me: Struct, client: Client
    ) -> tuple[Struct, Struct]:
        seen = local
        if self.form == "code":
            seen = local | Struct(y=local.y - self.ahead(down, me))
        up, kept = self.inner.upload(seen, down, me, client)
        return up, kept | Struct(fedinit=Struct(y=local.y))
