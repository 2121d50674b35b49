"""The engine of nodes: what it refuses and names, who is asked, lost memories, own samples."""

import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.deploy.test_machine import FAR, NAMES, experiment
from undrift.config import UndriftError
from undrift.core import Struct
from undrift.data.federated import FederatedData
from undrift.deploy.folder import DeploymentFolder
from undrift.deploy.node import Ask
from undrift.deploy.reference import differences
from undrift.deploy.roster import Roster
from undrift.deploy.server import Deployment, client_names, deploy
from undrift.deploy.status import forgive, status_of
from undrift.deploy.wire import FACTS, pack, unpack
from undrift.experiment.experiment import Experiment
from undrift.runs.layout import RunFile

pytest.importorskip("flwr", reason="flwr is not installed (undrift[flower])")

from flwr.app import ConfigRecord, Context, Message, RecordDict

from tests.deploy.local_grid import FIRST, LocalGrid, local_grid

Tamper = Callable[[Message], None]


def play(
    chosen: Experiment, folder: Path, grid: LocalGrid, notes: list[str] | None = None, **more: Any
) -> list[dict[str, Any]]:
    """Deploy an experiment; returns the rows."""
    settings = {"deployment": Deployment(0.001), "nodes": FAR, "poll": 0.0} | more
    told = [] if notes is None else notes
    events = deploy(grid, chosen, folder / "run", NAMES, note=told.append, **settings)
    return [event.row for event in events if event.row]


def data_of(chosen: Experiment) -> FederatedData:
    return chosen.prepare(0)[1]


def change(**fields: Any) -> Tamper:
    """Replace fields of the upload."""

    def tamper(reply: Message) -> None:
        up = unpack(reply.content, "up") | Struct(**fields)
        new = pack({}, up=up)
        for name in ("up.vectors", "up.numbers"):
            reply.content[name] = new[name]

    return tamper


def stamp(**facts: Any) -> Tamper:
    """Replace facts of the answer."""

    def tamper(reply: Message) -> None:
        reply.content[FACTS] = ConfigRecord({**reply.content[FACTS], **facts})

    return tamper


def forget(name: str) -> Tamper:
    def tamper(reply: Message) -> None:
        del reply.content[name]

    return tamper


@pytest.mark.parametrize(
    ("tamper", "why"),
    [
        (change(delta=torch.zeros(7)), r"refused: up.delta has the shape \(7\), not \(610\)"),
        (change(delta=torch.zeros(610).double()), "refused: up.delta is float64, not float32"),
        (change(more=torch.zeros(10**6)), "refused: up.more is not asked for"),
        (change(delta=torch.full((610,), torch.nan)), "delta is not finite"),
        (change(delta=torch.full((610,), torch.inf)), "delta is not finite"),
        (forget("up.vectors"), "refused: up is missing"),
        (forget(FACTS), "refused: the message is not one of undrift"),
        (forget("side.vectors"), "refused: side is missing"),
        (stamp(t=7), "refused: it answers for round 7, client 2, from the memory of round 0, not "),
        (stamp(client=0), "refused: it answers for round 1, client 0"),
        (stamp(based=3), "from the memory of round 3, not round 1, client 2"),
        (stamp(loss="low"), "refused: loss, steps or samples are not numbers"),
        (stamp(loss=float("nan")), "loss is not finite"),
        (stamp(steps=-1), "refused: -1 steps on"),
    ],
)
def test_a_bad_upload_is_refused_and_named(tamper: Tamper, why: str, tmp_path: Path) -> None:
    chosen = experiment("FedAvg()", rounds=1)

    class Tampered(LocalGrid):
        def tampered(self, node: int, reply: Message) -> Message:
            if node == FIRST + 2 and "up.vectors" in reply.content:
                tamper(reply)
            return reply

    notes: list[str] = []
    (row,) = play(chosen, tmp_path, local_grid(data_of(chosen), tmp_path, kind=Tampered), notes)
    (note,) = [text for text in notes if text.startswith("round 1")]
    assert re.search(rf"round 1: client 2 \(node-3\): .*{why}", note), note
    assert row["delivered"] == 3
    assert list(differences(chosen, tmp_path / "run")) == []


@pytest.mark.parametrize(
    ("tamper", "why"),
    [
        (stamp(client="two"), "refused: client is two, not a number from -1 on"),
        (stamp(samples=-1), "refused: samples is -1, not a number from 0 on"),
        (stamp(tests=2**62), f"refused: tests is {2**62}, not a number from 0 on"),
        (forget(FACTS), "refused: the message is not one of undrift"),
    ],
)
def test_a_bad_greeting_is_refused_and_named(tamper: Tamper, why: str, tmp_path: Path) -> None:
    chosen = experiment("FedAvg()", rounds=1)

    class Tampered(LocalGrid):
        def tampered(self, node: int, reply: Message) -> Message:
            if node == FIRST + 2:
                tamper(reply)
            return reply

    notes: list[str] = []
    grid = local_grid(data_of(chosen), tmp_path, kind=Tampered)
    with pytest.raises(TimeoutError):
        list(deploy(grid, chosen, tmp_path / "run", NAMES, nodes=FAR, note=impatient(notes)))
    assert f"client 2 (node-3): {why}" in notes


