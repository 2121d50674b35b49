"""The algorithms, one file each."""

from undrift.algorithms.adabest import AdaBest
from undrift.algorithms.centralised import Centralised
from undrift.algorithms.fedau import FedAU
from undrift.algorithms.fedavg import FedAvg
from undrift.algorithms.feddc import FedDC
from undrift.algorithms.feddyn import FedDyn
from undrift.algorithms.fedgbo import FedGBO
from undrift.algorithms.fednova import FedNova
from undrift.algorithms.fedprox import FedProx
from undrift.algorithms.fedvarp import MIFA, FedVARP
from undrift.algorithms.local_only import LocalOnly
from undrift.algorithms.mfl import MFL
from undrift.algorithms.mime import Mime, MimeLite
from undrift.algorithms.scaffnew import Scaffnew
from undrift.algorithms.scaffold import SCAFFOLD
from undrift.algorithms.scaffoldm import SCAFFOLDm

__all__ = [
    "MFL",
    "MIFA",
    "SCAFFOLD",
    "AdaBest",
    "Centralised",
    "FedAU",
    "FedAvg",
    "FedDC",
    "FedDyn",
    "FedGBO",
    "FedNova",
    "FedProx",
    "FedVARP",
    "LocalOnly",
    "Mime",
    "MimeLite",
    "SCAFFOLDm",
    "Scaffnew",
]
