"""Parts that take gradients where the loss is worse: SAM, ASAM."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from undrift.core import Client, Grad, Part, Struct, Vector, flag, real


@dataclass(frozen=True)
class SAM(Part):
    """Every gradient of local training is taken a step uphill, on the same mini-batch.

    e = ρ ∇L(y)/||∇L(y)||    ∇L(y) becomes (1 − share) ∇L(y) + share ∇L(y + e)

    `normalise=False` goes uphill by ρ ∇L(y), as FedSpeed's paper does, and `share` is its α.
    Around FedAvg it is FedSAM; around SCAFFOLD, FedGamma; around `Momentum`, MoFedSAM.

    Neutral: rho=0.
    Cost: one more gradient for each that local steps take; no traffic.
    Deviations: 1e-12 is added to the norm; weight decay is part of both gradients. Gradients over
    all samples (SCAFFOLD's option 1, MimeLite) stay as they are.
    Reference: Qu et al., Generalized federated learning via sharpness aware minimization, ICML
    2022, https://arxiv.org/abs/2206.02618; Foret et al., Sharpness-aware minimization for
    efficiently improving generalization, ICLR 2021, https://arxiv.org/abs/2010.01412.

    >>> undrift.algorithm("SAM(SCAFFOLD(), rho=0.1)")
    SAM(SCAFFOLD(), rho=0.1)
    """

    rho: float = real(0.05, ge=0, tune="log(0.005, 0.5)")
    _: KW_ONLY
    normalise: bool = flag(True)
    share: float = real(1.0, ge=0, le=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        inner = self.inner
        while isinstance(inner, Part):
            if isinstance(inner, SAM):
                self.refuse("one of SAM and ASAM is enough", inner=self.inner)
            inner = inner.inner

    def uphill(self, y: Vector, g: Vector) -> Vector:
        """e, given the gradient g at y."""
        return (self.rho / (g.norm() + 1e-12) if self.normalise else self.rho) * g

    def direction(
        self, grad: Grad, local: Struct, down: Struct, me: Struct, client: Client
    ) -> Vector:
        def sharp(y: Vector) -> Vector:
            here = grad(y)
            there = grad(y + self.uphill(y, here))
            return there if self.share == 1 else (1 - self.share) * here + self.share * there

        return self.inner.direction(sharp, local, down, me, client)


@dataclass(frozen=True)
class ASAM(SAM):
    """SAM whose step uphill is larger for larger weights, so that it does not depend on scale.

    e = ρ T²∇L(y)/||T∇L(y)||,  T = |y| + eta

    Around FedAvg it is FedASAM.

    Neutral: rho=0.
    Cost: as SAM.
    Deviations: as SAM; T scales all parameters, where ASAM's code scales those named weight. The
    defaults of `rho` and `eta` are not checked against the papers.
    Reference: Caldarola et al., Improving generalization in federated learning by seeking flat
    minima, ECCV 2022, https://arxiv.org/abs/2203.11834; Kwon et al., ASAM: Adaptive sharpness-aware
    minimization for scale-invariant learning of deep neural networks, ICML 2021,
    https://arxiv.org/abs/2102.11600.

    >>> undrift.algorithm("ASAM(FedAvg(), rho=0.5)")
    ASAM(FedAvg(), rho=0.5)
    """

    rho: float = real(0.5, ge=0, tune="log(0.05, 2)")
    _: KW_ONLY
    eta: float = real(0.2, ge=0)

    def uphill(self, y: Vector, g: Vector) -> Vector:
        t = abs(y) + self.eta
        scaled = t * g
        norm = scaled.norm() + 1e-12 if self.normalise else 1.0
        return self.rho / norm * (t * scaled)