def test_a_nodes_own_words_are_one_short_line(tmp_path: Path) -> None:
    """The server's log is read line by line, also by `undrift deploy serve`."""
    chosen = experiment("FedAvg()", rounds=1)

    class Talkative(LocalGrid):
        def tampered(self, node: int, reply: Message) -> Message:
            if node == FIRST + 2 and "up.vectors" in reply.content:
                stamp(absent="no\ndone\n\x1b[2Jstopped: " + "x" * 10**4)(reply)
            return reply

    notes: list[str] = []
    play(chosen, tmp_path, local_grid(data_of(chosen), tmp_path, kind=Talkative), notes)
    (note,) = [text for text in notes if text.startswith("round 1")]
    assert note.startswith("round 1: client 2 (node-3): no done [2Jstopped: xxx")
    assert len(note) < 400
    assert note.isprintable()


@pytest.mark.parametrize("facts", [{"right": 99}, {"answers": "all"}, {"loss": float("nan")}])
def test_an_impossible_score_is_refused_and_named(facts: dict[str, Any], tmp_path: Path) -> None:
    chosen = experiment("FedAvg()", rounds=1, client_test=0.4)

    class Boastful(LocalGrid):
        def tampered(self, node: int, reply: Message) -> Message:
            if node == FIRST + 2 and "right" in reply.content[FACTS]:
                stamp(**facts)(reply)
            return reply

    notes: list[str] = []
    grid = local_grid(data_of(chosen), tmp_path, kind=Boastful)
    (row,) = play(chosen, tmp_path, grid, notes)
    assert any("no score of client 2 (node-3): refused: a loss of " in text for text in notes)
    assert 0 < row["client_accuracy_worst"] <= 1


def test_a_node_that_fails_says_why(tmp_path: Path) -> None:
    chosen = experiment("FedAvg()", rounds=2)
    grid = local_grid(data_of(chosen), tmp_path)
    notes: list[str] = []
    (tmp_path / "node-1").write_text("a file in the way of the memory")
    rows = play(experiment("SCAFFOLD()", rounds=2), tmp_path, grid, notes)
    assert [row["delivered"] for row in rows] == [3, 3]
    assert sum("client 1 (node-2): failed: UndriftError: " in text for text in notes) == 2


def test_a_round_below_the_quorum_is_void(tmp_path: Path) -> None:
    chosen = experiment("SCAFFOLD()", rounds=3)

    class Third(LocalGrid):
        """In round 2 only one client delivers."""

        def tampered(self, node: int, reply: Message) -> Message:
            if reply.content[FACTS].get("t") == 2 and node > FIRST:
                stamp(t=9)(reply)
            return reply

    grid = local_grid(data_of(chosen), tmp_path, kind=Third)
    rows = play(chosen, tmp_path, grid, deployment=Deployment(0.001, quorum=2))
    assert [row["delivered"] for row in rows] == [4, 0, 4]
    assert rows[0]["x_norm"] == rows[1]["x_norm"] != rows[2]["x_norm"]
    text = (tmp_path / "run" / RunFile.EXCHANGES).read_text(encoding="utf-8")
    assert '"0": "the round is void: 1 delivered, and 2 must"' in text
    assert list(differences(chosen, tmp_path / "run")) == []


def test_only_connected_nodes_are_asked(tmp_path: Path) -> None:
    chosen = experiment("AdaBest(mu=0.02, beta=0.9)", rounds=3)
    grid = local_grid(data_of(chosen), tmp_path)
    settings = {"deployment": Deployment(0.001), "nodes": FAR, "poll": 0.0}
    away = {1: {FIRST + 3}, 2: set[int]()}
    for event in deploy(grid, chosen, tmp_path / "run", NAMES, **settings):  # type: ignore[arg-type]
        if event.kind == "round":
            grid.away = away.get(event.round, set())
    text = (tmp_path / "run" / RunFile.EXCHANGES).read_text(encoding="utf-8")
    assert re.findall(r'"asked": (\[.*?\])', text) == ["[0, 1, 2, 3]", "[0, 1, 2]", "[0, 1, 2, 3]"]
    assert list(differences(chosen, tmp_path / "run")) == []


