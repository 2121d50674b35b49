"""Published algorithms that are compositions: names that print what they are made of."""

from __future__ import annotations

from typing import Literal

from undrift.algorithms.fedavg import FedAvg
from undrift.algorithms.feddyn import FedDyn
from undrift.algorithms.fedprox import FedProx
from undrift.algorithms.scaffold import SCAFFOLD
from undrift.core import UndriftError, Weights
from undrift.parts.extrapolate import Extrapolate
from undrift.parts.momentum import Momentum
from undrift.parts.sharpness import ASAM, SAM


def FedCM(alpha: float = 0.1, *, weights: Weights = "uniform") -> Momentum:
    """FedAvg with momentum on clients; Cheng et al. call it FedAvg-M.

    Neutral: alpha=1.
    Reference: Xu et al., FedCM: Federated learning with client-level momentum, 2021,
    https://arxiv.org/abs/2106.10874.

    >>> undrift.algorithm("fedcm")
    Momentum(FedAvg(weights='uniform'), alpha=0.1)
    """
    return Momentum(FedAvg(weights=weights), alpha)


def MomentumSCAFFOLD(alpha: float = 0.1) -> Momentum:
    """SCAFFOLD with momentum on clients, SCAFFOLD-M in its paper.

    Neutral: alpha=1.
    Reference: Cheng et al., Momentum benefits non-IID federated learning simply and provably, ICLR
    2024, https://arxiv.org/abs/2306.16504.

    >>> undrift.algorithm("MomentumSCAFFOLD(alpha=0.2)")
    Momentum(SCAFFOLD(), alpha=0.2)
    """
    return Momentum(SCAFFOLD(), alpha)


def FedACG(beta: float = 0.85, mu: float = 0.001, *, weights: Weights = "uniform") -> Extrapolate:
    """FedProx whose server sends the model ahead by its momentum; beta is the paper's λ.

    It is AdaBest's server: `Prox(AdaBest(mu=0, beta=0.85), mu=0.001)` is the same. `mu` pulls as
    mu (y − x). The authors' code has mu = 0.002: its weight is 0.001, without the factor 1/2.

    Neutral: beta=0, mu=0.
    Deviations: that the paper's penalty has the factor 1/2 is not checked against its text.
    Reference: Kim et al., Communication-efficient federated learning with accelerated client
    gradient, CVPR 2024, https://arxiv.org/abs/2201.03172.

    >>> undrift.algorithm("fedacg")
    Extrapolate(FedProx(mu=0.001, weights='uniform'), beta=0.85)
    """
    return Extrapolate(FedProx(mu, weights=weights), beta=beta)


def FedSAM(rho: float = 0.05, *, weights: Weights = "samples") -> SAM:
    """FedAvg with sharpness-aware local steps.

    Neutral: rho=0.
    Reference: Qu et al., Generalized federated learning via sharpness aware minimization, ICML
    2022, https://arxiv.org/abs/2206.02618.

    >>> undrift.algorithm("fedsam")
    SAM(FedAvg(), rho=0.05)
    """
    return SAM(FedAvg(weights=weights), rho)


def FedASAM(rho: float = 0.5, *, weights: Weights = "samples") -> ASAM:
    """FedAvg with adaptive sharpness-aware local steps.

    Neutral: rho=0.
    Reference: Caldarola et al., Improving generalization in federated learning by seeking flat
    minima, ECCV 2022, https://arxiv.org/abs/2203.11834.

    >>> undrift.algorithm("fedasam")
    ASAM(FedAvg(), rho=0.5)
    """
    return ASAM(FedAvg(weights=weights), rho)


def MoFedSAM(alpha: float = 0.1, rho: float = 0.05, *, weights: Weights = "uniform") -> SAM:
    """FedCM with sharpness-aware local steps.

    Neutral: alpha=1, rho=0.
    Reference: Qu et al., Generalized federated learning via sharpness aware minimization, ICML
    2022, https://arxiv.org/abs/2206.02618.

    >>> undrift.algorithm("mofedsam")
    SAM(Momentum(FedAvg(weights='uniform'), alpha=0.1), rho=0.05)
    """
    return SAM(FedCM(alpha, weights=weights), rho)


def FedGamma(rho: float = 0.05) -> SAM:
    """SCAFFOLD with sharpness-aware local steps.

    Neutral: rho=0.
    Reference: Dai et al., FedGAMMA: Federated learning with global sharpness-aware minimization,
    IEEE TNNLS 2023, https://ieeexplore.ieee.org/document/10269141; its gradients are those
    of FedSAM, https://arxiv.org/abs/2206.02618.

    >>> undrift.algorithm("fedgamma")
    SAM(SCAFFOLD(), rho=0.05)
    """
    return SAM(SCAFFOLD(), rho)


def FedSpeed(
    mu: float = 0.1,
    rho: float = 0.1,
    share: float = 1.0,
    *,
    form: Literal["code", "paper"] = "code",
) -> SAM:
    """FedDyn with a step uphill before every gradient; mu is the paper's 1/λ.

    form="code" is what the authors' code does, SAM around FedDyn; "paper" goes uphill by rho times
    the gradient and takes the mean of duals over this round's clients only. share is the paper's α.

    Neutral: rho=0.
    Reference: Sun et al., FedSpeed: Larger local interval, less communication round, and higher
    generalization accuracy, ICLR 2023, https://arxiv.org/abs/2302.10429.

    >>> undrift.algorithm("fedspeed")
    SAM(FedDyn(mu=0.1, scale='none'), rho=0.1)
    """
    if form == "code":
        return SAM(FedDyn(mu, scale="none"), rho, share=share)
    if form != "paper":
        raise UndriftError(f"FedSpeed(form={form!r}): form must be one of 'code', 'paper'")
    return SAM(FedDyn(mu, scale="none", duals="active"), rho, normalise=False, share=share)
