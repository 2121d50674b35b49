"""Batches as models get them: exact, whole batches at once, the same bits for the same key."""

import pickle

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from undrift.data.sources.cifar import CIFAR10, CIFAR100, FEDGBO
from undrift.data.sources.images import normalise
from undrift.data.transforms import Chain, FlipAndCrop, Normalise
from undrift.rng import stream

BATCH = torch.randint(0, 256, (16, 3, 32, 32), dtype=torch.uint8, generator=torch.manual_seed(0))


def one_by_one(batch: Tensor, flip: float, crop: float, pad: int, key: int) -> Tensor:
    """The same as FlipAndCrop, image by image, as one would write it at first."""
    rng = stream(key, "test")
    n, _, height, width = batch.shape
    flips, crops = rng.random(n) < flip, rng.random(n) < crop
    shifts = rng.integers(-pad, pad + 1, size=(2, n))
    images = []
    for image, flipped, cropped, (down, right) in zip(batch, flips, crops, shifts.T, strict=True):
        image = image.flip(-1) if flipped else image
        if cropped:
            padded = functional.pad(image, (pad,) * 4)
            top, left = int(pad + down), int(pad + right)
            image = padded[:, top : top + height, left : left + width]
        images.append(image)
    return torch.stack(images)


def test_normalise() -> None:
    mean, std = (0.5, 0.25, 0.75), (0.2, 0.1, 0.3)
    made = Normalise(mean, std)(BATCH)
    assert made.dtype == torch.float32
    m, s = (torch.tensor(values)[:, None, None] for values in (mean, std))
    assert torch.allclose(made, (BATCH / 255 - m) / s, atol=1e-5)
    assert torch.equal(made, Normalise(mean, std)(BATCH, stream(0, "any")))


def test_one_mean_for_all_channels() -> None:
    images = BATCH.numpy()
    made = normalise(images)(BATCH)
    assert abs(made.mean()) < 1e-5
    assert abs(made.std() - 1) < 1e-4
    flat = normalise(np.zeros((2, 1, 3, 3), dtype=np.uint8))
    assert torch.equal(flat(torch.zeros(2, 1, 3, 3)), torch.zeros(2, 1, 3, 3))


def test_flip_and_crop_is_what_it_says() -> None:
    pixels = Normalise((0.5,), (0.5,))(BATCH)
    for flip, crop, pad in ((0.5, 1.0, 4), (0.5, 0.5, 4), (1.0, 0.0, 4), (0.0, 1.0, 40), (0, 0, 0)):
        made = FlipAndCrop(flip, crop, pad)(pixels, stream(3, "test"))
        assert made.is_contiguous()
        assert torch.equal(made, one_by_one(pixels, flip, crop, pad, key=3))


def test_a_wide_image() -> None:
    wide = torch.rand(8, 1, 5, 9)
    made = FlipAndCrop(pad=2)(wide, stream(0, "test"))
    assert torch.equal(made, one_by_one(wide, 0.5, 1.0, 2, key=0))


def test_flips_and_shifts_are_as_frequent_as_they_should_be() -> None:
    ramp = torch.arange(1.0, 33).expand(4000, 1, 32, 32).clone()
    made = FlipAndCrop(flip=0.5, crop=0.5)(ramp, stream(1, "test"))
    rises = (made[:, 0, 16, 17] > made[:, 0, 16, 16]).float().mean()
    assert 0.46 < rises < 0.54
    kept = ((made == ramp) | (made == ramp.flip(-1))).flatten(1).all(1).float().mean()
    assert 0.47 < kept < 0.55  # half, and 1 in 81 of the others


def test_randomness_is_keyed_and_only_in_training() -> None:
    made = [FEDGBO(BATCH, stream(seed, "augmentation", 3, 5)) for seed in (0, 0, 1)]
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])
    plain = FEDGBO.steps[0](BATCH, None)
    assert torch.equal(FEDGBO(BATCH, None), plain)


def test_the_papers_transforms() -> None:
    mirror_some, mirror_all = FlipAndCrop(crop=0.5), FlipAndCrop()
    plain10 = Normalise((0.491, 0.482, 0.447), (0.247, 0.243, 0.262))
    plain100 = Normalise((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761))
    fedgbo = Normalise((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
    assert CIFAR10().transform() == Chain((plain10, mirror_some))
    assert CIFAR100().transform() == Chain((plain100, mirror_some))
    assert CIFAR10(augment="none").transform() == plain10
    assert CIFAR100(augment="fedgbo").transform() == Chain((fedgbo, mirror_all))


def test_transforms_can_be_sent_to_workers() -> None:
    assert pickle.loads(pickle.dumps(FEDGBO)) == FEDGBO
