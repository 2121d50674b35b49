"""Exported models: they say what they are, and answer as they did in the evaluation."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from undrift.cli.app import main
from undrift.config import UndriftError
from undrift.data.source import Source
from undrift.data.sources.digits import Digits
from undrift.data.transforms import Chain, FlipAndCrop, Normalise
from undrift.experiment.experiment import Experiment
from undrift.models import MLP
from undrift.runs.deployed import _pixels
from undrift.runs.export import FORMATS, export
from undrift.runs.runner import run


def experiment(**options: Any) -> Experiment:
    texts: dict[str, Any] = {
        "algorithms": ["adabest", "fedadam(lr=1e38)", "local-only"],
        "data": "digits",
        "partition": "Dirichlet(clients=20, alpha=0.3)",
        "model": "MLP(hidden=(8,))",
        "local": "Local(lr=0.1, steps=2, batch_size=8)",
        "sampler": "Uniform(clients=4)",
        "rounds": 4,
    }
    return Experiment(**texts | options)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    for _ in run(experiment(), folder, engine="sequential"):
        pass
    return folder


def network(state: dict[str, Tensor]) -> nn.Module:
    """The network as somebody else would build it."""
    made = MLP(hidden=(8,)).build(64, 10)
    made.load_state_dict(state)
    return made.eval()


LOADED = {
    "model.safetensors": lambda path: network(load_file(path)),
    "model.pt": lambda path: network(torch.load(path, weights_only=True)["state_dict"]),
    "model.pth": lambda path: network(torch.load(path, weights_only=True)["state_dict"]),
    "model.ts": lambda path: torch.jit.load(path),  # type: ignore[no-untyped-call]
    "model.pt2": lambda path: torch.export.load(path).module(),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("name", LOADED)
def test_a_model_answers_as_in_the_evaluation(name: str, done: Path, tmp_path: Path) -> None:
    export(done, tmp_path / name, algorithm="AdaBest")
    model = LOADED[name](tmp_path / name)
    row = json.loads((done / "metrics.jsonl").read_text().splitlines()[0])
    _, data = experiment().prepare(0)
    with torch.no_grad():
        outputs = model(data.test_inputs)
        loss = nn.functional.cross_entropy(outputs, data.test_targets)
    assert float((outputs.argmax(1) == data.test_targets).float().mean()) == pytest.approx(
        row["accuracy"], abs=1e-7
    )
    assert float(loss) == pytest.approx(row["loss"], rel=1e-6)
    whole = network(load_file(done / "models" / "0-AdaBest-seed0.safetensors"))
    with torch.no_grad():
        assert torch.equal(model(data.test_inputs[:2]), whole(data.test_inputs[:2]))


def test_onnx_answers_alike(done: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    export(done, tmp_path / "model.onnx", algorithm="AdaBest")
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    (name,) = (one.name for one in session.get_inputs())
    _, data = experiment().prepare(0)
    whole = network(load_file(done / "models" / "0-AdaBest-seed0.safetensors"))
    for count in (1, 7, len(data.test_inputs)):
        (outputs,) = session.run(None, {name: data.test_inputs[:count].numpy()})
        with torch.no_grad():
            wanted = whole(data.test_inputs[:count])
        assert torch.allclose(torch.from_numpy(outputs), wanted, atol=1e-5)
    facts = json.loads(session.get_modelmeta().custom_metadata_map["undrift"])
    assert facts["network"] == "MLP(hidden=(8,))"


def metadata(path: Path) -> dict[str, Any]:
    """What a file says about its model."""
    if path.suffix == ".safetensors":
        with safe_open(path, framework="pt") as file:
            found: dict[str, Any] = json.loads(file.metadata()["undrift"])
            return found
    if path.suffix == ".pt":
        found = torch.load(path, weights_only=True)["undrift"]
        return found
    texts = {"undrift": ""}
    if path.suffix == ".ts":
        torch.jit.load(path, _extra_files=texts)  # type: ignore[no-untyped-call]
    else:
        torch.export.load(path, extra_files=texts)
    found = json.loads(texts["undrift"])
    return found


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_files_say_what_they_hold(done: Path, tmp_path: Path) -> None:
    expected = {
        "algorithm": "AdaBest(mu=0.02, beta=0.96)",
        "seed": 0,
        "round": 4,
        "network": "MLP(hidden=(8,))",
        "data": "Digits()",
        "input_shape": [64],
    }
    found = metadata(done / "models" / "0-AdaBest-seed0.safetensors")
    assert found.items() >= expected.items()
    for name in ("a.safetensors", "a.pt", "a.ts", "a.pt2"):
        export(done, tmp_path / name, algorithm="AdaBest(mu=0.02, beta=0.96)", seed=0)
        found = metadata(tmp_path / name)
        assert found.items() >= (expected | {"experiment": experiment().hash}).items()


def test_classes_and_normalisation_are_told_if_they_are_known(
    done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = Digits.load

    def named(self: Digits, seed: int) -> Source:
        source = load(self, seed)
        object.__setattr__(source, "class_names", tuple("0123456789"))
        object.__setattr__(source, "normalisation", (Digits(),))
        return source

    monkeypatch.setattr(Digits, "load", named)
    facts = export(done, tmp_path / "a.pt", algorithm="AdaBest")
    assert facts["class_names"] == list("0123456789")
    assert facts["normalisation"] == [{}]
    assert metadata(tmp_path / "a.pt") == facts


def test_pixels_are_normalised_as_told() -> None:
    transform = Chain((FlipAndCrop(), Normalise((0.5,), (0.25,))))
    told = _pixels(transform)
    assert told == {"scale": 255, "mean": [0.5], "std": [0.25]}
    pixels = torch.tensor([[[[0, 100, 255]]]], dtype=torch.uint8)
    by_hand = (pixels / told["scale"] - told["mean"][0]) / told["std"][0]
    assert torch.allclose(transform(pixels), by_hand)
    assert _pixels(None) is None


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("model.pth5", {}, r"--out .*model\.pth5: .*did you mean '\.pth'"),
        ("model", {}, "--out .*model: "),
        (
            "model.pt",
            {},
            "has several algorithms; say which with --algorithm: AdaBest, FedAdam, LocalOnly",
        ),
        ("model.pt", {"algorithm": "LocalOnly"}, r"no common model.* in .*metrics\.jsonl"),
        ("model.pt", {"algorithm": "AdaBst"}, "did you mean 'AdaBest'"),
        ("model.pt", {"algorithm": "AdaBest", "seed": 5}, "--seed 5: .* has the seeds 0"),
        ("model.pt", {"algorithm": "FedAdam"}, "has no model: it ended in round 2: all clients"),
        (
            "model.onnx",
            {"algorithm": "AdaBest"},
            "export to .onnx needs onnx, which is not install",
        ),
    ],
)
def test_mistakes(
    name: str,
    options: Any,
    says: str,
    done: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(UndriftError, match=says):
        export(done, tmp_path / name, **options)
    assert not (tmp_path / name).exists()


def test_a_trial_that_is_not_done_has_no_model(tmp_path: Path) -> None:
    made = experiment(seeds=(0, 1))
    stopped = run(made, tmp_path, engine="sequential")
    while next(stopped).round < 2:
        pass
    stopped.close()
    with pytest.raises(UndriftError, match="is not done yet; `undrift resume"):
        export(tmp_path, tmp_path / "a.pt", algorithm="AdaBest", seed=0)
    with pytest.raises(UndriftError, match="has several seeds; say which with --seed: 0, 1"):
        export(tmp_path, tmp_path / "a.pt", algorithm="AdaBest")


class Moody(nn.Module):
    """A network whose path depends on its inputs, in a way that no trace follows."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layer(inputs) if inputs[-1].sum() < 6 else inputs


@pytest.mark.parametrize("ending", [".ts", ".pt2"])
def test_a_network_that_cannot_be_traced_is_told(ending: str) -> None:
    inputs = torch.arange(6.0).view(3, 2)
    with pytest.raises(UndriftError, match=rf"Moody cannot be exported to \{ending} \(.*\.pt hold"):
        FORMATS[ending](Moody(), inputs, {})


@pytest.mark.parametrize("name", ["AdaBest", "ADABEST", "adabest(beta=0.96)"])
def test_the_command(
    name: str, done: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "model.safetensors"
    main(["export", str(done), "--algorithm", name, "--out", str(out)])
    told = "MLP(hidden=(8,)) for inputs of 64, AdaBest(mu=0.02, beta=0.96), seed 0, round 4"
    assert capsys.readouterr().out == f"{out}: {told}\n"


def test_names_of_the_command_line_are_known(
    done: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["export", str(done), "--algorithm", "local-only", "--out", str(tmp_path / "m.pt")])
    assert "LocalOnly() of " in capsys.readouterr().err
