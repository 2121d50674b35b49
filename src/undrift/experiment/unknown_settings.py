"""What to write for settings under names that people know from other tools."""

from __future__ import annotations

import re
from collections.abc import Callable

CPU = "experiments run on the CPU; --workers says how many clients train side by side"

WRAPPED = "algorithms"

INSTEAD: dict[str, tuple[str, str, str]] = {
    "alpha": ("partition", "Dirichlet(clients=100, alpha={})", "0.1"),
    "clients": ("partition", "Dirichlet(clients={}, alpha=0.1)", "100"),
    "num_clients": ("partition", "Dirichlet(clients={}, alpha=0.1)", "100"),
    "clients_per_round": ("sampler", "Uniform({})", "5"),
    "cohort": ("sampler", "Uniform({})", "5"),
    "cohort_size": ("sampler", "Uniform({})", "5"),
    "participation": ("sampler", "Bernoulli({})", "0.1"),
    "dataset": ("data", "{}", "digits"),
    "num_rounds": ("rounds", "{}", "100"),
    "learning_rate": ("local.lr", "{}", "0.1"),
    "local_lr": ("local.lr", "{}", "0.1"),
    "client_lr": ("local.lr", "{}", "0.1"),
    "local_epochs": ("local.epochs", "{}", "5"),
    "num_epochs": ("local.epochs", "{}", "5"),
    "local_steps": ("local.steps", "{}", "10"),
    "momentum": (WRAPPED, "LocalOpt(fedavg, HeavyBall(beta={}))", "0.9"),
    "optimizer": (WRAPPED, "LocalOpt(fedavg, {})", "Adam()"),
    "optimiser": (WRAPPED, "LocalOpt(fedavg, {})", "Adam()"),
    "server_optimizer": (WRAPPED, "ServerOpt(fedavg, {})", "Adam(lr=0.01)"),
    "server_optimiser": (WRAPPED, "ServerOpt(fedavg, {})", "Adam(lr=0.01)"),
    "server_lr": (WRAPPED, "ServerOpt(fedavg, SGD(lr={}))", "0.5"),
    "server_momentum": (WRAPPED, "FedAvgM(beta={})", "0.9"),
}
"""name → the setting, what to write for a value, and such a value"""

Form = Callable[[str, str], str]
"""How a setting and its value are written in some place."""


def instead(name: str, value: str, form: Form) -> str | None:
    """What to write instead of an unknown setting; None if nothing is known of it."""
    name = name.replace("-", "_").lower()
    if name in ("device", "gpu", "cuda"):
        return CPU
    if name not in INSTEAD:
        return None
    setting, text, usual = INSTEAD[name]
    made = text.format(value if re.fullmatch(r"[\w.]+", value) else usual)
    if setting == WRAPPED:
        return f'wrap the algorithm: "{made}"'
    return f"write {form(setting, made)}"


def as_toml(setting: str, value: str) -> str:
    """A setting as in a file."""
    shown = f'"{value}"' if re.search("[A-Za-z]", value) else value
    return f"{setting} = {shown}"
