"""The papers' networks have the papers' sizes, and learn as they are."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from undrift.algorithms import FedAvg
from undrift.config import UndriftError
from undrift.config.expressions import parse
from undrift.data.federated import FederatedData
from undrift.federation.rounds import rounds
from undrift.federation.sampling import Uniform
from undrift.measure.cost import forward_flops
from undrift.models import MODELS, Model, Shape
from undrift.models.layers import ChannelsLast, Padded
from undrift.training.losses import suitable_loss
from undrift.training.task import Task
from undrift.training.work import Local

needs_transformers = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None,
    reason="the library transformers is not installed (extra: text)",
)

SIZES = [
    ("mlp", (1, 28, 28), 10, 89_610),
    ("mlp", 784, 26, 91_226),
    ("MLP(hidden=[384])", 64, 10, 64 * 384 + 384 + 384 * 10 + 10),
    ("linear", 5000, 2, 10_002),
    ("adabest_cnn", (3, 32, 32), 10, 797_962),
    ("adabest_cnn", (3, 32, 32), 100, 815_332),
    ("fedgbo_cnn", (3, 32, 32), 100, 1_250_852),
    ("fedgbo_cnn", (3, 28, 28), 100, 890_404),
    ("fedgbo_cnn", (1, 28, 28), 62, 870_334),
    ("fedglad_cnn", (1, 28, 28), 10, 1_199_882),
    ("fedglad_cnn", (1, 28, 28), 62, 1_206_590),
    ("resnet56", (3, 32, 32), 10, 591_322),
    ("ResNet56(form='basic')", (3, 32, 32), 10, 853_018),
    ("ResNet56(form='projection')", (3, 32, 32), 10, 855_770),
    ("fedgbo_gru", (80,), 79, 162_887),
    ("BiLSTM(words=1000)", (30,), 20, 1_444_800 + 12_020 + 300_000),
    ("BiLSTM(words=1000, frozen=True)", (30,), 4, 1_444_800 + 2_404),
    ("stackoverflow_lstm", (20,), 10_004, 4_050_748),
    pytest.param("DistilBERT(None)", (9,), 20, 66_968_852, marks=needs_transformers),
    pytest.param("DistilBERT(None)", (9,), 4, 66_956_548, marks=needs_transformers),
]
TEXT = {"FedGBOGRU", "BiLSTM", "StackOverflowLSTM", "DistilBERT"}
SMALL_BERT = "DistilBERT(None, words=30, layers=2, heads=2, width=8, hidden=16)"


def model(name: str) -> Model:
    return parse(name, MODELS, "model")


def examples(made: Model, n: int, shape: Shape) -> Tensor:
    size = (n, shape) if isinstance(shape, int) else (n, *shape)
    if type(made).__name__ in TEXT:
        return torch.randint(2, 12, size)
    return torch.randn(size)


@pytest.mark.parametrize(("name", "shape", "classes", "n"), SIZES)
def test_parameters_and_outputs(name: str, shape: Shape, classes: int, n: int) -> None:
    made = model(name)
    assert model(repr(made)) == made
    with torch.device("meta"):
        network = made.build(shape, classes)
    assert sum(p.numel() for p in network.parameters() if p.requires_grad) == n
    if "BERT" not in name:  # which looks at the values of its mask
        with torch.device("meta"):
            outputs = network(examples(made, 3, shape))
        assert outputs.shape == ((3, classes, 20) if "stack" in name else (3, classes))


def test_every_model_is_tested() -> None:
    names = [getattr(case, "values", case)[0] for case in SIZES]
    assert {type(model(str(name))).__name__ for name in names} == set(MODELS)


# Images


@pytest.mark.parametrize("name", ["AdaBestCNN", "FedGBOCNN", "FedGLADCNN"])
@pytest.mark.parametrize("channels", [1, 3])
def test_pooling_first_and_channels_last_change_nothing(name: str, channels: int) -> None:
    torch.manual_seed(0)
    network = model(name).build((channels, 16, 16), 3).double().eval()
    assert isinstance(network, nn.Sequential)
    plain = [layer for layer in network if not isinstance(layer, ChannelsLast)]
    for i in [i for i, layer in enumerate(plain) if isinstance(layer, nn.MaxPool2d)]:
        plain[i : i + 2] = plain[i + 1], plain[i]
    images = torch.randn(4, channels, 16, 16, dtype=torch.float64)
    outputs, grads = [], []
    for net in (network, nn.Sequential(*plain)):
        outputs.append(net(images))
        grads += [torch.autograd.grad(outputs[-1].square().sum(), list(net.parameters()))]
    assert torch.allclose(*outputs, rtol=1e-12)
    assert all(torch.allclose(a, b, rtol=1e-10) for a, b in zip(*grads, strict=True))


@pytest.mark.parametrize("channels", [1, 3])
def test_channels_last_is_only_a_layout(channels: int) -> None:
    images = torch.randn(2, channels, 5, 6)
    laid_out = ChannelsLast()(images)
    assert torch.equal(laid_out, images)
    assert laid_out.stride() == (30 * channels, 1, 6 * channels, channels)


@pytest.mark.parametrize("name", ["AdaBestCNN", "FedGLADCNN"])
@pytest.mark.parametrize("shape", [784, (28, 28), (3, 5, 5)])
def test_images_must_fit(name: str, shape: Shape) -> None:
    with pytest.raises(UndriftError, match="shape="):
        model(name).build(shape, 10)


def test_zero_padded_shortcuts_add_no_parameters() -> None:
    network = model("ResNet56(form='basic')").build((3, 8, 8), 4)
    shortcut = next(module for module in network.modules() if isinstance(module, Padded))
    x = torch.randn(2, 16, 8, 8)
    y = shortcut(x)
    assert y.shape == (2, 32, 4, 4)
    assert torch.equal(y[:, 8:24], x[:, :, ::2, ::2])
    assert not y[:, :8].any()
    assert not y[:, 24:].any()


# Federated training


def play(task: Task, inputs: Tensor, targets: Tensor, total: int = 2) -> Any:
    """The last of a few rounds of FedAvg with three clients."""
    thirds = np.array_split(np.arange(len(targets)), 3)
    data = FederatedData.of_clients([(inputs[part], targets[part]) for part in thirds])
    local = Local(lr=0.05, batch_size=4, epochs=1)
    return list(rounds(FedAvg(), task, data, total=total, sampler=Uniform(2), local=local))[-1]


CASES = [
    ("MLP(hidden=(8,))", (1, 6, 6)),
    ("Linear", (12,)),
    ("AdaBestCNN", (3, 16, 16)),
    ("FedGBOCNN", (1, 12, 12)),
    ("FedGLADCNN", (1, 8, 8)),
    ("ResNet56", (3, 8, 8)),
    ("ResNet56(form='basic')", (3, 8, 8)),
    ("FedGBOGRU", (7,)),
    ("BiLSTM(words=12, width=5, hidden=6)", (7,)),
    ("StackOverflowLSTM(width=5, hidden=6)", (7,)),
    pytest.param(SMALL_BERT, (7,), marks=needs_transformers),
]


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_every_model_trains(name: str, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    made, classes = model(name), 12
    inputs = examples(made, 24, shape)
    targets = torch.randint(classes, (24, 7) if "Stack" in name else (24,))
    task = Task(made.build(shape, classes), suitable_loss(targets))
    _, gradient = task.gradient(task.x0, task.unpack(task.buffers0), inputs, targets)
    moved = dict(zip(task.names, gradient.split(task.sizes), strict=True))
    assert all(bool(part.abs().sum() > 0) for key, part in moved.items() if "k_lin.bias" not in key)
    last = play(task, inputs, targets, total=1)
    assert len(last.delivered) == 2
    assert not torch.equal(last.server.x, task.x0)
    loss, accuracy = task.evaluate(last.server.x, last.buffers, inputs, targets)
    assert 0 < loss < math.inf
    assert 0 <= accuracy <= 1
    assert forward_flops(task.model, inputs) > 0


def test_batch_statistics_are_averaged() -> None:
    torch.manual_seed(0)
    task = Task(model("ResNet56").build((3, 8, 8), 4))
    inputs, targets = torch.randn(24, 3, 8, 8), torch.randint(4, (24,))
    last = play(task, inputs, targets)
    before, after = task.unpack(task.buffers0), task.unpack(last.buffers)
    assert len(before) == 3 * 58  # 55 convolutions on the path and 3 in shortcuts
    for name, buffer in after.items():
        assert not torch.equal(buffer, before[name])
        assert bool(torch.isfinite(buffer).all())
        if "tracked" in name:
            assert int(buffer) == 4  # two steps in each of two rounds


# Texts


def test_gru_is_a_function_of_its_vector() -> None:
    torch.manual_seed(0)
    task = Task(model("FedGBOGRU").build(5, 7))
    inputs, targets = torch.randint(7, (4, 5)), torch.randint(7, (4,))
    still, _ = task.gradient(0 * task.x0, {}, inputs, targets)
    assert still == pytest.approx(torch.tensor(7.0).log().item())


def test_padding_changes_no_prediction_of_the_largest_outputs() -> None:
    torch.manual_seed(0)
    network = model("BiLSTM(words=9, width=4, hidden=3)").build((6,), 2)
    texts = torch.tensor([[3, 4, 0, 0], [0, 0, 0, 0]])
    scores = network(texts)
    assert torch.isfinite(scores).all()
    scores.sum().backward()
    weight = network.get_parameter("embed.weight")
    assert weight.grad is not None
    assert torch.isfinite(weight.grad).all()
    assert not weight.grad[0].any()
    assert not weight[0].any()


GLOVE = "the 1 0 0.5\nof -1 2e-3 1\nd'or . 9 9 9\nred 0.25 0 0\n"
WORDS = ["", "", "red", "the", "blue"]


def vectors_of(tmp_path: Path, kind: str) -> Path:
    path = tmp_path / f"vectors.{kind}"
    if kind == "npy":
        np.save(path, np.array([[1, 0, 0.5], [-1, 2e-3, 1], [0.25, 0, 0]]))
        path.with_suffix(".txt").write_text("the\nof\nred\n")
    else:
        path.write_text(("3 3\n" if kind == "vec" else "") + GLOVE)
    return path


@pytest.mark.parametrize("kind", ["txt", "vec", "npy"])
@pytest.mark.parametrize("told", ["data", "file"])
def test_vectors_from_a_file(kind: str, told: str, tmp_path: Path) -> None:
    options = f"vectors={str(vectors_of(tmp_path, kind))!r}, width=3, hidden=2"
    if told == "file":
        (tmp_path / "words").write_text("\n".join(WORDS))
        options += f", vocabulary={str(tmp_path / 'words')!r}"
    torch.manual_seed(0)
    made = model(f"BiLSTM({options})")
    weight = made.build((6,), 2, WORDS if told == "data" else ()).get_parameter("embed.weight")
    assert weight.shape == (5, 3)
    assert weight[[0, 2, 3]].tolist() == [[0, 0, 0], [0.25, 0, 0], [1, 0, 0.5]]
    assert 0 < float(weight[4].detach().abs().max()) < 4
    frozen = model(f"BiLSTM({options}, frozen=True)").build((6,), 2, WORDS)
    assert not any("embed" in name for name in Task(frozen).names)


def test_files_are_looked_for_in_the_data_folder_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNDRIFT_DATA_DIR", str(tmp_path))
    vectors_of(tmp_path, "txt")
    (tmp_path / "words").write_text("\n".join(WORDS))
    made = model("BiLSTM(vectors='vectors.txt', vocabulary='words', width=3)")
    assert made.build((6,), 2).get_parameter("embed.weight")[3].tolist() == [1, 0, 0.5]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("the 1 2\n", "line 1: expected a word and 3 numbers"),
        ("of 1 2 3\nthe 1 x 3\n", "line 2: expected 3 numbers after 'the'"),
        ("nobody 1 2 3\n", "none of the 5 words"),
        ("", "none of the 5 words"),
        (b"the \xff 1 2\n", "not UTF-8"),
        (None, "No such file"),
    ],
)
def test_files_of_vectors_that_cannot_be_used(
    content: str | bytes | None, says: str, tmp_path: Path
) -> None:
    path = tmp_path / "vectors.txt"
    if content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    made = model(f"BiLSTM(vectors={str(path)!r}, width=3)")
    with pytest.raises(UndriftError, match=says):
        made.build((6,), 2, WORDS)


def test_arrays_of_vectors_that_cannot_be_used(tmp_path: Path) -> None:
    path = vectors_of(tmp_path, "npy")
    made = model(f"BiLSTM(vectors={str(path)!r}, width=4)")
    with pytest.raises(UndriftError, match=r"expected numbers of shape \(3, 4\)"):
        made.build((6,), 2, WORDS)
    np.save(path, np.array([{}]), allow_pickle=True)
    with pytest.raises(UndriftError, match="cannot be read"):
        made.build((6,), 2, WORDS)


def test_a_vocabulary_is_needed(tmp_path: Path) -> None:
    with pytest.raises(UndriftError, match=r"give words=\.\.\."):
        model("BiLSTM").build((6,), 2)
    with pytest.raises(UndriftError, match="has 5 words"):
        model("BiLSTM(words=4)").build((6,), 2, WORDS)
    made = model(f"BiLSTM(words=9, vectors={str(vectors_of(tmp_path, 'txt'))!r}, width=3)")
    with pytest.raises(UndriftError, match=r"give vocabulary=\.\.\."):
        made.build((6,), 2)


@needs_transformers
def test_distilbert_from_a_folder(tmp_path: Path) -> None:
    torch.manual_seed(0)
    first = model(SMALL_BERT).build((7,), 3)
    inner: Any = first.get_submodule("inner")
    inner.save_pretrained(tmp_path)
    loaded = model(f"DistilBERT({str(tmp_path)!r})").build((7,), 3)
    texts = torch.tensor([[2, 5, 7, 0, 0]])
    assert torch.equal(first.eval()(texts), loaded.eval()(texts))
    assert torch.allclose(loaded(texts), loaded(texts[:, :3]), atol=1e-6)  # padding is left out
    other = model(f"DistilBERT({str(tmp_path)!r})").build((7,), 5)
    assert other(texts).shape == (1, 5)


@needs_transformers
def test_distilbert_with_other_weights(tmp_path: Path) -> None:
    first: Any = model(SMALL_BERT).build((7,), 3).get_submodule("inner")
    first.half().save_pretrained(tmp_path)
    loaded = model(f"DistilBERT({str(tmp_path)!r})").build((7,), 3)
    assert all(p.dtype == torch.float32 for p in loaded.parameters())
    config = (tmp_path / "config.json").read_text().replace('"dim": 8', '"dim": 16')
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(UndriftError, match=r"weights have no distilbert\..* of the right size"):
        model(f"DistilBERT({str(tmp_path)!r})").build((7,), 3)


@needs_transformers
@pytest.mark.parametrize(
    ("words", "length", "says"),
    [
        (("", "", "a"), 7, "word ids, not word pieces"),
        (("[PAD]", "a"), 7, "vocabulary of 30 word pieces, the data's tokenizer of 2"),
        ((), 513, "reads at most 512 word pieces, these texts have 513"),
    ],
)
def test_distilbert_and_its_word_pieces(words: tuple[str, ...], length: int, says: str) -> None:
    with pytest.raises(UndriftError, match=says):
        model(SMALL_BERT).build((length,), 3, words)


@pytest.mark.parametrize(
    "name",
    [
        "FedGBOGRU",
        "BiLSTM(words=12)",
        "StackOverflowLSTM",
        pytest.param(SMALL_BERT, marks=needs_transformers),
    ],
)
def test_networks_for_texts_refuse_what_they_cannot_read(name: str) -> None:
    network = model(name).build((7,), 12)
    for texts, says in (
        (torch.full((1, 7), 30), "token ids 30 to 30, the network has 0 to"),
        (torch.full((1, 7), -1), "token ids -1 to -1, the network has 0 to"),
        (torch.zeros(1, 7), r"rows of token ids, found float32 of shape \(1, 7\)"),
    ):
        with pytest.raises(UndriftError, match=says):
            network(texts)


@pytest.mark.parametrize("name", ["MLP", "Linear"])
def test_networks_for_numbers_refuse_texts(name: str) -> None:
    with pytest.raises(UndriftError, match=r"needs real numbers, these samples are torch.int64"):
        model(name).build((7,), 3)(torch.ones(1, 7, dtype=torch.int64))


@needs_transformers
@pytest.mark.parametrize("weights", ["nowhere/to/be/found", "no-such-model"])
def test_distilbert_downloads_nothing(weights: str) -> None:
    with pytest.raises(UndriftError, match="give a folder"):
        model(f"DistilBERT({weights!r})").build((7,), 3)


def test_distilbert_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(UndriftError, match=r'pip install "\.\[text\]"'):
        model("DistilBERT").build((7,), 3)
    with pytest.raises(UndriftError, match="multiple of heads"):
        model("DistilBERT(width=10, heads=3)")
