"""The algorithms, one file each."""

from undrift.algorithms.adabest import AdaBest
from undrift.algorithms.centralised import Centralised
from undrift.algorithms.fedavg import FedAvg
from undrift.algorithms.feddyn import FedDyn
from undrift.algorithms.fedgbo import FedGBO
from undrift.algorithms.fednova import FedNova
from undrift.algorithms.fedprox import FedProx
from undrift.algorithms.local_only import LocalOnly
from undrift.algorithms.mfl import MFL
from undrift.algorithms.mime import Mime, MimeLite
from undrift.algorithms.scaffold import SCAFFOLD
from undrift.algorithms.scaffoldm import SCAFFOLDm

__all__ = [
    "MFL",
    "SCAFFOLD",
    "AdaBest",
    "Centralised",
    "FedAvg",
    "FedDyn",
    "FedGBO",
    "FedNova",
    "FedProx",
    "LocalOnly",
    "Mime",
    "MimeLite",
    "SCAFFOLDm",
]
