"""Recurrent networks for texts, given as rows of token ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

from undrift.config import UndriftError, flag, text, whole
from undrift.later import nn, torch
from undrift.models.model import PAD, Model, Shape, layers
from undrift.models.vectors import read_vectors, read_words


@dataclass(frozen=True)
class FedGBOGRU(Model):
    """FedGBO's network for Shakespeare: a GRU that predicts the next of C characters."""

    def build(self, shape: Shape, classes: int, words: Sequence[str] = ()) -> nn.Module:
        return layers.LastOutput(classes, embedding=8, hidden=128, layers=2)


@dataclass(frozen=True)
class BiLSTM(Model):
    """FedGLAD's recurrent network for 20 Newsgroups and AG News: a bidirectional LSTM and 600-C.

    words       size of the vocabulary, if neither the data nor a file tells
    vectors     file with pretrained word vectors: text in GloVe's format, one word per line, or
                .npy with the words in a .txt of the same name, one per line
    vocabulary  file with the word of each token id, one per line from id 0 on, if the data do not
                tell
    frozen      do not train the word vectors
    width       length of a word vector
    hidden      size of the state per direction

    Files are looked for in the working directory, then in the data folder.
    Token id 0 is padding: its vector is 0, and it does not affect the result. Words missing from
    `vectors` start at random, with the same standard deviation as the others.
    Deviations: the paper does not say how outputs are pooled; we take the maximum over words.
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
            raise UndriftError(
                f"{self}: the vocabulary of these data has {len(words)} words; give at least that"
            )
        network = layers.MaxOverWords(size, self.width, self.hidden, classes)
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
    """FedGLAD's network for StackOverflow: an LSTM that predicts the next word at every position.

    As in Reddi et al., Adaptive federated optimization, ICLR 2021. Their LSTM has one bias vector;
    of torch's two, the second is fixed at 0.
    """

    _: KW_ONLY
    width: int = whole(96, ge=1)
    hidden: int = whole(670, ge=1)

    def build(self, shape: Shape, classes: int, words: Sequence[str] = ()) -> nn.Module:
        return layers.EveryOutput(classes, self.width, self.hidden)
