"""The command line: the main job end to end, and one clear sentence for every mistake."""

import inspect
import io
import json
import subprocess
import sys
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest

from tests.report.directory import make_run
from undrift.cli.app import COMMANDS, application, main
from undrift.cli.listing import KINDS
from undrift.cli.settings import Settings
from undrift.experiment.experiment import Experiment
from undrift.runs.identity import stored_experiment
from undrift.runs.runner import run
from undrift.training.work import Local

QUICK = ["--rounds", "4", "--seeds", "1", "--every", "2", "--sampler", "Uniform(3)"]


def compare(*arguments: str) -> None:
    main(["compare", *arguments])


def test_compare_writes_a_run_and_a_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    compare("fedavg", "AdaBest(beta=0.9)", *QUICK, "--target", "0.1", "--out", str(out))
    shown = capsys.readouterr().out
    assert shown.strip().endswith(f"report: {out / 'report.html'}")
    assert "AdaBest" in shown
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [(row["label"], row["round"]) for row in rows] == [
        ("FedAvg", 2),
        ("FedAvg", 4),
        ("AdaBest", 2),
        ("AdaBest", 4),
    ]
    assert (out / "report.html").stat().st_size > 100_000
    assert (out / "figures" / "overview.png").exists()


def test_flags_have_the_defaults_of_the_settings() -> None:
    """All but the seeds: the command line takes a number of them, and repeats more often."""
    flags = {one.name: one.default for one in fields(Settings)}
    settings = {one.name: one.default for one in (*fields(Experiment), *fields(Local))}
    del settings["local"], settings["origin"], settings["seeds"], settings["algorithms"]
    assert settings.keys() <= flags.keys()
    defaults = {name: one for name, one in settings.items() if one is not MISSING}
    assert {name: flags[name] for name in defaults} == defaults


def test_a_flag_reaches_its_setting(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "flags.toml"
    local: dict[str, Any] = {
        "lr": 0.2,
        "lr_decay": 0.9,
        "weight_decay": 0.1,
        "batch_size": 8,
        "steps": 3,
    }
    rest: dict[str, Any] = {"rounds": 7, "every": 2, "validation": 4, "target": 0.3, "dropout": 0.2}
    rest |= {"client_test": 0.2, "personal_steps": 3, "test_subset": 50}
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in (local | rest).items()]
    on = ("--all-clients", "--all-updates")
    compare("fedavg", *flags, "--seeds=2", "--batching=keep", *on, "--dry-run")
    file.write_text(capsys.readouterr().out)
    made = Experiment.from_toml(file)
    assert made.local == Local(**local, batching="keep")
    assert {name: getattr(made, name) for name in rest} == rest
    assert (made.seeds, made.all_clients, made.fairness) == ((0, 1), True, False)
    assert made.all_updates


def test_test_samples_is_another_name_of_test_subset(capsys: pytest.CaptureFixture[str]) -> None:
    compare("local-only", "--test-samples", "70", "--dry-run")
    assert "test_subset = 70\n" in capsys.readouterr().out


@pytest.mark.usefixtures("without_figures")
def test_another_target_is_reported_without_training_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for target, told in ("0.01", "with at least 1 %"), ("0.02", "with at least 2 %"):
        compare("fedavg", *QUICK, "--json", "--target", target, "--out", str(tmp_path))
        assert told in (tmp_path / "table.md").read_text()
    kinds = [json.loads(line)["event"] for line in capsys.readouterr().out.splitlines()]
    assert kinds[-2:] == ["note", "report"]


def test_a_task_of_an_array_job_runs_one_seed_of_a_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "study.toml"
    compare("fedavg", "--rounds=7", "--dry-run")
    file.write_text(capsys.readouterr().out)
    main(["run", str(file), "--set", "seeds=[12]", "--dry-run"])
    file.write_text(capsys.readouterr().out)
    assert Experiment.from_toml(file).seeds == (12,)


@pytest.mark.usefixtures("without_figures")
def test_json_is_parseable_and_repeats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = []
    for name in ("a", "b"):
        compare("fedglad+fedadam", *QUICK, "--json", "--out", str(tmp_path / name))
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        for line in lines:
            line.pop("seconds", None)
        assert lines[-1] == {"event": "report", "page": str(tmp_path / name / "report.html")}
        runs.append(lines[:-1])
    assert runs[0] == runs[1]
    assert [line["event"] for line in runs[0]] == ["start", "note", "begin", "row", "row", "end"]
    assert runs[0][3]["algorithm"] == "FedGLAD(ServerOpt(FedAvg(), Adam(lr=0.01)))"


