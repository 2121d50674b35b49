"""Trackers, each with its real library: what is logged can be read back, and stays where it is."""

import json
import math
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from undrift.config import UndriftError
from undrift.runs.trackers import NAMES, TrackedTrial, Trackers, numbers, tracker

RUN, SETTINGS = "3f2a90c1d7be", {"data": "Digits()", "rounds": 8, "target": None}
ADABEST = TrackedTrial(RUN, SETTINGS, "AdaBest", "AdaBest(mu=0.02)", 0)
FEDAVG = TrackedTrial(RUN, SETTINGS, "FedAvg", "FedAvg()", 1)
ROUNDS = {ADABEST.name: [2, 4, 6, 8], FEDAVG.name: [2, 4]}


def row(trial: TrackedTrial, t: int) -> dict[str, Any]:
    return {
        "algorithm": trial.algorithm,
        "label": trial.label,
        "seed": trial.seed,
        "round": t,
        "accuracy": t / 16,
        "h_norm": None,
        "delivered": 10,
        "group_gsi": [1.0, 2.0, None, 6.0 * t],
    }


def logged(t: int) -> dict[str, float]:
    lists = {"group_gsi/min": 1.0, "group_gsi/mean": 1.0 + 2.0 * t, "group_gsi/max": 6.0 * t}
    return {"accuracy": t / 16, "delivered": 10.0} | lists


def write(folder: str) -> None:
    """Two sessions; the second one repeats a round, since its checkpoint is older than the row."""

    def trackers() -> Trackers:
        return Trackers(NAMES, Path(folder), RUN, SETTINGS, pytest.fail)

    first = trackers()
    first.begin(ADABEST.label, ADABEST.algorithm, ADABEST.seed)
    for t in (2, 4, 6):
        first.row(row(ADABEST, t))
    first.close()
    rows = [row(FEDAVG, 2), row(ADABEST, 2), row(ADABEST, 4), row(ADABEST, 6)]
    (Path(folder) / "metrics.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in rows))
    time.sleep(1.1)  # W&B names its folders by the second
    second = trackers()
    second.begin(ADABEST.label, ADABEST.algorithm, ADABEST.seed, after=4)
    for t in (6, 8):
        second.row(row(ADABEST, t))
    second.end("all clients diverged")
    second.begin(FEDAVG.label, FEDAVG.algorithm, FEDAVG.seed, after=2)  # never tracked before
    second.row(row(FEDAVG, 4))
    second.end()
    second.close()


@pytest.fixture(scope="module")
def proxy() -> Iterator[tuple[str, list[bytes]]]:
    """A proxy that lets nothing through, and what it was asked for."""
    asked: list[bytes] = []

    def listen() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                asked.append(connection.recv(200))

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}", asked
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.fixture(scope="module")
def written(
    tmp_path_factory: pytest.TempPathFactory, proxy: tuple[str, list[bytes]]
) -> tuple[Path, list[bytes]]:
    """A run directory that all trackers wrote to, and what they asked of the network."""
    folder = tmp_path_factory.mktemp("run")
    address, asked = proxy
    ours = ("MLFLOW", "WANDB", "CI", "GITHUB", "PYTEST", "NO_PROXY")  # MLflow reports not in CI
    env = {key: value for key, value in os.environ.items() if not key.upper().startswith(ours)}
    env |= dict.fromkeys(["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"], address)
    code = f"from tests.runs.test_trackers import write; write({str(folder)!r})"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=Path(__file__).parents[2], env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return folder, asked


def test_nothing_goes_over_the_network(written: tuple[Path, list[bytes]]) -> None:
    assert written[1] == []


@pytest.mark.parametrize("trial", [ADABEST, FEDAVG], ids=lambda trial: trial.label)
def test_tensorboard(written: tuple[Path, list[bytes]], trial: TrackedTrial) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(written[0] / "tensorboard" / trial.name)).Reload()
    found = {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }
    assert found == {
        tag: [(t, pytest.approx(logged(t)[tag])) for t in ROUNDS[trial.name]] for tag in logged(0)
    }
    texts = {
        tag.partition("/")[0]: events.Tensors(tag)[0].tensor_proto.string_val[0].decode()
        for tag in events.Tags()["tensors"]
    }
    assert trial.algorithm in texts["settings"]
    assert texts.get("failure") == ("all clients diverged" if trial == ADABEST else None)


