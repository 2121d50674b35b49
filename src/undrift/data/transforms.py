"""Transforms from stored pixels to model inputs, one batch at a time.

A transform is called with a batch and, in local training, with the generator of this client and
round. Without a generator, as in evaluation, nothing is random.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from undrift.data.federated import Transform
from undrift.later import Tensor, np, torch

WHITE = 255
"""Largest pixel value, scaled to 1 before normalisation."""


@dataclass(frozen=True)
class Normalise:
    """Bytes to (x / 255 - mean) / std, with mean and std per channel, or one for all."""

    fixed: ClassVar[bool] = True

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __call__(self, batch: Tensor, rng: np.random.Generator | None = None) -> Tensor:
        mean, std = (
            torch.tensor(values, dtype=torch.float32, device=batch.device).view(-1, 1, 1)
            for values in (self.mean, self.std)
        )
        return (batch.to(torch.float32) - WHITE * mean).div_(WHITE * std)


@dataclass(frozen=True)
class FlipAndCrop:
    """Mirror images, then shift them by up to `pad` pixels each way, filling with zeros.

    flip  probability that an image is mirrored left to right
    crop  probability that it is shifted
    """

    flip: float = 0.5
    crop: float = 1.0
    pad: int = 4

    def __call__(self, batch: Tensor, rng: np.random.Generator | None = None) -> Tensor:
        if rng is None:
            return batch
        n, channels, height, width = batch.shape
        flipped = rng.random(n) < self.flip
        moved = rng.random(n) < self.crop
        down, right = rng.integers(-self.pad, self.pad + 1, size=(2, n)) * moved
        rows = np.arange(height) + down[:, None]
        columns = np.arange(width) + right[:, None]
        columns = np.where(flipped[:, None], width - 1 - columns, columns)
        inside = (
            ((rows >= 0) & (rows < height))[:, :, None]
            & ((columns >= 0) & (columns < width))[:, None, :]
        )  # fmt: skip
        pixels = rows.clip(0, height - 1)[:, :, None] * width
        pixels = pixels + columns.clip(0, width - 1)[:, None, :]
        where = torch.from_numpy(pixels.reshape(n, 1, -1)).to(batch.device)
        taken = batch.flatten(2).gather(2, where.expand(-1, channels, -1)).view_as(batch)
        return taken * torch.from_numpy(inside[:, None]).to(batch.device)


@dataclass(frozen=True)
class Chain:
    """Transforms one after the other."""

    steps: tuple[Transform, ...]

    @property
    def fixed(self) -> bool:
        return all(getattr(step, "fixed", False) for step in self.steps)

    def __call__(self, batch: Tensor, rng: np.random.Generator | None = None) -> Tensor:
        for step in self.steps:
            batch = step(batch, rng)
        return batch
