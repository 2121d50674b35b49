"""Recurrent networks for texts, which are rows of symbol numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor, nn

from undrift.config import UndriftError, flag, text, whole
from undrift.models.model import Model, Shape
from undrift.models.vectors import read_vectors, read_words

PAD = 0
"""The number that fills up short texts."""


@dataclass(frozen=True)
class FedGBOGRU(Model):
    """FedGBO's network for Shakespeare: from a sequence of C characters, the next one."""

    def build(self, shape: Shape, classes: int, words: Sequence[str] = ()) -> nn.Module:
        return LastOutput(classes, embedding=8, hidden=128, layers=2)


@dataclass(frozen=True)
class BiLSTM(Model):
    """FedGLAD's recurrent network for 20 Newsgroups and AG News: a bidirectional LSTM and 600-C.

    words       size of the vocabulary, where neither the data nor a file tells
    vectors     file with the vectors to start from: text with a word and its numbers in each line,
                as GloVe has it, or .npy with the words in a .txt of the same name, one a line
    vocabulary  file with the words that the data's numbers stand for, one a line, from number 0 on,
                where the data do not tell
    frozen      keep the vectors as they are
    width       numbers in a vector
    hidden      size of each direction's state

    Number 0 is padding: its vector is 0, and it never is part of the result. Words that the file of
    vectors lacks start at random, as spread as the others.
    Deviations: the paper does not say how the outputs become one; we take the maximum over words.
    """

    _: KW_ONLY
    words: int | None = whole(None, ge=2, optional=True)
    vectors: str | None = text(None, optional=True)
    vocabulary: str | None = text(None, optional=True)
    frozen: bool = flag(False)
    width: int = whole(300, ge=1)
    hidden: int = whole(300, ge=1)

    def build(self, shape: Shape, classes: int, words: Sequence[str] = ()) -> nn.Module:
        if self.vocabulary is not None:
            words = read_words(self.vocabulary)
        size = self.words or len(words)
        if not size:
            raise UndriftError(f"{self}: give words=..., the size of the vocabulary of these data")
        if words and size < len(words):
            raise UndriftError(f"{self}: the vocabulary of these data has {len(words)} words")
        network = MaxOverWords(size, self.width, self.hidden, classes)
        if self.vectors is not None:
            if not words:
                raise UndriftError(f"{self}: give vocabulary=..., a file with the data's words")
            start = read_vectors(self.vectors, words, self.width)
            with torch.no_grad():
                network.embed.weight[: len(words)] = start
                network.embed.weight[PAD] = 0
        network.embed.weight.requires_grad_(not self.frozen)
        return network


@dataclass(frozen=True)
class StackOverflowLSTM(Model):
    """FedGLAD's network for StackOverflow: after each word the next, of C with special symbols.

    As in Reddi et al., Adaptive federated optimization, ICLR 2021. Its LSTM has one vector of
    biases; of the two that torch has, the second stays 0 and is not trained.
    """

    _: KW_ONLY
    width: int = whole(96, ge=1)
    hidden: int = whole(670, ge=1)

    def build(self, shape: Shape, classes: int, words: Sequence[str] = ()) -> nn.Module:
        return EveryOutput(classes, self.width, self.hidden)


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
