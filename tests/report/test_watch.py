"""`undrift watch` without a browser: what is listed, what is answered and what is refused."""

from __future__ import annotations

import http.client
import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report.directory import ACCURACY, A, make_run
from undrift.cli.watch import watch
from undrift.config import UndriftError
from undrift.report import read_run
from undrift.report.watch import folder as folder_module
from undrift.report.watch.folder import Folder
from undrift.report.watch.server import PageServer, Response
from undrift.runs import columns
from undrift.runs.entries import parse_row
from undrift.system.lock import Lock, holder

Shown = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A folder with two runs."""
    make_run(tmp_path / "runs" / "first", name="first")
    make_run(tmp_path / "runs" / "second", {(A, 0): ACCURACY[A, 0][:2]}, name="second", every=10)
    return tmp_path / "runs"


@pytest.fixture
def server(runs: Path) -> Iterator[PageServer]:
    with PageServer(Folder(runs)) as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def ask(
    server: PageServer, path: str, method: str = "GET", **headers: str
) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body


def states(folder: Path) -> dict[str, str]:
    return {entry.name: entry.state for entry in Folder(folder).entries()}


def test_the_states_of_runs(runs: Path) -> None:
    (runs / "notes").mkdir()
    (runs / "half").mkdir()
    (runs / "half" / "experiment.json").write_text('{"name": "ha')
    expected = {"first": "finished", "second": "interrupted", "half": "broken"}
    assert states(runs) == expected
    lock = Lock(runs / "second")
    assert holder(runs / "second") == os.getpid()
    assert states(runs) == expected | {"second": "running"}
    lock.close()
    assert states(runs) == expected
    assert states(runs / "first") == {"first": "finished"}  # the folder may be a run itself
    broken = next(entry for entry in Folder(runs).entries() if entry.name == "half")
    assert "not valid JSON" in broken.facts()["error"]


@pytest.mark.parametrize("text", ["", "x", "-1", "0", str(2**80), "99999999"])
def test_a_number_that_was_left_behind_holds_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / ".pid").write_text(text)
    assert holder(tmp_path) is None


def test_files_are_read_only_when_they_have_changed(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    monkeypatch.setattr(
        folder_module,
        "read_run",
        lambda path, rows: (read.append(path.name), read_run(path, rows))[1],
    )
    folder = Folder(runs)
    folder.entries()
    before = {entry.name: entry.version for entry in folder.entries()}
    assert sorted(read) == ["first", "second"]
    with (runs / "second" / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"algorithm": A, "seed": 0, "round": 20, "accuracy": 0.9}) + "\n")
    after = {entry.name: entry.version for entry in folder.entries()}
    assert read[2:] == ["second"]
    assert [name for name in before if before[name] != after[name]] == ["second"]


def test_only_new_rows_are_parsed(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []
    monkeypatch.setattr(
        columns,
        "parse_row",
        lambda line, trials: (row := parse_row(line, trials), parsed.append(row["round"]))[0],
    )
    folder = Folder(runs / "second")
    for t in (15, 20):
        with (runs / "second" / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({"algorithm": A, "seed": 0, "round": t, "accuracy": 0.9}) + "\n")
        assert folder.entries()[0].facts()["done"] == t
        folder.view(["second"])
    assert parsed == [5, 10, 15, 20]


def test_links_in_a_circle_and_closed_folders_hide_no_run(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (runs / "loop").symlink_to("loop")
    make_run(runs / "closed")
    real = Path.stat

    def stat(self: Path, **options: Any) -> os.stat_result:
        if self.parent.name == "closed":
            raise PermissionError(13, "Permission denied")
        return real(self, **options)

    monkeypatch.setattr(Path, "stat", stat)  # root may read anything
    assert states(runs) == {"first": "finished", "second": "interrupted"}


def test_files_of_1970_are_there(runs: Path) -> None:
    for file in (runs / "first").iterdir():
        os.utime(file, (0, 0))
    assert states(runs)["first"] == "finished"
    assert [entry.modified == 0 for entry in Folder(runs).entries()] == [False, True]


def test_links_that_leave_the_folder_are_not_followed(runs: Path) -> None:
    secret = make_run(runs.parent / "secret", name="secret")
    (runs / "out").symlink_to(secret)
    (runs / "linked").mkdir()
    for name in ("experiment.json", "metrics.jsonl"):
        (runs / "linked" / name).symlink_to(secret / name)
    partly = make_run(runs / "partly")
    (partly / "partition.json").unlink()
    (partly / "partition.json").symlink_to(secret / "partition.json")
    (runs / "again").symlink_to(runs / "first")
    assert states(runs) == {
        "first": "finished",
        "again": "finished",
        "second": "interrupted",
        "partly": "broken",
    }


@given(
    st.sampled_from(["experiment.json", "metrics.jsonl", "partition.json", "failures.json"]),
    st.sampled_from(
        [
            *("seed", "seeds", "round", "rounds", "algorithm", "algorithms", "accuracy", "name"),
            *("group_gsi", "groups", "client_accuracy", "target", "label_counts", "reason"),
        ]
    ),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
        | st.just(10**400),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
        max_leaves=4,
    ),
)  # fmt: skip
def test_spoilt_files_never_spoil_the_list(
    tmp_path_factory: pytest.TempPathFactory, name: str, key: str, value: Any
) -> None:
    runs = tmp_path_factory.mktemp("runs")
    file = make_run(runs / "one", failures=[]) / name
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    spoilt = [line | {key: value} if isinstance(line, dict) else value for line in lines]
    file.write_text("".join(json.dumps(line) + "\n" for line in spoilt))
    folder = Folder(runs)
    (entry,) = folder.entries()
    json.dumps(entry.facts())
    json.dumps(folder.view(["one"]), allow_nan=False)


def test_the_list_and_the_view(server: PageServer) -> None:
    _, body = ask(server, "/runs")
    listed = {run["name"]: run for run in json.loads(body)}
    assert listed["first"]["best"] == "90.00 %"
    assert (listed["second"]["done"], listed["second"]["rounds"]) == (10, 20)
    assert json.loads(ask(server, "/view?run=first")[1])["parts"]["title"] == "first"
    both = json.loads(ask(server, "/view?run=second&run=first")[1])
    assert both["parts"]["title"] == "digits: FedAvg, AdaBest"
    assert "runs second, first" in both["parts"]["facts"]
    assert len(both["data"]["arms"]) == 3
    saved, page = ask(server, "/report.html?run=first")
    assert "attachment" in saved.headers["Content-Disposition"]
    assert b"<title>first</title>" in page


def test_what_has_not_changed_is_not_sent_again(server: PageServer) -> None:
    first, body = ask(server, "/runs")
    again, nothing = ask(server, "/runs", **{"If-None-Match": first.headers["ETag"]})
    assert (again.status, nothing) == (304, b"")
    head, nothing = ask(server, "/runs", "HEAD")
    assert (head.status, nothing) == (200, b"")
    assert head.headers["Content-Length"] == str(len(body))


@pytest.mark.parametrize(
    "path",
    [
        *("/../secret", "/..%2fsecret", "/runs/first/metrics.jsonl", "/first/experiment.json"),
        *("//etc/passwd", "/etc/passwd", "/page.js/..", "/report.html", "/favicon.ico", "/%00"),
        *("/report.html?run=../secret", "/report.html?run=/etc", "/report.html?run=first/../first"),
    ],
)
def test_other_paths_lead_nowhere(server: PageServer, path: str) -> None:
    make_run(server.folder.path.parent / "secret", name="secret")
    answer, body = ask(server, path)
    assert answer.status == 404
    assert b"secret" not in body


def test_names_of_runs_are_no_paths(server: PageServer) -> None:
    make_run(server.folder.path.parent / "secret", name="secret")
    for name in ("../secret", "..%2Fsecret", "first%2F..%2F..%2Fsecret", "%2Fetc", "."):
        assert ask(server, f"/view?run={name}")[1] == b"null"


@pytest.mark.parametrize(
    "path", ["/", "/runs", "/page.js", "/nothing", "/view?run=first", "/view?run=no"]
)
def test_every_answer_is_guarded(server: PageServer, path: str) -> None:
    headers = ask(server, path)[0].headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "script-src 'self';" in headers["Content-Security-Policy"]
    assert headers["Access-Control-Allow-Origin"] is None


def test_other_names_of_this_machine_are_refused(server: PageServer) -> None:
    port = server.server_port
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"LocalHost:{port}", f"[::1]:{port}"):
        assert ask(server, "/runs", Host=host)[0].status == 200
    for host in (
        f"elsewhere.example:{port}",
        "127.0.0.1",
        f"127.0.0.1:{port + 1}",
        "",
        "localhost",
    ):
        answer, body = ask(server, "/runs", Host=host)
        assert (answer.status, b"first" in body) == (403, False)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_written(server: PageServer, method: str) -> None:
    answer, _ = ask(server, "/runs", method)
    assert answer.status == 501
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_what_is_no_request_is_answered(server: PageServer) -> None:
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as plug:
        plug.sendall(b"nonsense\r\n\r\n")
        assert b"Bad request" in plug.recv(1000)
    assert ask(server, "/runs")[0].status == 200


def test_a_port_in_use_and_other_mistakes(server: PageServer, runs: Path) -> None:
    with pytest.raises(UndriftError, match=r"in use.*--port"):
        watch(runs, port=server.server_port)
    with pytest.raises(UndriftError, match="--port 70000"):
        watch(runs, port=70000)
    with pytest.raises(UndriftError, match="--host"):
        watch(runs, host="no such host", port=0)
    with pytest.raises(UndriftError, match="not a folder"):
        watch(runs / "nothing", port=0)


@pytest.mark.parametrize("path", ["ftp://[", "/view?" + "run=x&" * 1001])
def test_addresses_that_are_none(server: PageServer, capfd: Shown, path: str) -> None:
    answer, _ = ask(server, path)
    assert (answer.status, capfd.readouterr().err) == (400, "")


def test_browsers_leave_out_the_usual_port(server: PageServer) -> None:
    server.server_port = 80
    for host in ("localhost", "127.0.0.1", "localhost:80", "[::1]"):
        assert server.answers_to(host)
    assert not server.answers_to("elsewhere.example")


def test_names_that_are_no_text(tmp_path: Path, capsys: Shown, monkeypatch: Patch) -> None:
    runs = tmp_path / os.fsdecode(b"\xff[b]")
    make_run(runs / os.fsdecode(b"\xfe"), name="\ud800")
    with PageServer(Folder(runs)) as server:
        page = server.pages["/"].body.decode()
        assert "\\udcff[b]" in page
        (listed,) = server.folder.entries()
        assert listed.name == "\\udcfe"
        assert server.folder.together([listed.name]) is not None
        assert Response("\ud800").body == b"?"
    monkeypatch.setattr(PageServer, "serve_forever", lambda self: None)
    watch(runs, port=0)
    assert "\\udcff[b] at http" in capsys.readouterr().out


def test_a_path_too_long_for_any_folder() -> None:
    with pytest.raises(UndriftError, match=r"x\.\.\. is not a folder"):
        Folder(Path("x" * 5000))


def test_an_address_beyond_this_machine_comes_with_a_warning(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(self: PageServer) -> None:
        assert self.answers_to("any.example") is not self.private
        raise KeyboardInterrupt

    monkeypatch.setattr(PageServer, "serve_forever", stop)
    watch(runs, port=0)
    said = capsys.readouterr()
    assert "http://127.0.0.1:" in said.out
    assert said.err == ""
    watch(runs, port=0, host="0.0.0.0")
    assert "anybody" in capsys.readouterr().err
