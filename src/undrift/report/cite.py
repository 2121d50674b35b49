"""What to cite: the works behind algorithms, parts, samplers, partitions, models and data sets."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.resources import files

WORKS: dict[str, tuple[str, ...]] = {
    # algorithms
    "FedAvg": ("mcmahan2017",),
    "FedProx": ("li2020",),
    "SCAFFOLD": ("karimireddy2020",),
    "SCAFFOLDm": ("karimireddy2020", "varno2022"),
    "FedDyn": ("acar2021",),
    "AdaBest": ("varno2022",),
    "FedNova": ("wang2020",),
    "FedGBO": ("mills2022",),
    "MFL": ("liu2020",),
    "Mime": ("karimireddy2021",),
    "MimeLite": ("karimireddy2021",),
    "Centralised": ("mcmahan2017",),
    "LocalOnly": ("li2021",),
    "FedDC": ("gao2022",),
    "FedVARP": ("jhunjhunwala2022",),
    "MIFA": ("gu2021",),
    "FedAU": ("wang2024",),
    "Scaffnew": ("mishchenko2022",),
    # parts
    "FedGLAD": ("yang2023",),
    "ServerOpt": ("reddi2021", "hsu2019"),
    "Extrapolate": ("varno2022", "kim2024"),
    "Momentum": ("xu2021", "cheng2024"),
    "SAM": ("qu2022", "foret2021"),
    "ASAM": ("caldarola2022", "kwon2021"),
    "FedExP": ("jhunjhunwala2023",),
    "FedHyper": ("wangz2024",),
    "FedInit": ("sun2023",),
    "DeltaSGD": ("kimj2024",),
    "IDA": ("yeganeh2020",),
    "Clip": ("pascanu2013",),
    "LocalOpt": ("yang2023",),
    "Prox": ("li2020",),
    "Krum": ("blanchard2017",),
    "Median": ("yin2018",),
    "TrimmedMean": ("yin2018",),
    # samplers and partitions
    "MD": ("fraboni2021",),
    "AdaFL": ("chen2021",),
    "OneClass": ("yang2023",),
    "Shards": ("mcmahan2017",),
    "Dirichlet": ("acar2021",),
    "DirichletTotal": ("lin2022",),
    "Pachinko": ("reddi2021",),
    # models
    "ResNet56": ("he2016",),
    "DistilBERT": ("sanh2019",),
    # data sets
    "Digits": ("alpaydin1998",),
    "Synthetic": ("li2020",),
    "MNIST": ("lecun1998",),
    "FashionMNIST": ("xiao2017",),
    "EMNIST": ("cohen2017",),
    "CIFAR10": ("krizhevsky2009",),
    "CIFAR100": ("krizhevsky2009",),
    "FEMNIST": ("caldas2018",),
    "Shakespeare": ("mcmahan2017", "caldas2018"),
    "TinyShakespeare": ("karpathy2015",),
    "Sent140": ("go2009", "caldas2018"),
    "Newsgroups20": ("lang1995",),
    "AGNews": ("zhang2015",),
    "StackOverflow": ("reddi2021",),
}
"""class name → keys of the works to cite"""


_BIBTEX = files("undrift.report").joinpath("references.bib").read_text(encoding="utf-8")
_OWN, *_OTHERS = _BIBTEX.strip().split("\n\n")
ENTRIES = {entry.split("{", 1)[1].split(",", 1)[0]: entry for entry in _OTHERS}
"""key → BibTeX entry"""


def cite(texts: Iterable[str], version: str) -> str:
    """BibTeX entries of undrift and of the works behind all names in the texts.

    A text is a setting of a run, such as "FedGLAD(AdaBest(mu=0.02))".
    """
    names = [name for text in texts for name in re.findall(r"(?<![:\w])\w+(?=\()", text)]
    keys = dict.fromkeys(key for name in names for key in WORKS.get(name, ()))
    own = _OWN.replace("VERSION", re.sub(r"[^\w.+-]", "", version))
    return "\n\n".join([own, *(ENTRIES[key] for key in keys)]) + "\n"
