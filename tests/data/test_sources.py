"""Data sets: what is in them, and what their parameters do."""

import re

import numpy as np
import pytest
import torch

from undrift.config import UndriftError
from undrift.config.expressions import parse
from undrift.data.sources import SOURCES, Digits, Synthetic


def client_means(source):
    """The mean input of each client."""
    owners = source.client_ids
    return np.stack([source.inputs[owners == k].numpy().mean(axis=0) for k in np.unique(owners)])


def same(one, two):
    fields = ("inputs", "targets", "test_inputs", "test_targets")
    return all(torch.equal(getattr(one, name), getattr(two, name)) for name in fields)


def test_digits():
    digits = Digits().load(0)
    assert digits.inputs.shape == (1437, 64)
    assert digits.test_inputs.shape == (360, 64)
    assert (digits.inputs.dtype, digits.targets.dtype) == (torch.float32, torch.int64)
    assert digits.classes == 10
    for inputs in (digits.inputs, digits.test_inputs):
        assert inputs.min() == 0
        assert inputs.max() == 1
    train, test = (np.bincount(y, minlength=10) for y in (digits.targets, digits.test_targets))
    assert (train + test).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert (np.abs(test - (train + test) / 5) < 1).all()


def test_digits_are_the_same_for_every_seed():
    assert same(Digits().load(0), Digits().load(1))


def test_digits_can_be_learnt():
    digits = Digits().load(0)
    centres = torch.stack([digits.inputs[digits.targets == c].mean(0) for c in range(10)])
    guess = torch.cdist(digits.test_inputs, centres).argmin(1)
    assert (guess == digits.test_targets).float().mean() > 0.85


def test_synthetic_shapes():
    source = Synthetic().load(0)
    assert source.inputs.shape == (len(source.targets), 60)
    assert (source.inputs.dtype, source.targets.dtype) == (torch.float32, torch.int64)
    assert source.classes == 10
    assert 0 <= source.targets.min() <= source.targets.max() < 10
    sizes = np.bincount(source.client_ids)
    assert len(sizes) == 30
    assert sizes.min() >= 40  # 50 samples, a fifth of them for testing
    assert np.median(sizes) < sizes.mean() / 1.5  # many small clients, few large ones
    assert len(source.test_targets) == pytest.approx(len(source.targets) / 4, abs=30)


def test_synthetic_with_equal_clients():
    source = Synthetic(clients=7, samples=50).load(0)
    assert np.bincount(source.client_ids).tolist() == [40] * 7
    assert len(source.test_targets) == 70


def test_synthetic_spread_of_features():
    source = Synthetic(clients=1, samples=20_000).load(0)
    variance = source.inputs.var(dim=0)
    assert variance.numpy() == pytest.approx(np.arange(1, 61) ** -1.2, rel=0.1)


def test_beta_is_the_variance_of_the_clients_inputs():
    source = Synthetic(0, 9.0, clients=400, samples=50).load(0)
    levels = client_means(source).mean(axis=1)  # B_k, and of 60 features' own means 1/60
    assert levels.var() == pytest.approx(9 + 1 / 60, rel=0.25)
    levels = client_means(Synthetic(0, 0, clients=400, samples=50).load(0)).mean(axis=1)
    assert levels.var() == pytest.approx(1 / 60, rel=0.3)


def test_iid_clients_have_one_model_and_centred_inputs():
    source = Synthetic(clients=20, samples=500, iid=True).load(0)
    assert np.abs(client_means(source)).max() < 0.3
    shares = [
        np.bincount(source.targets[source.client_ids == k], minlength=10) / 400 for k in range(20)
    ]
    assert np.std(shares, axis=0).max() < 0.05


def test_synthetic_depends_on_the_seed_alone():
    assert same(Synthetic(clients=5).load(1), Synthetic(clients=5).load(1))
    assert not same(Synthetic(clients=5).load(1), Synthetic(clients=5).load(2))


def test_a_client_is_the_same_among_any_number_of_clients():
    few, many = (Synthetic(clients=n).load(0) for n in (2, 6))
    assert torch.equal(few.inputs, many.inputs[many.client_ids < 2])


def test_sources_by_name():
    assert parse("digits", SOURCES, "data set") == Digits()
    assert parse("synthetic(0.5, 0.5)", SOURCES, "data set") == Synthetic(0.5, 0.5)
    assert repr(Synthetic(clients=5)) == "Synthetic(alpha=1.0, beta=1.0, clients=5)"


@pytest.mark.parametrize(
    "bad", [{"alpha": -1}, {"beta": float("inf")}, {"clients": 0}, {"samples": 4}, {"iid": 1}]
)
def test_synthetic_refuses_bad_parameters(bad):
    name = next(iter(bad))
    with pytest.raises(UndriftError, match=rf"Synthetic\({name}=.*\): {name} must be"):
        Synthetic(**bad)


def test_what_is_downloaded_cannot_be_tampered_with():
    """But for one text, of which no checksum is published."""
    made = (make for make in SOURCES.values() if isinstance(make, type) and hasattr(make, "files"))
    files = {file for one in made for file in one.files}
    assert len(files) > 10
    assert {file.name for file in files if not file.sha256} == {"1994-01-100.zip"}
    assert all(re.fullmatch("[0-9a-f]{64}", file.sha256) for file in files if file.sha256)
    assert all(file.url.startswith("https://") for file in files)
