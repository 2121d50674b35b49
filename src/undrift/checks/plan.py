"""Plans: what happens in each round of a replay."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from undrift.config import UndriftError, shortened


@dataclass(frozen=True)
class Plan:
    """What happens in one round.

    delivers    clients whose updates arrive; may be empty
    registered  clients that exist in this round; all of them if not given
    batches     client → a list of sample positions for each local step; clients that are left out
                use all their samples in every step
    weights     delivering client → its weight in the mean, before normalisation, in place of the
                algorithm's (MD sampling: how often the client was drawn)
    """

    delivers: Sequence[int]
    registered: Sequence[int] | None = None
    batches: Mapping[int, Sequence[Sequence[int]]] | None = None
    weights: Mapping[int, float] | None = None

    def population(self, clients: int) -> Sequence[int]:
        """The clients that exist, given how many are known in all."""
        return range(clients) if self.registered is None else self.registered


def check_plan(t: int, plan: Plan, sizes: np.ndarray) -> None:
    """Raise if a plan is inconsistent."""
    if not isinstance(plan, Plan):
        raise UndriftError(f"round {t}: {shortened(plan)} is no plan; give Plan(delivers=[...])")
    clients = len(sizes)
    registered = plan.population(clients)
    for name, ids in (("delivers", plan.delivers), ("registered", registered)):
        if not _whole(ids):
            raise UndriftError(f"round {t}: {name}={shortened(ids)}: give a list of clients' ids")
    batches = plan.batches or {}
    for i in [*registered, *plan.delivers, *batches]:
        if i not in range(clients):
            raise UndriftError(f"round {t}: there is no client {i}; ids are 0..{clients - 1}")
    if missing := sorted(set(plan.delivers) - set(registered)):
        raise UndriftError(f"round {t}: clients {missing} deliver but are not registered")
    if len(set(plan.delivers)) < len(plan.delivers):
        raise UndriftError(f"round {t}: a client delivers twice in {list(plan.delivers)}")
    if idle := sorted(set(batches) - set(plan.delivers)):
        raise UndriftError(f"round {t}: clients {idle} have batches but do not deliver")
    if (weights := plan.weights) is not None:
        if set(weights) != set(plan.delivers):
            raise UndriftError(
                f"round {t}: weights are given for clients {sorted(weights)}, but "
                f"{sorted(plan.delivers)} deliver; give one for each of these"
            )
        if not all(map(_weight, weights.values())) or (weights and not sum(weights.values())):
            raise UndriftError(
                f"round {t}: weights={dict(weights)}: must be numbers >= 0, not all of them 0"
            )
    for i, steps in batches.items():
        if not isinstance(steps, Iterable) or not all(map(_whole, steps)):
            raise UndriftError(
                f"round {t}, client {i}: batches={shortened(steps)}: give a list of positions of "
                "samples for each local step, such as [[0, 1], [2, 3]]"
            )
        positions = [position for batch in steps for position in batch]
        if not positions or min(map(len, steps)) == 0:
            raise UndriftError(f"round {t}, client {i}: a local step needs at least one sample")
        if min(positions) < 0 or max(positions) >= sizes[i]:
            raise UndriftError(
                f"round {t}, client {i}: positions of samples are 0..{sizes[i] - 1}, "
                f"found {min(positions)}..{max(positions)}"
            )


def _whole(values: Any) -> bool:
    """Whether these are whole numbers, if any."""
    if not isinstance(values, Iterable):
        return False
    return all(isinstance(one, int | np.integer) for one in values)


def _weight(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and bool(0 <= value < math.inf)


def local_steps(steps: int | Sequence[int] | Mapping[int, int], clients: int) -> list[int]:
    """The number of local steps of each client without batches."""
    if isinstance(steps, Mapping):
        if unknown := sorted(set(steps) - set(range(clients))):
            raise UndriftError(f"steps: there are no clients {unknown}; ids are 0..{clients - 1}")
        each = [steps.get(i, 1) for i in range(clients)]
    elif isinstance(steps, Sequence | np.ndarray):
        each = list(steps)
        if len(each) != clients:
            raise UndriftError(f"steps={each}: give {clients} numbers, one for each client")
    else:
        each = [steps] * clients
    for i, count in enumerate(each):
        if not isinstance(count, int | np.integer) or count < 1:
            raise UndriftError(f"steps={count!r} for client {i}: must be a whole number >= 1")
    return [int(count) for count in each]