@pytest.mark.usefixtures("without_figures")
def test_your_own_table_from_file_to_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"{i % 7},{'mf'[i % 2]},{'abc'[i % 3]},H{i % 6:02}" for i in range(120)]
    Path("x.csv").write_text("\n".join(["age,sex,y,c", *rows]), encoding="utf-8")
    flags = ["--data", "x.csv", "--target-column", "y", "--client-column", "c"]
    compare("fedavg", *flags, "--rounds", "2", "--seeds", "1", "--json", "--out", "run")
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert events[1]["note"] == (
        "x.csv: 2 columns, 1 of them text (one-hot, 2 categories), 1 standardised; "
        "target y is one of 3 classes, clients by c (6)"
    )
    assert events[-1]["event"] == "report"
    experiment = stored_experiment(tmp_path / "run")
    assert repr(experiment.data) == "Table(path='x.csv', target='y', client='c')"
    assert repr(experiment.partition) == "Natural()"
    partition = json.loads((tmp_path / "run" / "partition.json").read_text(encoding="utf-8"))
    assert (partition["clients"][0], partition["classes"]) == ("H00", ["a", "b", "c"])
    rows[0] = "99,m,a,H00"
    Path("x.csv").write_text("\n".join(["age,sex,y,c", *rows]), encoding="utf-8")
    with pytest.raises(SystemExit):
        main(["resume", "run"])
    assert "the data have changed since run began" in capsys.readouterr().err


