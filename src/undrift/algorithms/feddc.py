"""FedDC: FedDyn's memory of drift and SCAFFOLD's control variates together."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from undrift.algorithms.feddyn import FedDyn
from undrift.core import Client, Grad, RoundFacts, Struct, Vector, flag, real


@dataclass(frozen=True)
class FedDC(FedDyn):
    """FedDyn whose local directions are corrected by control variates as well.

    d = ∇L_i(y) − μ_i a_i + μ_i (y − x) − c_i + c
    a_i ← a_i + g_i    c_i ← c_i − c + g_i/(Kη)    c ← c + (1/N) Σ Δc_i

    mu, a_i, h  as in FedDyn                  c, c_i  as in SCAFFOLD

    `duals="all"` is the server of the authors' code, which is FedDyn's; "active" is the paper's.
    `control=False` leaves out the control variates, and is FedDyn.

    Cost: 2n kept by the server (n if active) and by each client; 2n down, 2n up.
    Deviations: η is that of the round, where the code divides by the one before decay; the code's
    weights for unbalanced clients scale mu (`scale`), but not the control variates. g_i/(Kη) holds
    the pull and the memory too, as in the code.
    Reference: Gao et al., FedDC: Federated learning with non-IID data via local drift decoupling
    and correction, CVPR 2022, https://arxiv.org/abs/2203.11751.

    >>> undrift.algorithm("FedDC(mu=0.1)")
    FedDC(mu=0.1)
    """

    mu: float = real(0.01, ge=0, tune="log(0.001, 0.2)")
    _: KW_ONLY
    control: bool = flag(True)

    @property
    def unweighted(self) -> tuple[str, ...]:
        return ("dc",) if self.control else ()

    @property
    def even_steps(self) -> bool:
        return self.control

    def init_server(self, x: Vector, groups: tuple[int, ...]) -> Struct:
        s = super().init_server(x, groups)
        return s | Struct(c=0 * x) if self.control else s

    def init_client(self, x: Vector) -> Struct:
        me = super().init_client(x)
        return me | Struct(c=0 * x) if self.control else me

    def download(self, s: Struct) -> Struct:
        down = super().download(s)
        return down | Struct(c=s.c) if self.control else down

    def direction(
        self, grad: Grad, local: Struct, down: Struct, me: Struct, client: Client
    ) -> Vector:
        d = super().direction(grad, local, down, me, client)
        return d - me.c + down.c if self.control else d

    def upload(
        self, local: Struct, down: Struct, me: Struct, client: Client
    ) -> tuple[Struct, Struct]:
        up, kept = super().upload(local, down, me, client)
        if not self.control:
            return up, kept
        dc = (down.x - local.y) / (client.steps * client.lr) - down.c
        return up | Struct(dc=dc), kept | Struct(c=me.c + dc)

    def update(self, s: Struct, mean: Struct, round: RoundFacts) -> tuple[Vector, Struct]:
        d, changes = super().update(s, mean, round)
        if not self.control:
            return d, changes
        return d, changes | Struct(c=s.c + (round.cohort / round.population) * mean.dc)
