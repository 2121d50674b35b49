"""undrift: federated optimisation under client drift.

task, data     what clients learn, and from what: `Task`, `FederatedData`, `federate`
algorithms     `FedAvg`, `AdaBest`, `FedGBO`, `FedGLAD(...)`; `algorithm("adabest")` by name
rounds         the generator that runs a federation
run            the generator that runs an experiment in a folder, or what is left of it
History        the numbers of rounds or run directories as a table, and plots of them
replay         any algorithm on fully explicit inputs, for checking
conform        any implementation of a method, in any code base, compared with the method
check_algorithm  laws that every algorithm obeys, ours and yours
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from undrift._version import __version__ as __version__

os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")  # undrift.arithmetic says why

if TYPE_CHECKING:
    from undrift.algorithms import (
        MFL,
        MIFA,
        SCAFFOLD,
        AdaBest,
        Centralised,
        FedAU,
        FedAvg,
        FedDC,
        FedDyn,
        FedGBO,
        FedNova,
        FedProx,
        FedVARP,
        LocalOnly,
        Mime,
        MimeLite,
        Scaffnew,
        SCAFFOLDm,
    )
    from undrift.checks.conform import NonConforming, conform
    from undrift.checks.laws import LAWS, LawBroken, check_algorithm
    from undrift.checks.plan import Plan
    from undrift.checks.replay import Snapshot, replay
    from undrift.config import UndriftError
    from undrift.core import Algorithm, Client, Part, RoundFacts, Struct
    from undrift.data import FederatedData
    from undrift.data.partition.partitions import (
        IID,
        Dirichlet,
        DirichletTotal,
        Natural,
        Pachinko,
        Saved,
        Shards,
        federate,
    )
    from undrift.data.sources import Digits, Synthetic
    from undrift.experiment.experiment import Experiment
    from undrift.experiment.registry import algorithm
    from undrift.federation.rounds import Round, State, rounds
    from undrift.federation.sampling import (
        MD,
        AdaFL,
        Bernoulli,
        Explicit,
        OneClass,
        RoundRobin,
        Uniform,
    )
    from undrift.measure.stopping import Budget, Patience, Target
    from undrift.optim import SGD, Adagrad, Adam, HeavyBall, Plateau, RMSProp, SGDm, Yogi
    from undrift.parts import (
        ASAM,
        IDA,
        SAM,
        Clip,
        DeltaSGD,
        Extrapolate,
        FedACG,
        FedAdagrad,
        FedAdam,
        FedASAM,
        FedAvgM,
        FedCM,
        FedExP,
        FedGamma,
        FedGLAD,
        FedHyper,
        FedInit,
        FedRMSProp,
        FedSAM,
        FedSpeed,
        FedYogi,
        Krum,
        LocalOpt,
        Median,
        MoFedSAM,
        Momentum,
        MomentumSCAFFOLD,
        Prox,
        ServerOpt,
        TrimmedMean,
    )
    from undrift.report.history import History
    from undrift.runs.runner import Event, run
    from undrift.runs.trial import Trial
    from undrift.training.task import Task
    from undrift.training.work import Local

_LATER = {
    "undrift.algorithms": (
        *("MFL", "SCAFFOLD", "AdaBest", "FedAvg", "FedDyn", "FedGBO", "FedNova", "FedProx"),
        *("Centralised", "LocalOnly", "Mime", "MimeLite", "SCAFFOLDm"),
        *("FedAU", "FedDC", "FedVARP", "MIFA", "Scaffnew"),
    ),
    "undrift.training.work": ("Local",),
    "undrift.checks.laws": ("LAWS", "LawBroken", "check_algorithm"),
    "undrift.config": ("UndriftError",),
    "undrift.core": ("Algorithm", "Client", "Part", "RoundFacts", "Struct"),
    "undrift.data": ("FederatedData",),
    "undrift.data.partition.partitions": (
        *("IID", "Dirichlet", "DirichletTotal", "Natural", "Pachinko", "Saved", "Shards"),
        "federate",
    ),
    "undrift.data.sources": ("Digits", "Synthetic"),
    "undrift.experiment.experiment": ("Experiment",),
    "undrift.report.history": ("History",),
    "undrift.experiment.registry": ("algorithm",),
    "undrift.measure.stopping": ("Budget", "Patience", "Target"),
    "undrift.optim": ("SGD", "Adagrad", "Adam", "HeavyBall", "Plateau", "RMSProp", "SGDm", "Yogi"),
    "undrift.parts": (
        *("IDA", "Clip", "Extrapolate", "FedAdagrad", "FedAdam", "FedAvgM", "FedGLAD"),
        *("ASAM", "SAM", "DeltaSGD", "FedExP", "FedHyper", "FedInit", "Momentum"),
        *("FedACG", "FedASAM", "FedCM", "FedGamma", "FedSAM", "FedSpeed", "MoFedSAM"),
        "MomentumSCAFFOLD",
        *(
            "FedRMSProp",
            "FedYogi",
            "Krum",
            "LocalOpt",
            "Median",
            "Prox",
            "ServerOpt",
            "TrimmedMean",
        ),
    ),
    "undrift.checks.conform": ("NonConforming", "conform"),
    "undrift.checks.plan": ("Plan",),
    "undrift.checks.replay": ("Snapshot", "replay"),
    "undrift.federation.rounds": ("Round", "State", "rounds"),
    "undrift.runs.runner": ("Event", "run"),
    "undrift.runs.trial": ("Trial",),
    "undrift.federation.sampling": (
        "MD",
        "AdaFL",
        "Bernoulli",
        "Explicit",
        "OneClass",
        "RoundRobin",
        "Uniform",
    ),
    "undrift.training.task": ("Task",),
}
"""what is imported when it is first asked for, so that the command line answers at once"""


def __getattr__(name: str) -> Any:
    for module, names in _LATER.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'undrift' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "ASAM",
    "IDA",
    "IID",
    "LAWS",
    "MD",
    "MFL",
    "MIFA",
    "SAM",
    "SCAFFOLD",
    "SGD",
    "AdaBest",
    "AdaFL",
    "Adagrad",
    "Adam",
    "Algorithm",
    "Bernoulli",
    "Budget",
    "Centralised",
    "Client",
    "Clip",
    "DeltaSGD",
    "Digits",
    "Dirichlet",
    "DirichletTotal",
    "Event",
    "Experiment",
    "Explicit",
    "Extrapolate",
    "FedACG",
    "FedASAM",
    "FedAU",
    "FedAdagrad",
    "FedAdam",
    "FedAvg",
    "FedAvgM",
    "FedCM",
    "FedDC",
    "FedDyn",
    "FedExP",
    "FedGBO",
    "FedGLAD",
    "FedGamma",
    "FedHyper",
    "FedInit",
    "FedNova",
    "FedProx",
    "FedRMSProp",
    "FedSAM",
    "FedSpeed",
    "FedVARP",
    "FedYogi",
    "FederatedData",
    "HeavyBall",
    "History",
    "Krum",
    "LawBroken",
    "Local",
    "LocalOnly",
    "LocalOpt",
    "Median",
    "Mime",
    "MimeLite",
    "MoFedSAM",
    "Momentum",
    "MomentumSCAFFOLD",
    "Natural",
    "NonConforming",
    "OneClass",
    "Pachinko",
    "Part",
    "Patience",
    "Plan",
    "Plateau",
    "Prox",
    "RMSProp",
    "Round",
    "RoundFacts",
    "RoundRobin",
    "SCAFFOLDm",
    "SGDm",
    "Saved",
    "Scaffnew",
    "ServerOpt",
    "Shards",
    "Snapshot",
    "State",
    "Struct",
    "Synthetic",
    "Target",
    "Task",
    "Trial",
    "TrimmedMean",
    "UndriftError",
    "Uniform",
    "Yogi",
    "algorithm",
    "check_algorithm",
    "conform",
    "federate",
    "replay",
    "rounds",
    "run",
]
