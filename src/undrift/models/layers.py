"""Custom layers, and networks made of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from undrift.config import UndriftError
from undrift.models.model import PAD


class Flat(nn.Flatten):
    """Flattens each sample; refuses integer inputs."""

    def forward(self, batch: Tensor) -> Tensor:
        if not batch.is_floating_point():
            raise UndriftError(
                f"this network needs real numbers, these samples are {batch.dtype}; for texts use "
                "form='bag' or a network for texts, else convert them to float32"
            )
        return super().forward(batch)


class ChannelsLast(nn.Module):
    """Stores images channels-last in memory; shape and values do not change.

    The layers that follow keep that layout. The weights keep theirs, since a task makes them views
    of one vector.
    """

    def forward(self, images: Tensor) -> Tensor:
        n, channels, height, width = images.shape
        if channels == 1:  # both layouts are the same in memory; only the strides name one
            return images.reshape(n, height, width, 1).permute(0, 3, 1, 2)
        return images.contiguous(memory_format=torch.channels_last)


class Block(nn.Module):
    """Residual block: a bottleneck if `outer` differs from `inner`, else two 3x3 convolutions."""

    def __init__(self, width: int, inner: int, outer: int, stride: int, *, padded: bool) -> None:
        super().__init__()
        if outer == inner:
            layers = [*conv_norm(width, outer, 3, stride), nn.ReLU()]
        else:
            layers = [*conv_norm(width, inner, 1), nn.ReLU()]
            layers += [*conv_norm(inner, inner, 3, stride), nn.ReLU()]
        last = conv_norm(inner, outer, 3 if outer == inner else 1)
        self.layers = nn.Sequential(*layers, *last)
        self.shortcut: nn.Module = nn.Identity()
        if (width, stride) != (outer, 1):
            projected = nn.Sequential(*conv_norm(width, outer, 1, stride))
            self.shortcut = Padded(outer - width, stride) if padded else projected

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.layers(x) + self.shortcut(x))


class Padded(nn.Module):
    """Every `stride`-th pixel of the input, padded with `more` channels of zeros."""

    def __init__(self, more: int, stride: int) -> None:
        super().__init__()
        self.pad = (0, 0, 0, 0, more // 2, more - more // 2)
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.pad(x[:, :, :: self.stride, :: self.stride], self.pad)


def conv_norm(width: int, outer: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    """A padded convolution without bias, and batch normalisation."""
    convolution = nn.Conv2d(width, outer, kernel, stride, padding=kernel // 2, bias=False)
    return [convolution, nn.BatchNorm2d(outer)]


@contextmanager
def check_tokens(sequence: Tensor, symbols: int) -> Iterator[None]:
    """Refuse a batch that is not rows of token ids; inside the block, ids not in [0, symbols)."""
    if sequence.ndim != 2 or sequence.is_floating_point():
        shape = f"{sequence.dtype} of shape {tuple(sequence.shape)}".removeprefix("torch.")
        raise UndriftError(
            f"this network needs texts as rows of token ids, found {shape}; tokenise texts first"
        )
    try:
        yield
    except IndexError:
        low, high = (int(end) for end in sequence.aminmax())
        raise UndriftError(
            f"these texts have token ids {low} to {high}, the network has 0 to {symbols - 1}; "
            "give data and model the same vocabulary"
        ) from None


class LastOutput(nn.Module):
    """Embedding, GRU layers and a linear layer on the last output."""

    def __init__(self, symbols: int, embedding: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(symbols, embedding)
        self.recur = nn.GRU(embedding, hidden, layers, batch_first=True)
        self.classify = nn.Linear(hidden, symbols)

    def forward(self, sequence: Tensor) -> Tensor:
        with check_tokens(sequence, self.embed.num_embeddings):
            embedded = self.embed(sequence)
        outputs, _ = self.recur(embedded)
        scores: Tensor = self.classify(outputs[:, -1])
        return scores


class MaxOverWords(nn.Module):
    """Embedding, bidirectional LSTM, and a linear layer on the maximum over words."""

    def __init__(self, symbols: int, width: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(symbols, width, padding_idx=PAD)
        self.recur = nn.LSTM(width, hidden, batch_first=True, bidirectional=True)
        self.classify = nn.Linear(2 * hidden, classes)

    def forward(self, sequence: Tensor) -> Tensor:
        with check_tokens(sequence, self.embed.num_embeddings):
            embedded = self.embed(sequence)
        outputs, _ = self.recur(embedded)
        padding = (sequence == PAD)[:, :, None]
        largest = outputs.masked_fill(padding, -math.inf).amax(1)
        scores: Tensor = self.classify(largest.clamp(min=-1))  # finite for a text without words
        return scores


class EveryOutput(nn.Module):
    """Embedding, LSTM, a narrower layer, and scores of the next token at every position."""

    def __init__(self, symbols: int, width: int, hidden: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(symbols, width)
        self.recur = nn.LSTM(width, hidden, batch_first=True)
        nn.init.zeros_(self.recur.get_parameter("bias_hh_l0")).requires_grad_(False)
        self.narrow = nn.Linear(hidden, width)
        self.classify = nn.Linear(width, symbols)

    def forward(self, sequence: Tensor) -> Tensor:
        with check_tokens(sequence, self.embed.num_embeddings):
            embedded = self.embed(sequence)
        outputs, _ = self.recur(embedded)
        scores: Tensor = self.classify(self.narrow(outputs))
        return scores.transpose(1, 2)


class Scores(nn.Module):
    """Class scores of a `transformers` model, for texts padded with 0."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, sequence: Tensor) -> Tensor:
        read = sequence != PAD
        read[:, 0] = True  # the head reads the output at this position
        with check_tokens(sequence, self.inner.config.vocab_size):
            scores: Tensor = self.inner(input_ids=sequence, attention_mask=read.long()).logits
        return scores
