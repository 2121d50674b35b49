"""Flags that people type and that do not exist: the message says what to write instead."""

from pathlib import Path

import pytest

from undrift.cli.app import main
from undrift.experiment.experiment import Experiment
from undrift.experiment.unknown_settings import INSTEAD, instead

DEMO = str(Path(__file__).parents[2] / "examples" / "demo.toml")


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as exit:
        main([*arguments])
    assert exit.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--device", "cuda"], "experiments run on the CPU"),
        (["--gpu"], "experiments run on the CPU"),
        (
            ["--momentum", "0.8"],
            'wrap the algorithm: "LocalOpt(fedavg, HeavyBall(beta=0.8))"',
        ),
        (["--momentum"], 'wrap the algorithm: "LocalOpt(fedavg, HeavyBall(beta=0.9))"'),
        (["--optimizer", "yogi"], 'wrap the algorithm: "LocalOpt(fedavg, yogi)"'),
        (["--optimiser=adam"], 'wrap the algorithm: "LocalOpt(fedavg, adam)"'),
        (["--server-lr", "0.3"], 'wrap the algorithm: "ServerOpt(fedavg, SGD(lr=0.3))"'),
        (["--clients-per-round", "7"], 'write --sampler "Uniform(7)"'),
        (["--cohort=8"], 'write --sampler "Uniform(8)"'),
        (["--local-epochs", "3"], "write --epochs 3"),
        (["--learning-rate", "0.2"], "write --lr 0.2"),
        (["--num-rounds", "9"], "write --rounds 9"),
        (["--alpha", "0.3"], 'write --partition "Dirichlet(clients=100, alpha=0.3)"'),
        (["--num_clients", "20"], 'write --partition "Dirichlet(clients=20, alpha=0.1)"'),
        (["--lrr", "1"], "Did you mean --lr?"),
    ],
)
def test_compare_says_what_to_write(
    flags: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert says in said(capsys, "compare", "fedavg", *flags)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--lr", "0.2"], "write --set local.lr=0.2"),
        (["--learning-rate", "0.2"], "write --set local.lr=0.2"),
        (["--rounds", "5"], "write --set rounds=5"),
        (["--seeds", "2"], 'write --set "seeds=[0, 1]"'),
        (["--alpha", "0.3"], 'write --set "partition=Dirichlet(clients=100, alpha=0.3)"'),
        (["--device", "cuda"], "experiments run on the CPU"),
        (["--no-such-option", "1"], "Unknown option: --no-such-option"),
    ],
)
def test_run_says_how_to_set_it(
    flags: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert says in said(capsys, "run", DEMO, *flags)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["extend", "RUN", "--lr", "0.2"], "`undrift run RUN/experiment.toml --set local.lr=0.2`"),
        (["extend", "RUN", "--momentum=0.9"], "wrap the algorithm"),
        (["resume", "RUN", "--rounds", "30"], "`undrift extend RUN --rounds 30`"),
        (["resume", "RUN", "--epochs", "2"], "--set local.epochs=2` begins another run"),
        (["cost", "fedavg", "--model", "Linear()"], "--parameters N adds bytes"),
        (["cost", "fedavg", "--lr", "1"], "Unknown option: --lr"),
    ],
)
def test_commands_on_runs_say_what_to_do_instead(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert says in said(capsys, *arguments)


def test_other_commands_do_not_speak_of_experiments(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "ls", "--alpha", "0.1").endswith("Unknown option: --alpha.")


@pytest.mark.parametrize("name", INSTEAD)
def test_what_is_told_works(name: str) -> None:
    setting, text, usual = INSTEAD[name]
    made = text.format(usual)
    change = {setting: [made] if setting == "algorithms" else _read(made)}
    Experiment.from_toml(DEMO, {"local.epochs": None, **change})
    assert made in (instead(name, "", lambda setting, value: value) or "")


def _read(text: str) -> str | float:
    return text if text[0].isalpha() else float(text) if "." in text else int(text)