@pytest.mark.parametrize("trial", [ADABEST, FEDAVG], ids=lambda trial: trial.label)
def test_mlflow(written: tuple[Path, list[bytes]], trial: TrackedTrial) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{written[0]}/mlflow/mlflow.db")
    experiment = client.get_experiment_by_name(f"undrift {RUN}")
    (run,) = client.search_runs(
        [experiment.experiment_id], f"attributes.run_name = '{trial.name}'"
    )  # one, not one a session
    found = {
        key: [
            (metric.step, metric.value)
            for metric in client.get_metric_history(run.info.run_id, key)
        ]
        for key in run.data.metrics
    }
    assert found == {key: [(t, logged(t)[key]) for t in ROUNDS[trial.name]] for key in logged(0)}
    assert run.data.params == {key: str(value) for key, value in trial.facts.items()}
    assert run.data.tags.get("undrift.failure") == (
        "all clients diverged" if trial == ADABEST else None
    )
    assert run.info.status == ("FAILED" if trial == ADABEST else "FINISHED")


@pytest.mark.parametrize("trial", [ADABEST, FEDAVG], ids=lambda trial: trial.label)
def test_wandb(written: tuple[Path, list[bytes]], trial: TrackedTrial) -> None:
    sessions = sorted((written[0] / "wandb").glob(f"offline-run-*-{trial.id}"))
    assert len(sessions) == (2 if trial == ADABEST else 1)
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(sessions[-1])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    (run,) = (record["run"] for record in records if record["type"] == "run")
    assert (run["run_id"], run["display_name"]) == (trial.id, trial.name)
    assert trial.facts.items() <= run["config"]["update"].items()
    items = [record["history"]["item"] for record in records if record["type"] == "history"]
    found = [(item["_step"], {k: v for k, v in item.items() if k[0] != "_"}) for item in items]
    assert found == [(t, logged(t)) for t in ROUNDS[trial.name]]
    (code,) = (record["exit"].get("exit_code", 0) for record in records if "exit" in record)
    assert code == (1 if trial == ADABEST else 0)


def test_a_tracker_that_fails_is_off_and_the_others_go_on(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (tmp_path / "mlflow").write_text("in the way")
    said: list[str] = []
    tracking = Trackers(["mlflow", "tensorboard"], tmp_path, RUN, SETTINGS, said.append)
    tracking.begin(FEDAVG.label, FEDAVG.algorithm, FEDAVG.seed)
    for t in (1, 2):
        tracking.row(row(FEDAVG, t))
    tracking.end()
    tracking.close()
    (line,) = said
    assert line.startswith("mlflow failed and is switched off")
    assert "File exists" in line
    assert "\n" not in line
    events = EventAccumulator(str(tmp_path / "tensorboard" / FEDAVG.name)).Reload()
    assert [event.step for event in events.Scalars("accuracy")] == [1, 2]


def test_a_server_that_is_not_there_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]  # free again, and closed, after this block
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    said: list[str] = []
    tracking = Trackers(["mlflow"], tmp_path, RUN, SETTINGS, said.append)
    tracking.begin(FEDAVG.label, FEDAVG.algorithm, FEDAVG.seed)
    tracking.row(row(FEDAVG, 1))
    (line,) = said
    assert str(port) in line
    assert not (tmp_path / "mlflow").exists()


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_written_before_a_trial_begins(name: str, tmp_path: Path) -> None:
    tracker(name, tmp_path / "run").close()
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_library_is_named_with_its_extra(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = "torch.utils.tensorboard" if name == "tensorboard" else name
    monkeypatch.setitem(sys.modules, needed, None)
    monkeypatch.delitem(sys.modules, f"undrift.runs.trackers.{name}", raising=False)
    with pytest.raises(UndriftError, match=rf'pip install "\.\[{name}\]"'):
        tracker(name, tmp_path)


def test_an_unknown_tracker_is_guessed(tmp_path: Path) -> None:
    with pytest.raises(UndriftError, match="did you mean 'tensorboard'"):
        tracker("tensorbord", tmp_path)


def test_trials_have_ids_of_their_own_that_last() -> None:
    trials = [ADABEST, FEDAVG, TrackedTrial(RUN, SETTINGS, "FedAvg", "FedAvg()", 2)]
    trials.append(TrackedTrial("another", SETTINGS, "FedAvg", "FedAvg()", 2))
    assert len({trial.id for trial in trials}) == 4
    assert TrackedTrial(RUN, {}, "another label", ADABEST.algorithm, 0).id == ADABEST.id


@given(st.lists(st.one_of(st.none(), st.floats(), st.booleans(), st.text(), st.integers())))
def test_only_finite_numbers_are_drawn(values: list[Any]) -> None:
    good = [float(v) for v in values if type(v) in (int, float) and math.isfinite(v)]
    drawn = numbers({"round": 1, "seed": 0} | {str(i): v for i, v in enumerate(values)})
    assert list(drawn.values()) == good
    listed = numbers({"round": 1, "seed": 0, "many": values})
    assert bool(listed) == bool(good)
    if good:
        assert (listed["many/min"], listed["many/max"]) == (min(good), max(good))
        assert listed["many/mean"] == pytest.approx(math.fsum(v / len(good) for v in good))
