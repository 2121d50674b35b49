"""Parts: algorithms around algorithms."""

from undrift.parts.compositions import (
    FedACG,
    FedASAM,
    FedCM,
    FedGamma,
    FedSAM,
    FedSpeed,
    MoFedSAM,
    MomentumSCAFFOLD,
)
from undrift.parts.delta_sgd import DeltaSGD
from undrift.parts.extrapolate import Extrapolate
from undrift.parts.fedexp import FedExP
from undrift.parts.fedglad import FedGLAD
from undrift.parts.fedhyper import FedHyper
from undrift.parts.fedinit import FedInit
from undrift.parts.ida import IDA
from undrift.parts.local import Clip, LocalOpt, Prox
from undrift.parts.momentum import Momentum
from undrift.parts.robust import Krum, Median, TrimmedMean
from undrift.parts.server_opt import (
    FedAdagrad,
    FedAdam,
    FedAvgM,
    FedRMSProp,
    FedYogi,
    ServerOpt,
)
from undrift.parts.sharpness import ASAM, SAM

__all__ = [
    "ASAM",
    "IDA",
    "SAM",
    "Clip",
    "DeltaSGD",
    "Extrapolate",
    "FedACG",
    "FedASAM",
    "FedAdagrad",
    "FedAdam",
    "FedAvgM",
    "FedCM",
    "FedExP",
    "FedGLAD",
    "FedGamma",
    "FedHyper",
    "FedInit",
    "FedRMSProp",
    "FedSAM",
    "FedSpeed",
    "FedYogi",
    "Krum",
    "LocalOpt",
    "Median",
    "MoFedSAM",
    "Momentum",
    "MomentumSCAFFOLD",
    "Prox",
    "ServerOpt",
    "TrimmedMean",
]