def test_a_lost_disk_is_named_and_forgiven(tmp_path: Path) -> None:
    app = DeploymentFolder(tmp_path)
    chosen = experiment("SCAFFOLD()", rounds=2)
    grid = local_grid(data_of(chosen), tmp_path)
    play(chosen, tmp_path, grid)
    shutil.rmtree(tmp_path / "node-1")
    longer, notes = experiment("SCAFFOLD()", rounds=3), list[str]()
    assert play(longer, tmp_path, grid, notes)[-1]["delivered"] == 3
    lost = "its memory of round 2 is lost; it has none"
    assert f"round 3: client 1 (node-2): {lost}" in notes
    assert status_of(app)["clients"][1]["absent"] == lost
    with pytest.raises(UndriftError, match=r"node-1.* has not lost its memory"):
        list(forgive(app, "node-1"))
    with pytest.raises(UndriftError, match="no client is called 'x'; known: node-1"):
        list(forgive(app, "x"))
    (text,) = forgive(app, "node-2")
    where = "no memory in SCAFFOLD(), seed 0 (1 checkpoints changed)"
    assert text == f"client 1 (node-2) goes on from {where}"
    longest = experiment("SCAFFOLD()", rounds=4)
    assert play(longest, tmp_path, grid)[-1]["delivered"] == 4
    assert status_of(app)["clients"][1]["absent"] is None


def test_only_the_trial_that_lacks_a_memory_is_forgiven(tmp_path: Path) -> None:
    """A client that lost its memory of FedDyn goes on with that of SCAFFOLD."""
    names = ("SCAFFOLD()", "FedDyn(mu=0.1)")

    def final(folder: Path, lose: bool) -> list[dict[str, Any]]:
        app, grid = DeploymentFolder(folder), local_grid(data_of(experiment(*names)), folder)
        play(experiment(*names, rounds=2), folder, grid)
        if lose:
            roster = Roster.read(app.run)
            assert roster is not None
            ask = Ask(roster.run, client=1, algorithm=roster.clients[1].algorithm)
            shutil.rmtree(folder / "node-1" / ask.place)
        play(experiment(*names, rounds=3), folder, grid)
        if lose:
            (text,) = forgive(app, "node-2")
            assert "goes on from no memory in FedDyn(" in text
        rows = play(experiment(*names, rounds=4), folder, grid)
        assert [row["delivered"] for row in rows] == [4, 4]
        return rows

    lost, kept = (final(tmp_path / str(lose), lose) for lose in (True, False))
    assert [a["loss"] == b["loss"] for a, b in zip(lost, kept, strict=True)] == [True, False]


def test_nodes_score_the_model_on_their_own_samples(tmp_path: Path) -> None:
    chosen = experiment("FedAvg()", rounds=1, client_test=0.4, personal_steps=2)
    plain = experiment("FedAvg()", rounds=1, fairness=True, personal_steps=2)
    for one, name in (chosen, "tests"), (plain, "all"):
        folder, notes = tmp_path / name, list[str]()
        (row,) = play(one, folder, local_grid(data_of(plain), folder), notes)
        assert 0 < row["client_accuracy_worst"] <= row["client_accuracy_mean"] <= 1
        assert 0 < row["personal_accuracy_worst"] <= row["personal_accuracy_mean"] <= 1
        assert not [text for text in notes if "no score" in text]
    assert list(differences(plain, folder / "run")) == []
    table = (tmp_path / "tests" / "run" / RunFile.CLIENTS).read_text(encoding="utf-8")
    assert re.search(r"node-1,14,10,", table), table


def test_nodes_without_keys_say_who_they_are(tmp_path: Path) -> None:
    chosen = experiment("AdaBest(mu=0.02, beta=0.9)", rounds=2)
    play(chosen, tmp_path, local_grid(data_of(chosen), tmp_path), nodes={})
    assert list(differences(chosen, tmp_path / "run")) == []


def test_a_second_node_for_one_client_is_refused_and_both_are_named(tmp_path: Path) -> None:
    chosen = experiment("FedAvg()", rounds=1)
    grid = local_grid(data_of(chosen), tmp_path)
    twin = Context(1, 999, {"client": 2, "state": str(tmp_path / "twin")}, RecordDict(), {})
    stranger = Context(1, 998, {"client": 7, "samples": 0}, RecordDict(), {})
    grid.contexts |= {999: twin, 998: stranger}
    notes: list[str] = []
    play(chosen, tmp_path, grid, notes, nodes={})
    assert "node 999: it says it is client 2, and so does node 102" in notes
    assert "node 998: it says it is client 7, and there are 4: 0..3" in notes
    assert list(differences(chosen, tmp_path / "run")) == []


