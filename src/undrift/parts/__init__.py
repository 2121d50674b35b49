"""Parts: algorithms around algorithms."""

from undrift.parts.extrapolate import Extrapolate
from undrift.parts.fedglad import FedGLAD
from undrift.parts.ida import IDA
from undrift.parts.local import Clip, LocalOpt, Prox
from undrift.parts.robust import Krum, Median, TrimmedMean
from undrift.parts.server_opt import (
    FedAdagrad,
    FedAdam,
    FedAvgM,
    FedRMSProp,
    FedYogi,
    ServerOpt,
)

__all__ = [
    "IDA",
    "Clip",
    "Extrapolate",
    "FedAdagrad",
    "FedAdam",
    "FedAvgM",
    "FedGLAD",
    "FedRMSProp",
    "FedYogi",
    "Krum",
    "LocalOpt",
    "Median",
    "Prox",
    "ServerOpt",
    "TrimmedMean",
]
