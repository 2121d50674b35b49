"""undrift itself, through `replay`: each round replays all rounds so far."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import nn

import undrift

LIBRARY, PACKAGE = "undrift", "undrift"

TEXTS = {
    "fedavg": "ServerOpt(FedAvg(), SGD(lr={server_lr}))",
    "fedprox": "FedProx(mu={mu})",
    "scaffold": "ServerOpt(SCAFFOLD(), SGD(lr={server_lr}))",
    "scaffold(option=1)": "ServerOpt(SCAFFOLD(option=1), SGD(lr={server_lr}))",
    "feddyn": "FedDyn(mu={mu}, scale='none')",
    "adabest": "AdaBest(mu={mu}, beta={beta}, scale='none')",
    "fednova": "FedNova()",
    "fedavgm": "FedAvgM(beta={beta}, lr={server_lr})",
    "fedavgm(form='ema')": "FedAvgM(beta={beta}, lr={server_lr}, form='ema')",
    "fedadam": "FedAdam({server_lr}, beta1={beta1}, beta2={beta2}, eps={eps})",
    "fedyogi": "FedYogi({server_lr}, beta1={beta1}, beta2={beta2}, eps={eps})",
    "fedadagrad": "FedAdagrad({server_lr}, eps={eps})",
    "mimelite": "MimeLite(SGDm(beta={beta}))",
    "mime": "Mime(SGDm(beta={beta}))",
    "fedsam": "FedSAM({rho})",
    "fedexp": "FedExP(FedAvg(weights='uniform'), eps={eps})",
    "krum": "Krum(FedAvg(), f={f}, m={m})",
    "median": "Median(FedAvg())",
    "trimmedmean": "TrimmedMean(FedAvg(), fraction={fraction})",
}
STATES = {"c": "c", "h": "h", "m": "server_opt.m", "v": "server_opt.v", "zeta": "fedexp.factor"}
MEMORIES = {"c_i": "c", "a_i": "a", "h_i": "h"}


class Ours:
    """One method, as the text of an algorithm with places for the settings."""

    def __init__(self, text: str) -> None:
        self.text = text

    def start(self, x0: np.ndarray, clients: Any, **settings: float) -> None:
        self.algorithm = undrift.algorithm(self.text.format(**settings))
        self.model = nn.Linear(len(x0), 1, bias=False).double()
        self.x0, self.clients = x0, clients
        self.plans: list[undrift.Plan] = []
        self.lrs: list[float] = []

    def round(
        self, cohort: Any, batches: Any, lr: float, epochs: int, dropped: Any = ()
    ) -> np.ndarray:
        here = [i for i in cohort if i not in dropped]
        steps = {i: [rows.tolist() for rows in batches[i]] * epochs for i in here}
        self.plans.append(undrift.Plan(here, batches=steps))
        self.lrs.append(lr)
        first, second = [*self.lrs, lr][:2]
        *_, self.last = undrift.replay(
            self.algorithm,
            [(client.inputs, client.targets) for client in self.clients],
            self.plans,
            model=self.model,
            start=self.x0,
            lr=first,
            lr_decay=second / first,
        )
        return self.last.x

    def states(self) -> dict[str, Any]:
        own = {"m": "stats.m"} if "Mime" in self.text else {}
        server, clients = self.last.server, self.last.clients
        found = {k: server[v] for k, v in (STATES | own).items() if v in server}
        found |= {
            k: {i: me[v] for i, me in clients.items()}
            for k, v in MEMORIES.items()
            if v in clients[0]
        }
        return found


ADAPTERS = {method: lambda text=text: Ours(text) for method, text in TEXTS.items()}
