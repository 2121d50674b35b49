"""The ServerApp of a deployment: an experiment in a run directory, whose clients are nodes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undrift.config import Config, UndriftError, own, real, whole
from undrift.data.federated import FederatedData
from undrift.deploy.folder import beside, messages
from undrift.deploy.node import Ask
from undrift.deploy.nodes import Exchange, Nodes
from undrift.deploy.roster import Entry, Roster
from undrift.experiment.experiment import Experiment
from undrift.runs.layout import RunFile
from undrift.runs.runner import Event, run
from undrift.system.extras import require

if TYPE_CHECKING:
    from flwr.app import Context
    from flwr.serverapp import Grid, ServerApp


@dataclass(frozen=True)
class Deployment(Config):
    """Settings of a deployment.

    deadline  seconds that a round waits for answers
    quorum    a round with fewer deliveries is void: nothing changes
    """

    deadline: float = real(600.0, gt=0)
    quorum: int = whole(1, ge=1)


def deploy(
    grid: Grid,
    experiment: Experiment,
    folder: Path,
    names: Sequence[str],
    *,
    deployment: Deployment = Deployment(),
    nodes: Mapping[int, int] | None = None,
    home: str = "",
    note: Callable[[str], None] = lambda text: None,
    poll: float = 1.0,
) -> Iterator[Event]:
    """Run an experiment on nodes, in a run directory, or resume it there; yields events.

    names  of the clients, in the order of their numbers
    nodes  Flower's number of a node → its client, where keys tell; other nodes tell it themselves
    home   the deployment's folder
    """
    for made in experiment.algorithms:
        if made.regime != "federated":
            raise UndriftError(f"{made!r} has no clients of a server; it cannot be deployed")
    if experiment.all_updates:
        raise UndriftError("all_updates=True: nodes train only when they are drawn; leave it out")
    if deployment.quorum > len(names):
        raise UndriftError(
            f"quorum={deployment.quorum}: there are {len(names)} nodes; use at most that many"
        )
    roster = Roster.read(folder) or Roster([Entry(name) for name in names])
    if [one.name for one in roster.clients] != list(names):
        began = ", ".join(one.name for one in roster.clients)
        raise UndriftError(
            f"{folder} began with the nodes {began}, and now there are {', '.join(names)}; "
            "give it the same nodes, or choose another folder"
        )
    roster.home = home
    begun = False

    def changed() -> None:
        if begun:
            roster.write(folder)

    def record(exchange: Exchange) -> None:
        with (folder / RunFile.EXCHANGES).open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(exchange)) + "\n")

    blueprint, _ = experiment.plan(experiment.seeds[0])
    task = Ask.about(
        blueprint, len(blueprint.build(experiment.seeds[0]).x0), experiment.client_test
    )
    engine = Nodes(
        grid,
        roster,
        deployment.deadline,
        deployment.quorum,
        note,
        task,
        nodes=dict(nodes or {}),
        poll=poll,
        changed=changed,
        record=record,
    )
    engine.meet_all()
    measured = experiment.fairness or experiment.client_test > 0 or experiment.personal_steps > 0

    def located(data: FederatedData) -> FederatedData:
        return roster.data(data, engine.available, measured=measured)

    for event in run(experiment, folder, engine=engine, save_every=0, located=located):
        if not begun:  # the run directory must not have other files before it is one
            begun = True
            changed()
        yield event


def server_app(experiment: Path) -> ServerApp:
    """The ServerApp that runs the experiment in a TOML file.

    Settings come from the run's configuration: `out`, the run directory; `clients`, the names of
    the clients; `nodes`, which nodes they are; `deadline`, `quorum`.
    """
    require("flwr", "flower", "a deployment")
    from flwr.serverapp import ServerApp

    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        config: Mapping[str, Any] = context.run_config
        folder = Path(str(config["out"])).expanduser()
        log = messages(folder)
        log.parent.mkdir(parents=True, exist_ok=True)

        def note(text: str) -> None:
            with log.open("a", encoding="utf-8") as file:
                file.write(f"{text}\n")

        with own.finding(partial(beside, experiment.parent)):
            try:
                known = json.loads(str(config["nodes"]) or "{}")
                happening = deploy(
                    grid,
                    Experiment.from_toml(experiment),
                    folder,
                    client_names(str(config["clients"])),
                    deployment=Deployment(float(config["deadline"]), int(config["quorum"])),
                    nodes={int(node): int(client) for node, client in known.items()},
                    home=str(config["home"]),
                    note=note,
                )
                for event in happening:
                    if event.kind == "row" and event.row:
                        note(f"{event.label}, round {event.round}: {_told(event.row)}")
                    elif event.kind in ("note", "end") and event.note:
                        note(event.note)
            except UndriftError as error:
                note(f"stopped: {error}")
                raise
        note("done")

    return app


def client_names(text: str) -> list[str]:
    """The names of clients from the setting `clients`: their number, or a JSON list of names."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if type(found) is int and found > 0:
        return [f"node-{i}" for i in range(found)]
    if isinstance(found, list) and found and all(isinstance(name, str) for name in found):
        return found
    raise UndriftError(
        f'clients={text!r}: give the number of nodes, as in clients="3", or a JSON list of names'
    )


def _told(row: Mapping[str, Any]) -> str:
    accuracy = row.get("accuracy")
    shown = f", accuracy {accuracy:.1%}" if isinstance(accuracy, float) else ""
    return f"{row['delivered']} delivered, loss {row['loss']:.4g}{shown}"
