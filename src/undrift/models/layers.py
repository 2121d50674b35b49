"""Layers of our own, and the networks that are made of them."""

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
    """Makes a row of numbers of each sample."""

    def forward(self, batch: Tensor) -> Tensor:
        if not batch.is_floating_point():
            raise UndriftError(
                f"this network needs real numbers, these samples are {batch.dtype}; for texts use "
                "form='bag' or a network that reads them, else make them float32"
            )
        return super().forward(batch)


class ChannelsLast(nn.Module):
    """Lays images out with the channels last in memory; their shape and values stay.

    The layers that follow keep that layout. Only the images are laid out anew, not the weights: a
    task owns these.
    """

    def forward(self, images: Tensor) -> Tensor:
        n, channels, height, width = images.shape
        if channels == 1:  # both layouts are the same, but torch has to be told which one it is
            return images.reshape(n, height, width, 1).permute(0, 3, 1, 2)
        return images.contiguous(memory_format=torch.channels_last)


class Block(nn.Module):
    """Convolutions and a shortcut around them."""

    def __init__(self, width: int, inner: int, outer: int, stride: int, *, padded: bool) -> None:
        super().__init__()
        if outer == inner:
            layers = [*normalised(width, outer, 3, stride), nn.ReLU()]
        else:
            layers = [*normalised(width, inner, 1), nn.ReLU()]
            layers += [*normalised(inner, inner, 3, stride), nn.ReLU()]
        last = normalised(inner, outer, 3 if outer == inner else 1)
        self.layers = nn.Sequential(*layers, *last)
        self.shortcut: nn.Module = nn.Identity()
        if (width, stride) != (outer, 1):
            projected = nn.Sequential(*normalised(width, outer, 1, stride))
            self.shortcut = Padded(outer - width, stride) if padded else projected

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.layers(x) + self.shortcut(x))


class Padded(nn.Module):
    """Every so many pixels of the input, with channels of zeros on both sides."""

    def __init__(self, more: int, stride: int) -> None:
        super().__init__()
        self.pad = (0, 0, 0, 0, more // 2, more - more // 2)
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.pad(x[:, :, :: self.stride, :: self.stride], self.pad)


def normalised(width: int, outer: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    """A convolution that keeps the size but for its stride, and batch normalisation."""
    convolution = nn.Conv2d(width, outer, kernel, stride, padding=kernel // 2, bias=False)
    return [convolution, nn.BatchNorm2d(outer)]


@contextmanager
def reading_texts(sequence: Tensor, symbols: int) -> Iterator[None]:
    """Inside the block, what is no batch of texts is refused, and so are numbers of no symbol."""
    if sequence.ndim != 2 or sequence.is_floating_point():
        shape = f"{sequence.dtype} of shape {tuple(sequence.shape)}".removeprefix("torch.")
        raise UndriftError(f"this network reads texts, rows of symbol numbers; found {shape}")
    try:
        yield
    except IndexError:
        low, high = (int(end) for end in sequence.aminmax())
        raise UndriftError(
            f"these texts have symbols {low} to {high}, the network knows 0 to {symbols - 1}; "
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
        with reading_texts(sequence, self.embed.num_embeddings):
            embedded = self.embed(sequence)
        outputs, _ = self.recur(embedded)
        scores: Tensor = self.classify(outputs[:, -1])
        return scores


class MaxOverWords(nn.Module):
    """Embedding, an LSTM in both directions, and a linear layer on the largest outputs."""

    def __init__(self, symbols: int, width: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(symbols, width, padding_idx=PAD)
        self.recur = nn.LSTM(width, hidden, batch_first=True, bidirectional=True)
        self.classify = nn.Linear(2 * hidden, classes)

    def forward(self, sequence: Tensor) -> Tensor:
        with reading_texts(sequence, self.embed.num_embeddings):
            embedded = self.embed(sequence)
        outputs, _ = self.recur(embedded)
        padding = (sequence == PAD)[:, :, None]
        largest = outputs.masked_fill(padding, -math.inf).amax(1)
        scores: Tensor = self.classify(largest.clamp(min=-1))  # -1 for a text without words
        return scores


class EveryOutput(nn.Module):
    """Embedding, an LSTM, a narrower layer, and scores of the next symbol at every place."""

    def __init__(self, symbols: int, width: int, hidden: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(symbols, width)
        self.recur = nn.LSTM(width, hidden, batch_first=True)
        nn.init.zeros_(self.recur.get_parameter("bias_hh_l0")).requires_grad_(False)
        self.narrow = nn.Linear(hidden, width)
        self.classify = nn.Linear(width, symbols)

    def forward(self, sequence: Tensor) -> Tensor:
        with reading_texts(sequence, self.embed.num_embeddings):
            embedded = self.embed(sequence)
        outputs, _ = self.recur(embedded)
        scores: Tensor = self.classify(self.narrow(outputs))
        return scores.transpose(1, 2)


class Scores(nn.Module):
    """The class scores of a `transformers` model for texts that are filled up with 0."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, sequence: Tensor) -> Tensor:
        read = sequence != PAD
        read[:, 0] = True  # its output is what the head sees
        with reading_texts(sequence, self.inner.config.vocab_size):
            scores: Tensor = self.inner(input_ids=sequence, attention_mask=read.long()).logits
        return scores
