"""The roster: the clients of a deployment, which nodes they are, and what is known of them."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path

import numpy as np

from undrift.config import UndriftError
from undrift.data.federated import FederatedData
from undrift.runs.layout import RunFile
from undrift.system.files import replace_file


@dataclass
class Entry:
    """A client of a deployment.

    name      of its node's key
    samples   that it trains on, as it told when it first joined; its weight in means. None: it
              has not joined yet
    tests     samples that it is measured on
    accepted  last round whose upload was accepted, in the trial that runs
    seen      last round in which it answered
    absent    why it delivered nothing in the last round in which it was asked
    lost      round of the newest memory that it has, if it lacks the one that counts
    algorithm, seed   of the trial in which it was last asked, whose memory is lost
    """

    name: str = ""
    samples: int | None = None
    tests: int = 0
    accepted: int = 0
    seen: int = 0
    absent: str | None = None
    lost: int | None = None
    algorithm: str = ""
    seed: int = 0


@dataclass
class Roster:
    """All clients of a deployment, in the order of their numbers.

    run   names the deployment's memories on nodes; stays the same if the run is extended
    home  the deployment's folder, if `undrift deploy serve` runs it
    """

    clients: list[Entry]
    run: str = field(default_factory=lambda: secrets.token_hex(6))
    home: str = ""

    @classmethod
    def read(cls, run: Path) -> Roster | None:
        """The roster of a run directory; None if it has none."""
        path = run / RunFile.DEPLOYMENT
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            known = {one.name for one in fields(Entry)}
            entries = [
                Entry(**{k: v for k, v in one.items() if k in known}) for one in found["clients"]
            ]
            return cls(entries, str(found["run"]), str(found["home"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise UndriftError(
                f"{path} cannot be read ({error}); restore it from a backup"
            ) from None

    def write(self, run: Path) -> None:
        """Write the roster to a run directory."""
        content = json.dumps(asdict(self), indent=1) + "\n"
        replace_file(run / RunFile.DEPLOYMENT, content.encode())

    @property
    def unknown(self) -> list[int]:
        """The clients that have not joined yet."""
        return [i for i, one in enumerate(self.clients) if one.samples is None]

    def told(self, client: int) -> str:
        """A client, for people."""
        name = self.clients[client].name
        return f"client {client} ({name})" if name else f"client {client}"

    def data(
        self,
        server: FederatedData,
        available: Callable[[int], Sequence[int]],
        *,
        measured: bool,
    ) -> RosterData:
        """The federation of these clients, with what the server itself has to test on.

        measured  whether nodes are asked how good the model is on their own samples
        """
        sizes = [one.samples or 0 for one in self.clients]
        names = tuple(one.name for one in self.clients)
        tests = tuple(np.broadcast_to(0, one.tests) for one in self.clients) if measured else ()
        return RosterData(
            inputs=server.inputs,
            targets=server.targets,
            order=np.empty(0, dtype=np.int64),
            offsets=np.cumsum([0, *sizes]),
            test_inputs=server.test_inputs,
            test_targets=server.test_targets,
            transform=server.transform,
            held_out=server.held_out,
            class_names=server.class_names,
            client_names=names if all(names) else None,
            own_tests=tests,
            available=available,
        )


@dataclass(frozen=True, eq=False, repr=False)
class RosterData(FederatedData):
    """Clients whose samples are elsewhere: their numbers are known, and nothing else."""

    def rows(self, i: int) -> np.ndarray:
        raise UndriftError(f"the samples of client {i} are on its node")

    def own_rows(self, i: int) -> np.ndarray:
        return self.own_tests[i]

    @cached_property
    def label_counts(self) -> np.ndarray:
        """Nobody tells which labels a client has."""
        classes = int(self.targets.max()) + 1 if len(self.targets) else 0
        return np.zeros((len(self), classes), dtype=np.int64)


def refuse_claims(claims: Mapping[int, Sequence[int]], clients: int) -> dict[int, str]:
    """Node → why it cannot take part, given which nodes claim to be which client."""
    refused: dict[int, str] = {}
    for client, nodes in claims.items():
        if not 0 <= client < clients:
            why = f"it says it is client {client}, and there are {clients}: 0..{clients - 1}"
            refused |= dict.fromkeys(nodes, why)
        for node in nodes[1:]:
            refused[node] = f"it says it is client {client}, and so does node {nodes[0]}"
    return refused
