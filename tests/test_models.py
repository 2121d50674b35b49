"""The papers' networks have the papers' sizes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from undrift.config import UndriftError
from undrift.models import MODELS, Shape
from undrift.task import Task

SIZES = [
    ("mlp", (1, 28, 28), 10, 89_610),
    ("mlp", 784, 26, 91_226),
    ("adabest_cnn", (3, 32, 32), 10, 797_962),
    ("adabest_cnn", (3, 32, 32), 100, 815_332),
    ("fedgbo_cnn", (3, 32, 32), 100, 1_250_852),
    ("fedgbo_cnn", (3, 28, 28), 100, 890_404),
    ("fedgbo_cnn", (1, 28, 28), 62, 870_334),
    ("linear", 5000, 2, 10_002),
    ("fedgbo_gru", (80,), 79, 162_887),
]


@pytest.mark.parametrize(("name", "shape", "classes", "n"), SIZES)
def test_parameters_and_outputs(name: str, shape: Shape, classes: int, n: int) -> None:
    with torch.device("meta"):
        model = MODELS[name](shape, classes)
        sample = (3, shape) if isinstance(shape, int) else (3, *shape)
        outputs = model(torch.zeros(sample, dtype=torch.int64 if "gru" in name else torch.float32))
    assert sum(p.numel() for p in model.parameters()) == n
    assert outputs.shape == (3, classes)


def test_every_model_is_tested() -> None:
    assert {name for name, *_ in SIZES} == set(MODELS)


def test_pooling_before_relu_changes_nothing() -> None:
    torch.manual_seed(0)
    model = MODELS["fedgbo_cnn"]((1, 10, 10), 3)
    assert isinstance(model, nn.Sequential)
    swapped = list(model)
    for i, layer in enumerate(model):
        if isinstance(layer, nn.MaxPool2d):
            swapped[i : i + 2] = model[i + 1], layer
    images = torch.randn(4, 1, 10, 10)
    grads = []
    for net in (model, nn.Sequential(*swapped)):
        outputs = net(images)
        grads.append(torch.autograd.grad(outputs.square().sum(), list(net.parameters())))
        assert torch.equal(outputs, model(images))
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


def test_gru_is_a_function_of_its_vector() -> None:
    torch.manual_seed(0)
    task = Task(MODELS["fedgbo_gru"](5, 7))
    inputs, targets = torch.randint(7, (4, 5)), torch.randint(7, (4,))
    _, gradient = task.gradient(task.x0, {}, inputs, targets)
    assert all(bool(part.abs().sum() > 0) for part in gradient.split(task.sizes))
    still, _ = task.gradient(0 * task.x0, {}, inputs, targets)
    assert still == pytest.approx(torch.tensor(7.0).log().item())


@pytest.mark.parametrize("shape", [784, (28, 28), (3, 9, 9)])
def test_images_must_fit(shape: Shape) -> None:
    with pytest.raises(UndriftError, match="shape="):
        MODELS["adabest_cnn"](shape, 10)