def test_a_node_without_a_key_comes_back_as_another(tmp_path: Path) -> None:
    chosen = experiment("SCAFFOLD()", rounds=3)
    grid = local_grid(data_of(chosen), tmp_path)
    settings = {"deployment": Deployment(0.001), "poll": 0.0}
    for event in deploy(grid, chosen, tmp_path / "run", NAMES, **settings):  # type: ignore[arg-type]
        if event.kind == "round" and event.round == 1:
            config = grid.contexts.pop(FIRST + 2).node_config
            grid.contexts[777] = Context(1, 777, config, RecordDict(), {})
    text = (tmp_path / "run" / RunFile.EXCHANGES).read_text(encoding="utf-8")
    assert re.findall(r'"absent": (\{.*?\})', text) == ["{}"] * 3
    assert list(differences(chosen, tmp_path / "run")) == []


def test_no_node_can_guess_the_number_of_a_question_to_another(tmp_path: Path) -> None:
    """Flower's number of a message is the hash of its content: a reply to it needs that number."""
    chosen = experiment("FedAvg()", rounds=1)

    class Curious(LocalGrid):
        asked: list[Any]

        def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
            sent = list(messages)
            self.asked += [dict(one.content[FACTS]) for one in sent]
            return super().push_messages(sent)

    grid = local_grid(data_of(chosen), tmp_path, kind=Curious)
    grid.asked = []  # type: ignore[attr-defined]
    play(chosen, tmp_path, grid)
    nonces = [facts["nonce"] for facts in grid.asked]  # type: ignore[attr-defined]
    assert len(nonces) == len(set(nonces)) == 8
    assert {len(one) for one in nonces} == {32}


def test_a_key_decides_who_a_node_is(tmp_path: Path) -> None:
    chosen = experiment("FedAvg()", rounds=1)
    grid = local_grid(data_of(chosen), tmp_path)
    grid.contexts[FIRST + 1].node_config["client"] = 3
    notes: list[str] = []
    engine_of = deploy(
        grid, chosen, tmp_path / "run", NAMES, nodes=FAR, poll=0.0, note=impatient(notes)
    )
    with pytest.raises(TimeoutError):
        list(engine_of)
    assert "client 1 (node-2): its key is that of client 1 (node-2), and it says 3" in notes


def impatient(notes: list[str]) -> Callable[[str], None]:
    """Notes, until some node is waited for."""

    def note(text: str) -> None:
        notes.append(text)
        if text.startswith("waiting"):
            raise TimeoutError

    return note


def test_samples_of_another_shape_are_refused(tmp_path: Path) -> None:
    chosen = experiment("FedAvg()", rounds=1)
    other = experiment("FedAvg()", data="digits", partition="IID(clients=4)")
    grid = local_grid(data_of(other), tmp_path)
    notes: list[str] = []
    with pytest.raises(TimeoutError):
        list(deploy(grid, chosen, tmp_path / "run", NAMES, nodes=FAR, note=impatient(notes)))
    assert any("each of shape (60,)" in text for text in notes)


@pytest.mark.parametrize("name", ["LocalOnly()", "Centralised()"])
def test_what_has_no_server_cannot_be_deployed(name: str, tmp_path: Path) -> None:
    with pytest.raises(UndriftError, match="it cannot be deployed"):
        play(experiment(name), tmp_path, LocalGrid(None, {}))  # type: ignore[arg-type]


def test_nodes_are_not_asked_for_the_updates_of_all(tmp_path: Path) -> None:
    with pytest.raises(UndriftError, match="all_updates=True: nodes train only when they are dra"):
        play(experiment("FedAvg()", all_updates=True), tmp_path, LocalGrid(None, {}))  # type: ignore[arg-type]


def test_a_quorum_is_at_most_the_number_of_nodes(tmp_path: Path) -> None:
    with pytest.raises(UndriftError, match="quorum=5: there are 4 nodes"):
        play(
            experiment("FedAvg()"),
            tmp_path,
            LocalGrid(None, {}),  # type: ignore[arg-type]
            deployment=Deployment(1.0, quorum=5),
        )


def test_clients_are_counted_or_named() -> None:
    assert client_names("2") == ["node-0", "node-1"]
    assert client_names('["a", "b"]') == ["a", "b"]
    for text in ("three", "0", "2.5", "[1]", "[]", ""):
        with pytest.raises(UndriftError, match="give the number of nodes"):
            client_names(text)


def test_a_run_keeps_its_nodes(tmp_path: Path) -> None:
    chosen = experiment("FedAvg()", rounds=1)
    grid = local_grid(data_of(chosen), tmp_path)
    play(chosen, tmp_path, grid)
    with pytest.raises(UndriftError, match=r"began with the nodes node-1, .*, and now there are a"):
        list(deploy(grid, chosen, tmp_path / "run", ["a"]))
    assert Roster.read(tmp_path / "run") is not None
