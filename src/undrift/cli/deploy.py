"""`undrift deploy`: an experiment on real devices, through Flower."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from undrift.cli.whole import Whole
from undrift.config import UndriftError

deploy_app = App(name="deploy", help="Train on real devices, through Flower.")

Json = Annotated[bool, Parameter("--json")]
Names = Annotated[tuple[str, ...], Parameter(consume_multiple=True, negative="")]


@deploy_app.command
def init(folder: Path, /, *, experiment: Path | None = None) -> None:
    """Write a deployment to start from: an experiment, and what its server and nodes run.

    Example: undrift deploy init hospital

    The folder is a Flower app, with one function for you to write: `load` in client.py, which
    gives a device's own samples. Files that exist are never overwritten.

    Parameters
    ----------
    folder
        Folder to make; its name becomes that of the app.
    experiment
        Experiment to deploy, a TOML file; a small one on handwritten digits if not given.
    """
    from undrift.deploy.folder import DeploymentFolder

    made = DeploymentFolder.make(folder, experiment)
    say(f"wrote {folder}; next:")
    say(f"  undrift run {folder / made.experiment.name}  # simulate it first")
    say(f"  edit {folder}/client.py  # load() gives a device's samples")
    say(f"  undrift deploy keys {folder} --nodes 3 --host NAME")
    say(f"  undrift deploy serve {folder}")


@deploy_app.command(name="keys")
def keys_(folder: Path, /, *, nodes: Whole = 0, host: Names = (), name: Names = ()) -> None:
    """Make the keys of a deployment: an authority, the server's certificate, a key for each node.

    Example: undrift deploy keys hospital --nodes 3 --host fl.example.org

    Give each node its own NODE.key, and all of them ca.crt. Nothing else in the folder of keys may
    leave the server. To add nodes later is possible until the deployment has begun.

    Parameters
    ----------
    folder
        Folder of the deployment.
    nodes
        How many keys to make, called node-1, node-2 ...
    host
        Names or addresses under which nodes reach the server, beside 127.0.0.1; they are in its
        certificate.
    name
        Names of further nodes.
    """
    from undrift.deploy import keys
    from undrift.deploy.folder import DeploymentFolder

    place = DeploymentFolder.open(folder).keys
    keys.make_authority(place)
    if host or not keys.certificate(place, keys.SERVER).exists():
        keys.make_server(place, host)
    have = set(keys.nodes(place))
    fresh = (f"node-{i}" for i in range(1, len(have) + nodes + 1))
    wanted = [one for one in fresh if one not in have][:nodes]
    for one in (*wanted, *name):
        keys.make_node(place, one)
    for one in keys.nodes(place):
        say(f"{one}: {keys.private_key(place, one)}")
    say(f"every node needs its key and {keys.certificate(place)}, and nothing else")


@deploy_app.command
def serve(
    folder: Path,
    /,
    *,
    host: str | None = None,
    port: Whole | None = None,
    json_: Json = False,
) -> None:
    """Run a deployment's experiment with the nodes that join. Ctrl-C stops it; again goes on.

    Example: undrift deploy serve hospital --host 0.0.0.0

    It begins when every node has joined once. Afterwards a round asks nodes that are connected, and
    waits for them until the deadline (pyproject.toml). The folder FOLDER/run is an ordinary run
    directory: watch it with `undrift watch FOLDER`.

    Nodes reach a gate, which lets through what nodes need and nothing else. Flower's SuperLink
    itself listens on 127.0.0.1: whoever reaches it can run code on every node.

    Parameters
    ----------
    folder
        Folder of the deployment.
    host
        Address that the gate listens on; 0.0.0.0 for all. By default that of the last time, or else
        127.0.0.1, which only this machine reaches.
    port
        Port that the gate listens on; by default that of the last time, or else 9092.
    json_
        Print one JSON object a line.
    """
    from undrift.cli.running import resumable
    from undrift.deploy.folder import DeploymentFolder
    from undrift.deploy.serving import serve as go
    from undrift.report import read_run, require_extras, write_report
    from undrift.runs.layout import RunFile

    require_extras()
    place = DeploymentFolder.open(folder)
    with resumable(place.run, RunFile.EXPERIMENT):
        for text in go(place, *place.address(host, port)):
            say(json.dumps({"event": "note", "note": text}) if json_ else text)
    page = write_report(read_run(place.run))
    say(json.dumps({"event": "report", "page": str(page)}) if json_ else f"report: {page}")


def go_on(run: Path) -> None:
    """Serve the deployment that a run directory belongs to."""
    from undrift.deploy.roster import Roster

    roster = Roster.read(run)
    if roster is None or not roster.home:
        raise UndriftError(f"{run} was not begun by `undrift deploy serve`; `flwr run` it again")
    serve(Path(roster.home))


@deploy_app.command
def join(
    server: str,
    /,
    *,
    key: Path,
    ca: Path,
    state: Path,
    data: Path | None = None,
    set_: Annotated[Names, Parameter("--set")] = (),
) -> None:
    """Take part in a deployment with this device's data. Ctrl-C leaves it; again goes on.

    Example: undrift deploy join fl.example.org:9092 --key node-1.key --ca ca.crt --state state \\
    --data samples.npz

    Joining means that you trust the operator of the server: this device runs the code that the
    server ships. Run it as a user of its own, or in a container that sees nothing but its data.

    Parameters
    ----------
    server
        Address of the server, HOST:PORT.
    key
        This node's private key.
    ca
        Certificate of the deployment's authority.
    state
        Folder for what this client remembers between rounds. It must survive restarts: a client
        whose memory is lost is left out until the operator forgives it.
    data
        Told to `load` as config["data"].
    set_
        Further settings for `load`, NAME=VALUE.
    """
    from undrift.deploy.serving import join as go

    config: dict[str, Any] = {} if data is None else {"data": str(data.resolve())}
    for one in set_:
        name, equals, value = one.partition("=")
        if not equals:
            raise UndriftError(f"--set {one}: write NAME=VALUE")
        config[name] = value
    try:
        for text in go(server, key, ca, state, config):
            say(text)
    except KeyboardInterrupt:
        say("left; join again with the same --state to go on")
        sys.exit(130)


@deploy_app.command
def status(folder: Path, /, *, json_: Json = False) -> None:
    """Show the clients of a deployment: their samples, last accepted round, why they are absent.

    Parameters
    ----------
    folder
        Folder of the deployment.
    json_
        Print JSON.
    """
    from undrift.deploy.folder import DeploymentFolder
    from undrift.deploy.status import status_of

    found = status_of(DeploymentFolder.open(folder))
    if json_:
        say(json.dumps(found))
        return
    console = Console()
    console.print(Text(found["state"]), soft_wrap=True)
    if not found["clients"]:
        return
    table = Table(
        "client",
        "node",
        "samples",
        "answered in",
        "remembers",
        "absent because",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    for client, one in enumerate(found["clients"]):
        shown = (one["samples"], one["seen"] or None, one["accepted"] or None, one["absent"])
        table.add_row(
            str(client), one["name"], *(Text("–" if v is None else str(v)) for v in shown)
        )
    console.print(table)


@deploy_app.command
def forgive(folder: Path, client: str, /) -> None:
    """Let a client go on whose memory is lost, from the newest one that it has.

    Example: undrift deploy forgive hospital node-2

    A client that lost its disk is left out, since the server's state contains what it remembered.
    Forgiven, it goes on from an older memory, or from none, which biases SCAFFOLD and FedDyn a
    little for good. This concerns the algorithm and seed that ran when the loss was noticed; if
    the memory of another is lost too, the client is named again when that goes on. Stop the server
    first.

    Parameters
    ----------
    folder
        Folder of the deployment.
    client
        Name of its node, or its number.
    """
    from undrift.deploy.folder import DeploymentFolder
    from undrift.deploy.status import forgive as go

    for text in go(DeploymentFolder.open(folder), client):
        say(text)


@deploy_app.command
def check(
    *algorithms: str, rounds: Whole = 2, deadline: float = 60.0, keep: Path | None = None
) -> None:
    """Try a whole deployment on this machine: server, gate, TLS, keys, three nodes, one killed.

    Example: undrift deploy check adabest scaffold mime

    All of it listens on 127.0.0.1 alone. In the end the results are compared, bit for bit, with a
    simulation in which the same clients delivered in the same rounds. About three minutes.

    Parameters
    ----------
    algorithms
        What to try; AdaBest, SCAFFOLD and Mime if not given.
    rounds
        Rounds of each.
    deadline
        Seconds that a round waits for answers.
    keep
        Folder to try it in, which then stays; a temporary one if not given.
    """
    from undrift.deploy.check import check as go

    differing = 0
    for text, right in go(algorithms, rounds, deadline, keep):
        say(text)
        differing += not right
    if differing:
        raise UndriftError("the deployment is not what it should be; the lines above say where")


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