@pytest.mark.usefixtures("without_figures")
def test_algorithms_see_the_same_cohorts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compare("fedavg", "AdaBest(mu=0, beta=0)", *QUICK, "--json", "--out", str(tmp_path))
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    rows = [line for line in lines if line["event"] == "row"]
    a, b = rows[:2], rows[2:]
    assert [row["label_similarity"] for row in a] == [row["label_similarity"] for row in b]
    assert [row["accuracy"] for row in a] == [row["accuracy"] for row in b]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["fedavg", "--data", "digitz"], "did you mean 'digits'"),
        (
            ["fedavg", "--partition", "Dirichlet(clients=100, alpha=0)"],
            "alpha must be a number > 0",
        ),
        (
            ["fedavg", "--partition", "Dirichlet(clients=100)"],
            "alpha must be given; write Dirichlet(clients=..., alpha=...)",
        ),
        (["fedavg", "--data", "pat.csv"], "pat.csv: No such file"),
        (["fedavg", "--target-column", "cost"], "--target-column cost: it goes with the path of"),
        (["fedavg", "--data", "./data/mine"], "'./data/mine' is a file"),
        (["fedavg", "--sampler", "Uniform(101)"], "use at most 100 clients per round"),
        (["fedavg", "--partition", "IID(clients=5000)"], "use at most 1437 clients"),
        (["AdaBest(bta=0.9)"], "did you mean 'beta'"),
        (["AdaBest(beta=1.5)"], "beta must be a number >= 0 and <= 1"),
        (["adabezt"], "did you mean 'AdaBest'"),
        (["fedavg", "--model", "mpl"], "did you mean 'MLP'"),
        (["fedavg", "--lr", "0"], "lr must be a number > 0"),
        (["fedavg", "--lr", "fast"], "lr"),
        (["fedavg", "--epochs", "2", "--steps", "3"], "epochs or steps, not both"),
        (["fedavg", "--rounds", "0"], "rounds must be a whole number >= 1"),
        (["fedavg", "--rounds", "1.5"], "--rounds: must be a whole number, not '1.5'"),
        (["fedavg", "--steps", "2.0"], "--steps: must be a whole number, not '2.0'"),
        (["fedavg", "--workers", "1e1"], "--workers: must be a whole number, not '1e1'"),
        (["fedavg", "--seeds", "0"], "seeds"),
        (["fedavg", "--batch-size", "1401"], "larger than the whole training set of 1400 samples"),
        (["fedavg", "--batching", "magic"], "must be one of 'bootstrap'"),
        (["fedavg", "--dropout", "2"], "dropout must be a number"),
        (["fedavg", "fedavg"], "named twice"),
        ([], "name at least one algorithm"),
        (["Adam()"], "not an algorithm"),
        (["fedavg", "--model", "adabest_cnn"], "images must have the shape"),
        (["fedavg", "--no-such-option", "1"], "--no-such-option"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    arguments: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    with pytest.raises(SystemExit) as exit:
        compare(*arguments, "--out", str(out))
    said = capsys.readouterr()
    assert exit.value.code == 2
    assert says in said.err
    assert len(said.err.strip().splitlines()) == 1
    assert "Traceback" not in said.err
    assert not out.exists()


def test_a_folder_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(SystemExit) as exit:
        compare("fedavg", *QUICK, "--out", str(tmp_path / "file" / "run"))
    assert exit.value.code == 2
    assert "give another folder" in capsys.readouterr().err


def test_a_folder_with_other_things_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(SystemExit) as exit:
        compare("fedavg", *QUICK, "--out", str(tmp_path))
    assert exit.value.code == 2
    assert "has other files in it" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("kind", KINDS)
def test_list(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["list", kind, "--json"])
    rows = json.loads(capsys.readouterr().out)
    assert rows
    assert all(row["about"] for row in rows)


@pytest.mark.usefixtures("without_figures")
def test_when_all_trials_diverge_the_exit_code_is_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "[red]"  # which rich would take for a colour
    for command in (
        ["compare", "fedavg", "fedprox", *QUICK, "--lr", "1e30", "--out", str(out)],
        ["resume", str(out)],
        ["resume", str(out), "--json"],
    ):
        with pytest.raises(SystemExit) as exit:
            main(command)
        assert exit.value.code == 3
        shown, said = capsys.readouterr()
        assert str(out / "report.html") in shown
        assert "all trials diverged" in said
    failures = json.loads((out / "failures.json").read_text())
    assert {failure["algorithm"] for failure in failures} == {"FedAvg()", "FedProx(mu=0.01)"}
    assert all(failure["reason"] for failure in failures)


def test_commands_import_only_what_they_need(tmp_path: Path) -> None:
    """Torch only to train, NumPy only to read numbers, and for help next to nothing."""
    one = str(make_run(tmp_path / "runs" / "one"))
    stages: list[tuple[list[list[str]], list[str]]] = [  # and what only later stages may import
        (
            [["--help"], ["--version"], ["comparr"], ["--hlep"], ["resume", "--help"]],
            ["undrift.experiment"],
        ),
        (
            [
                *([command, "--help"] for command in ("compare", "run", "demo", "fork", "verify")),
                *(["compare", "fedavg", "--lrr", "1"], ["run", "no.toml"]),
            ],
            ["undrift.data.sources", "undrift.data.text", "undrift.experiment.registry"],
        ),
        ([["partition", "--help"]], ["undrift.report"]),
        (
            [
                *([command, "--help"] for command in COMMANDS),
                *(["list", kind] for kind in KINDS),
                *(["data", "list"], ["data", "where", "mnist"]),
                *(["compare", "adabezt"], ["cost", "adabezt"], ["compare", "fedavg", "--dry-run"]),
                *(["compare", "fedavg", f"--{kind}", "no"] for kind in ("data", "model")),
                *(["compare", "fedavg", "--partition", "no"], ["ls", str(tmp_path)]),
                *(["show", "no"], ["watch", "no", "--port", "-1"]),
            ],
            ["undrift.cli.progress", "undrift.runs.trackers", "undrift.runs.identity"],
        ),
        ([["resume", "no"]], ["numpy"]),
        (
            [["ls", str(tmp_path / "runs")], ["show", one], ["diff", one, one], ["cite", one]],
            ["torch"],
        ),
    ]
    lines = [
        (line, [name for _, later in stages[stage:] for name in later])
        for stage, (asked, _) in enumerate(stages)
        for line in asked
    ]
    script = """if True:
        import json, sys
        from undrift.cli.app import main
        for line, never in json.load(sys.stdin):
            try:
                main(line)
            except SystemExit as end:
                assert end.code in (None, 0, 2), (line, end.code)
            assert not (imported := sys.modules.keys() & never), (line, imported)
        """
    asked = subprocess.run(
        [sys.executable, "-c", script], input=json.dumps(lines), capture_output=True, text=True
    )
    assert asked.returncode == 0, asked.stderr


def test_the_list_of_commands_has_the_first_sentences_of_their_help() -> None:
    app = application()
    for name, (_, summary) in COMMANDS.items():
        made = app[name]
        text = inspect.getdoc(made.default_command) if made.default_command else made.help
        assert (text or "").split("\n\n")[0].replace("\n", " ") == summary


@pytest.mark.parametrize("encoding", ["latin-1", "cp437", "ascii"])
def test_signs_that_a_stream_lacks_become_question_marks(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding))
    main(["list", "algorithms"])
    assert b"? 1/max(||?_k ? mean ?||," in written.getvalue()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="has no /dev/full")
def test_a_full_output_is_one_sentence_and_the_run_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    for arguments in (
        ["compare", "fedavg", *QUICK, "--model", "Linear()", "--json", "--out", str(out)],
        ["list", "samplers"],
        ["list", "samplers", "--json"],
    ):
        with Path("/dev/full").open("w", encoding="utf-8") as full, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", full)
            with pytest.raises(SystemExit) as exit:
                main(arguments)
        said = capsys.readouterr().err
        assert exit.value.code == 2
        assert "cannot be written: No space left on device" in said
        assert len(said.splitlines()) == 1
    *_, last = run(stored_experiment(out), out)
    assert (last.kind, last.round, last.note) == ("end", 4, None)


def test_a_closed_output_is_none_to_complain_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    main(["list", "samplers", "--json"])
    sys.stdout.close()
