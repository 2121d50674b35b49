"""Scaffnew: SCAFFOLD at half the traffic, if everybody takes part."""

from __future__ import annotations

from dataclasses import dataclass

from undrift.core import Algorithm, Client, Grad, Struct, Vector, Weights


@dataclass(frozen=True)
class Scaffnew(Algorithm):
    """Clients learn their correction from where the mean of all models went without them.

    y ← y − η(∇L_i(y) − h_i), K times    x ← mean of y_i    h_i ← h_i + (x − y_i)/(Kη)

    The new x arrives with the next round, so a client keeps its y_i and Kη until then. If all
    clients take part with the same K, then Σ h_i = 0, and h_i = c_i − c of SCAFFOLD's option 2.

    Cost: 2n and one number kept by each client; n down, n up.
    Deviations: K is fixed, where the paper draws it (on average 1/p steps, p the chance to
    communicate). Samplers that never draw everybody are refused. In a round that some miss, their
    h_i is off by what x moved in between, Σ h_i is no longer 0, and the limit is not the optimum.
    Reference: Mishchenko et al., ProxSkip: Yes! Local gradient steps provably lead to communication
    acceleration! Finally!, ICML 2022, https://arxiv.org/abs/2202.09357.

    >>> undrift.algorithm("scaffnew")
    Scaffnew()
    """

    quorum = float("inf")
    even_steps = True
    plain_mean = True

    @property
    def weights(self) -> Weights:
        return "uniform"

    def init_client(self, x: Vector) -> Struct:
        return Struct(h=0 * x, y=x, work=1.0)

    def begin(self, down: Struct, me: Struct, client: Client) -> Struct:
        return Struct(y=down.x, h=me.h + (down.x - me.y) / me.work)  # h_i ← h_i + (x − y_i)/(Kη)

    def direction(
        self, grad: Grad, local: Struct, down: Struct, me: Struct, client: Client
    ) -> Vector:
        return grad(local.y) - local.h

    def upload(
        self, local: Struct, down: Struct, me: Struct, client: Client
    ) -> tuple[Struct, Struct]:
        kept = Struct(h=local.h, y=local.y, work=client.steps * client.lr)
        return Struct(delta=down.x - local.y), kept
