"""Experiments as TOML files: every spelling is the same, every mistake is one sentence."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rich.progress  # noqa: F401  (draws random numbers when first imported, which strategies may not)
from hypothesis import given, settings
from hypothesis import strategies as st

from undrift.cli.app import main
from undrift.config import UndriftError
from undrift.experiment.experiment import Experiment
from undrift.experiment.settings import read_change, write
from undrift.training.work import Local

GOOD = """\
# sampler = "one that is commented out"
algorithms = [
    "fedavg",  # rounds = 3
    "AdaBest(mu=0.05)",
    "FedGLAD(fedadam)",
]
data = "digits"
partition = "Dirichlet(clients=100, alpha=0.1)"
model = "mlp"
sampler = "Uniform(5)"
rounds = 20

[local]
lr = 0.1
epochs = 5
"""

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.toml"))


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Experiment]:
    file = tmp_path_factory.mktemp("settings") / "experiment.toml"

    def read(text: str | bytes, changes: dict[str, Any] | None = None) -> Experiment:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return Experiment.from_toml(file, changes)

    return read


def refusal(read: Callable[..., Experiment], *given: Any) -> str:
    """What is said of a file, from its name on; one sentence."""
    with pytest.raises(UndriftError) as error:
        read(*given)
    said = str(error.value)
    assert said.splitlines() == [said]
    return said.rpartition("/experiment.toml")[2] if "/experiment.toml" in said else said


# Writing and reading back

FLOATS = st.floats(1e-9, 1e9)
ALGORITHMS = st.one_of(
    st.sampled_from(["FedAvg()", "SCAFFOLD()", "FedGBO(Adam())", "FedGLAD(fedadam)", "MFL()"]),
    st.sampled_from(["FedAvg(weights='uniform')", "fedglad+ida", "Clip(FedAvg(), norm=inf)"]),
    FLOATS.map("FedProx(mu={})".format),
    st.tuples(FLOATS, st.floats(0, 1)).map(lambda two: "AdaBest(mu={}, beta={})".format(*two)),
)
WORK = st.one_of(
    st.builds(dict, epochs=st.none() | st.floats(1e-9, 1e6)),
    st.builds(dict, steps=st.integers(1, 99)),
)
LOCALS = st.builds(
    lambda work, **others: Local(**others, **work),
    WORK,
    lr=FLOATS,
    lr_decay=st.floats(0.01, 1),
    weight_decay=st.just(0) | FLOATS,
    batch_size=st.integers(1, 999),
    batching=st.sampled_from(["bootstrap", "wrap", "drop", "keep", "full"]),
)
EXPERIMENTS = st.builds(
    Experiment,
    algorithms=st.lists(ALGORITHMS, min_size=1, max_size=6, unique=True),
    data=st.sampled_from(["digits", "emnist(first=10)", "AGNews(train='a \\x7f\"é.csv')"]),
    partition=FLOATS.map("Dirichlet(clients=99, alpha={})".format) | st.just("Natural()"),
    model=st.sampled_from(["mlp", "MLP(hidden=(7,))", "Linear()", "ResNet56()"]),
    local=LOCALS,
    sampler=st.sampled_from(["Uniform(5)", "Bernoulli(0.2)", "Explicit(((0, 1), (2,)))"]),
    rounds=st.integers(1, 10**9),
    seeds=st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=30, unique=True),
    every=st.integers(1, 99),
    validation=st.integers(0, 90),
    target=st.none() | st.floats(0.01, 1),
    dropout=st.floats(0, 1, exclude_max=True),
    all_clients=st.booleans(),
    all_updates=st.booleans(),
)


@given(EXPERIMENTS)
@settings(deadline=None)
def test_what_is_written_can_be_read_back(
    read: Callable[..., Experiment], made: Experiment
) -> None:
    text = made.to_toml()
    again = read(text)
    assert again == made
    assert again.hash == made.hash
    assert again.to_toml() == text
    assert Experiment(**made.resolved()) == made


@given(st.text(), st.integers(), st.lists(st.text(), max_size=9), st.floats(allow_nan=False))
def test_every_plain_value_is_written_as_toml(
    text: str, number: int, texts: list[str], real: float
) -> None:
    content = {"a": text, "b": number, "c": texts, "d": real, "e": True, "t": {"x": text}}
    assert tomllib.loads(write(content | {"none": None})) == content


def test_a_text_a_table_and_dotted_keys_are_one_experiment(
    read: Callable[..., Experiment],
) -> None:
    head, table = GOOD.split("[local]\n")
    spelled = [
        GOOD,
        head + 'local = "Local(lr=0.1, epochs=5)"',
        head + "local = { lr = 0.1, epochs = 5 }",
        head + "".join(f"local.{line}\n" for line in table.splitlines()),
        GOOD.replace("\n", "\r\n"),
    ]
    assert len({read(text).hash for text in spelled}) == 1


# Changing


@pytest.mark.parametrize(
    ("change", "field", "value"),
    [
        ("rounds=7", "rounds", 7),
        ("seeds=[0, 1]", "seeds", (0, 1)),
        ("local.lr=0.05", "local", Local(lr=0.05, epochs=5)),
        ("target = 0.5", "target", 0.5),
        ("target=None", "target", None),
        ("all_clients=true", "all_clients", True),
    ],
)
def test_changes(read: Callable[..., Experiment], change: str, field: str, value: Any) -> None:
    changed = read(GOOD, dict([read_change(change)]))
    assert getattr(changed, field) == value
    others = {key: one for key, one in read(GOOD).resolved().items() if key != field}
    assert others.items() <= changed.resolved().items()


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        (["partition.alpha=0.3"], 'partition = "Dirichlet(clients=100, alpha=0.3)"'),
        (["sampler=Uniform(10)"], 'sampler = "Uniform(clients=10)"'),
        (["sampler.clients=3", "sampler=MD(10)"], 'sampler = "MD(clients=3)"'),
        (["model.hidden=[5, 6]"], 'model = "MLP(hidden=(5, 6))"'),
        (['algorithms=["fedavg", "FedProx(0.1)"]'], '["FedAvg()", "FedProx(mu=0.1)"]'),
        (["local.steps=3", "local.epochs=None"], "steps = 3"),
        (["local=Local(steps=3)"], "steps = 3"),
    ],
)
def test_changes_of_objects(
    read: Callable[..., Experiment], changes: list[str], shown: str
) -> None:
    assert shown in read(GOOD, dict(map(read_change, changes))).to_toml()


@pytest.mark.parametrize("value", [0.05, "x", [1, "y"], True, "a = b"])
def test_a_value_of_a_change_is_toml(value: Any) -> None:
    assert read_change(write({"k": value})) == ("k", value)


@pytest.mark.parametrize("text", ["digits", "Uniform(10)", "1\nb = 2", "[" * 5000, "", "a = b"])
def test_what_is_not_toml_is_text(text: str) -> None:
    assert read_change(f"k={text}") == ("k", text)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"locl.lr": 0.05}, "locl.lr=0.05: no setting is called 'locl'; did you mean 'local'?"),
        ({"round": 5}, "round=5: no setting is called 'round'; did you mean 'rounds'?"),
        ({"local.lrr": 1}, "local.lrr=1: no setting of Local is called 'lrr'; did you mean 'lr'?"),
        (
            {"local.momentum": 0.8},
            "local.momentum=0.8: no setting of Local is called 'momentum'; wrap the algorithm: "
            '"LocalOpt(fedavg, HeavyBall(beta=0.8))"',
        ),
        ({"learning_rate": 0.2}, "learning_rate=0.2: no setting is called 'learning_rate'; write "),
        ({"local.lr": -1}, "local.lr=-1: Local(lr=-1): lr must be a number > 0"),
        ({"partition.alpha": 0}, "partition.alpha=0: Dirichlet(alpha=0): alpha must be"),
        ({"algorithms": ["fedavg", "adabst"]}, "algorithms=['fedavg', 'adabst']: no algorithm"),
        ({"algorithms.mu": 1}, "algorithms.mu=1: algorithms cannot be changed in part"),
        ({"rounds": 2**63}, "rounds=9223372036854775808: a number is larger than"),
        ({"data": None}, ": data must be given"),
        ({"local.steps": 3}, ", line 15 and local.steps=3: Local("),
        ({"sampler.clients": 101}, ", line 8 and sampler.clients=101: Experiment("),
        ({"sampler": "Uniform(101)"}, ", line 8 and sampler=Uniform(101): Experiment("),
    ],
)
def test_a_mistake_in_a_change(
    read: Callable[..., Experiment], changes: dict[str, Any], says: str
) -> None:
    assert refusal(read, GOOD, changes).startswith(says)


def test_a_mistake_in_the_file_is_not_blamed_on_a_change(
    read: Callable[..., Experiment],
) -> None:
    wrong = GOOD.replace("alpha=0.1", "alpha=-1")
    assert refusal(read, wrong, {"partition.alpha": 0.3}).startswith(
        ", line 8: Dirichlet(alpha=-1)"
    )


# Mistakes in files


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("\nsampler", "\nsampeler", ", line 10: no setting is called 'sampeler'; did"),
        ("alpha=0.1", "alpha=-1", ", line 8: Dirichlet(alpha=-1): alpha must be a number > 0"),
        ("lr = 0.1", "lr = 0", ", line 14: Local(lr=0): lr must be a number > 0"),
        ("epochs", "epoch", ", line 15: no setting of local is called 'epoch'; did you mean 'ep"),
        ("epochs", "momentum", ", line 15: no setting of local is called 'momentum'; wrap the"),
        ("fedadam", "fedadm", ", line 5: no algorithm is called 'fedadm'; did you mean 'FedAdam'"),
        ("AdaBest(mu=0.05)", "FedAvg", ", lines 3 and 4: FedAvg() is named twice"),
        ('"fedavg"', "5", ', line 3: 5 is not an algorithm, such as "fedavg"'),
        ("rounds = 20", "rounds = 2.5", ", line 11: Experiment(rounds=2.5): rounds must be"),
        ("rounds = 20", "all_clients = 1", ", line 11: Experiment(all_clients=1): all_cl"),
        ("rounds = 20", "seeds = 3", ", line 11: Experiment(seeds=3): give a list, such as [0"),
        ("rounds = 20", "seeds = [true]", ", line 11: Experiment(seeds=[True]): give different"),
        ('"digits"', "5", ', line 7: data=5: must be a text such as "digits"'),
        ("epochs = 5", "epochs = 5\nsteps = 3", ", lines 15 and 16: Local(epochs=5.0, steps=3)"),
        ("epochs = 5", "epochs = 5\nseeds = [3]", ", line 16: seeds is inside [local]; move"),
        ("Uniform(5)", "Uniform(101)", ", lines 8 and 10: Experiment(sampler=Uniform("),
        ("rounds = 20", "validation = 100", ", lines 8 and 11: Experiment(partition="),
        ('sampler = "Uniform(5)"', "", ": sampler must be given; `undrift"),
        ('"mlp"', "mlp", ", line 9, column 9: not valid TOML: 'mlp' is not a value; write text"),
        ("20", "", ", line 11, column 10: not valid TOML: a value is missing"),
        ('"digits"', '"digits', ", line 7, column 15: not valid TOML: Illegal character '\\n'"),
        ("rounds = 20", "rounds = 20\nrounds = 3", ", line 12: rounds is given twice, fi"),
        ("epochs = 5", "[local]", ", line 15: local is given twice, first on line 13"),
        ("rounds = 20", "rounds = 20\nrounds.x = 1", ", line 12, column 13: not valid TOML"),
        ("[local]", "[[local]]", ", line 13: local=[{'lr': 0.1, 'epochs': 5}]: must be a tab"),
        ("20", "9" * 5000, ", line 11: a number is larger than 9223372036854775807"),
        ("20", "0x" + "f" * 5000, ", line 11: a number is larger than 9223372036854775807"),
        ("(5)", f"(0x{'f' * 5000})", ", line 10: 'Uniform(0xffff"),
        ("20", "[" * 5000 + "]" * 5000, ": values are nested too deeply"),
        ("20", "[" * 200 + "]" * 200, ", line 11: Experiment(rounds=[[["),
        ("mlp", "m\0p", ", line 9, column 11: not valid TOML: Illegal character '\\x00'"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_file(
    read: Callable[..., Experiment], old: str, new: str, says: str
) -> None:
    assert old in GOOD
    said = refusal(read, GOOD.replace(old, new, 1))
    assert said.startswith(says)
    assert len(said) < 800


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", ": algorithms, data, partition, model, local, sampler must be given"),
        (b"rounds = 3\nx = '\xe9'", ", line 2: this is not text in UTF-8"),
        (b"rounds", ", at its end: not valid TOML: Expected '='"),
    ],
)
def test_a_file_that_is_no_experiment(
    read: Callable[..., Experiment], content: bytes, says: str
) -> None:
    assert refusal(read, content).startswith(says)


def test_mistakes_with_algorithms_say_what_would_be_right(read: Callable[..., Experiment]) -> None:
    said = refusal(read, GOOD.replace("FedGLAD(fedadam)", "fedadam+fedglad"))
    assert said.endswith("so it stands last: fedglad+fedadam")
    said = refusal(read, GOOD.replace("fedavg", "FedAvg(lr=0.5)"))
    assert said.endswith(
        "(local.lr, --lr), and the server's that of ServerOpt(FedAvg(), SGD(lr=0.5))"
    )


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for path in tmp_path, tmp_path / "absent.toml":
        with pytest.raises(UndriftError, match="cannot be read"):
            Experiment.from_toml(path)


@given(st.data())
@settings(deadline=None, max_examples=200)
def test_whatever_a_file_holds_there_is_no_traceback(
    read: Callable[..., Experiment], data: st.DataObject
) -> None:
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(GOOD))] * 2)))
    middle = data.draw(st.text("=[]{}\"'#,.\n\\ 0aé\0", max_size=9) | st.just(GOOD[end:] + "\n"))
    said = ""
    try:
        read((GOOD[:start] + middle + GOOD[end:]).encode())
    except UndriftError as error:
        said = str(error)
    assert len(said.splitlines()) <= 1


# The command line


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    main([*arguments, "--dry-run"])
    return capsys.readouterr().out


def test_a_dry_run_prints_the_file_that_is_the_same_experiment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    flags = ["fedavg", "FedGLAD(fedadam)", "--epochs", "5", "--seeds", "2", "--sampler", "MD(3)"]
    text = shown(capsys, "compare", *flags)
    (tmp_path / "mine.toml").write_text(text)
    assert shown(capsys, "run", "mine.toml") == text
    changed = shown(capsys, "run", "mine.toml", "--set", "local.lr=0.05", "--set", "seeds=[7]")
    assert changed == text.replace("lr = 0.1", "lr = 0.05").replace("[0, 1]", "[7]")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.toml"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("locl.lr=0.05", "undrift: --set locl.lr=0.05: no setting is called 'locl'; did you mean"),
        ("rounds", "undrift: --set rounds: write NAME=VALUE, such as local.lr=0.05"),
        (
            "rounds=0",
            "undrift: --set rounds=0: Experiment(rounds=0): rounds must be a whole number",
        ),
    ],
)
def test_a_mistake_names_the_flag(
    change: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.toml").write_text(GOOD)
    with pytest.raises(SystemExit):
        shown(capsys, "run", str(tmp_path / "mine.toml"), "--set", change)
    assert capsys.readouterr().err.startswith(says)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_can_be_run_without_their_data(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = shown(capsys, "run", str(path))
    (tmp_path / "again.toml").write_text(text)
    assert shown(capsys, "run", str(tmp_path / "again.toml")) == text
    comments = itertools.takewhile(
        lambda line: line[0] == "#", path.read_text(encoding="utf-8").splitlines()
    )
    assert len(list(comments)) >= 1
