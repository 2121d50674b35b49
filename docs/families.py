"""The algorithms by family: the table of README, and that of docs/reference/family.md.

python -m docs.families    # writes README's
"""

from __future__ import annotations

import re
from functools import cache
from inspect import getdoc
from pathlib import Path

import undrift
from undrift.cli.costs_shown import Costs
from undrift.experiment.registry import GROUPS, algorithm

README = Path(__file__).parent.parent / "README.md"

FAMILIES = {
    "what clients remember": "AdaBest SCAFFOLD SCAFFOLDm Scaffnew FedDyn FedDC FedSpeed FedGamma "
    "FedVARP MIFA FedInit",
    "what the server tells them": "FedGBO Mime MimeLite MFL Momentum FedCM MoFedSAM "
    "MomentumSCAFFOLD",
    "other local steps": "FedProx Prox Clip LocalOpt SAM FedSAM ASAM FedASAM DeltaSGD",
    "another server step": "FedGLAD FedExP FedHyper Extrapolate FedACG ServerOpt FedAvgM "
    "FedAdagrad FedAdam FedRMSProp FedYogi",
    "who counts for how much": "FedAvg FedNova FedAU IDA Krum Median TrimmedMean",
    "baselines": "Centralised LocalOnly",
}
"""against drift by → names"""

EVERYBODY = "if all take part"
SAME_STEPS = "with equal K"
IDENTITIES = {
    "AdaBest": (
        "AdaBest(beta=1.0, prox=1.0, scale='oracle')",
        "FedDyn()",
        EVERYBODY,
    ),
    "SCAFFOLDm": ("SCAFFOLDm()", "SCAFFOLD()", SAME_STEPS),
    "Scaffnew": ("Scaffnew()", "SCAFFOLD()", f"{EVERYBODY} {SAME_STEPS}"),
    "FedDC": ("FedDC(control=False)", "FedDyn(mu=0.01)", ""),
    "FedSpeed": ("FedSpeed(rho=0.0)", "FedDyn(mu=0.1, scale='none')", ""),
    "FedVARP": ("FedVARP()", "FedAvg(weights='uniform')", EVERYBODY),
    "MIFA": ("MIFA()", "FedAvg(weights='uniform')", EVERYBODY),
    "FedCM": ("FedCM()", "FedGBO(SGDm())", ""),
    "MoFedSAM": (
        "MoFedSAM()",
        "Momentum(FedSAM(weights='uniform'), alpha=0.1)",
        "",
    ),
    "Prox": ("Prox(FedAvg())", "FedProx()", ""),
    "Extrapolate": (
        "Extrapolate(FedAvg(weights='uniform'), beta=0.96)",
        "AdaBest(mu=0.0)",
        "",
    ),
    "FedACG": ("FedACG()", "Prox(AdaBest(mu=0.0, beta=0.85), mu=0.001)", ""),
    "FedNova": ("FedNova()", "FedAvg()", SAME_STEPS),
    "FedAU": ("FedAU()", "FedAvg(weights='uniform')", EVERYBODY),
}
"""name → a setting of it, the algorithm that it is then, and when; each is a law"""


def text(name: str) -> str:
    return " ".join((getdoc(getattr(undrift, name)) or "").split())


def links(name: str) -> list[str]:
    return re.findall(r"https://[^\s;,)]*\w", text(name))


@cache
def papers() -> dict[str, str]:
    """Address → first author, venue and year."""
    found = {}
    for name in names():
        work = re.search(r"Reference: (\w+) et al\.[^;]*?,([^,;]*?)(\d{4}),", text(name))
        if work:
            found.setdefault(links(name)[0], f"{work[1]} et al.,{work[2]}{work[3]}")
    return found


def names() -> list[str]:
    return " ".join(FAMILIES.values()).split()


def paper(name: str) -> str:
    link = links(name)[0]
    return f"[{papers().get(link, 'arXiv ' + link.rpartition('/')[2])}]({link})"


def neutral(name: str) -> str:
    """The setting in which it is FedAvg, or the algorithm inside."""
    found = re.search(r"Neutral: (.*?)\.(?: |$)", text(name))
    return found[1] if found else ""


def identity(name: str) -> str:
    """What it is made of, and what else it is."""
    made = repr(algorithm(name))
    told = [f"`{made}`"] if name in GROUPS["compositions"] else []
    if name in IDENTITIES:
        this, other, when = IDENTITIES[name]
        itself = repr(algorithm(this)) == made
        told.append(f"{'' if itself else f'`{this}`'} = `{other}` {when}".strip())
    return "; ".join(told)


def row(name: str) -> list[str]:
    """Name, paper, costs, neutral setting and identity."""
    costs = Costs.of(algorithm(name), None)
    gradients = str(costs.operations.client["Kg"])
    setting = f"`{neutral(name)}`" if neutral(name) else "–"
    return [
        *(f"`{name}`", paper(name), *costs.multiples().values(), gradients),
        *(setting, identity(name) or "–"),
    ]


def families() -> dict[str, list[list[str]]]:
    return {family: [row(name) for name in some.split()] for family, some in FAMILIES.items()}


def table() -> str:
    """README's, with a line for each name."""
    lines = [
        "| against drift by | paper | down / up / client keeps | neutral | is |",
        "| --- | --- | --- | --- | --- |",
    ]
    for family, rows in families().items():
        lines.append(f"| **{family}** | | | | |")
        for name, paper, down, up, keeps, _, gradients, setting, told in rows:
            twice = ", 2 gradients" if gradients == "2" else ""
            costs = f"{down} / {up} / {keeps}{twice}"
            lines.append(f"| {name} | {paper} | {costs} | {setting} | {told} |")
    return "\n".join(lines)


if __name__ == "__main__":
    from benchmarks.tables import between

    made = between(README.read_text(encoding="utf-8"), "families", table())
    README.write_text(made, encoding="utf-8")
