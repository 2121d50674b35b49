"""DeltaSGD: every client finds its own local step size."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from undrift.core import Algorithm, Client, Grad, Part, Struct, Vector, real


@dataclass(frozen=True)
class DeltaSGD(Part):
    """Δ-SGD: local steps as long as the local smoothness allows, without tuning.

    η_k = min(||y_k − y_{k−1}|| / (c ||d_k − d_{k−1}||), η_{k−1} √(1 + δ θ_{k−1}))
    y_{k+1} = y_k − η_k d_k,  θ_k = η_k/η_{k−1}

    start  η₀, afresh in every round          growth  δ
    c      caution: a larger one makes smaller steps

    Both directions d are taken on the mini-batch of step k; θ₀ is 1. The local learning rate and
    its decay are not used, so whatever divides updates by Kη is refused.

    Cost: two gradients a step; no traffic.
    Deviations: 1e-30 is added to the distance of models and 1e-34 to that of directions, so that
    the first step has size η₀; the authors' code adds 1e-5 to η instead, and its first step is
    larger by √(1 + δ). Corrections by the inner algorithm are part of the directions.
    Reference: Kim et al., Adaptive federated learning with auto-tuned clients, ICLR 2024,
    https://arxiv.org/abs/2306.11201.

    >>> undrift.algorithm("DeltaSGD(FedProx(mu=0.1), start=0.1)")
    DeltaSGD(FedProx(mu=0.1), start=0.1)
    """

    _: KW_ONLY
    start: float = real(0.2, gt=0, tune="log(0.02, 2)")
    growth: float = real(0.02, ge=0)
    c: float = real(1.0, gt=0)

    rank = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inner.even_steps:
            name = type(self.core).__name__
            self.refuse(f"{name} divides updates by Kη, and steps differ in size", inner=self.inner)
        inner = self.inner
        while isinstance(inner, Part):
            self._refuse_move(inner, Part)
            inner = inner.inner
        self._refuse_move(inner, Algorithm)

    def _refuse_move(self, inner: Algorithm, usual: type[Algorithm]) -> None:
        if type(inner).move is not usual.move:
            name = type(inner).__name__
            self.refuse(f"{name} has a way of its own to take local steps", inner=self.inner)

    def begin(self, down: Struct, me: Struct, client: Client) -> Struct:
        local = self.inner.begin(down, me, client)
        eta = 0 * local.y + self.start  # a number, as a vector: compiled steps change vectors only
        return local | Struct(delta_sgd=Struct(y=local.y, eta=eta, cap=eta))

    def direction(
        self, grad: Grad, local: Struct, down: Struct, me: Struct, client: Client
    ) -> Vector:
        """The direction and its step size, for `move`."""
        own = local.delta_sgd
        d = self.inner.direction(grad, local, down, me, client)
        before = self.inner.direction(grad, local | Struct(y=own.y), down, me, client)
        far, apart = (local.y - own.y).norm() + 1e-30, (d - before).norm() + 1e-34
        return Struct(d=d, eta=own.cap.minimum(far / (self.c * apart)))

    def move(self, local: Struct, d: Vector, down: Struct, client: Client) -> Struct:
        cap = d.eta * (1 + self.growth * d.eta / local.delta_sgd.eta).sqrt()
        own = Struct(y=1.0 * local.y, eta=d.eta, cap=cap)  # a copy of y, which changes
        return local | Struct(y=local.y - d.eta * d.d, delta_sgd=own)
