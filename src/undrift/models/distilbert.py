"""DistilBERT, through the library `transformers` (extra: text)."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from typing import Any

from torch import Tensor, nn

from undrift.config import UndriftError, text, whole
from undrift.models.model import Model, Shape
from undrift.models.text import PAD


@dataclass(frozen=True)
class DistilBERT(Model):
    """FedGLAD's transformer for 20 Newsgroups and AG News: DistilBERT and a head of 768-C.

    weights  a folder with config.json and model.safetensors, or a name that is in the cache of
             Hugging Face; nothing is ever downloaded. None starts from random weights, and then
    words, layers, heads, width, hidden   are its sizes

    Texts are rows of DistilBERT's own word pieces, filled up with number 0, which is left out.
    Reference: Sanh et al., DistilBERT, a distilled version of BERT, 2019.
    """

    weights: str | None = text("distilbert-base-uncased", optional=True)
    _: KW_ONLY
    words: int = whole(30_522, ge=1)
    layers: int = whole(6, ge=1)
    heads: int = whole(12, ge=1)
    width: int = whole(768, ge=1)
    hidden: int = whole(3072, ge=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % self.heads:
            self.refuse("width must be a multiple of heads", width=self.width, heads=self.heads)

    def build(self, shape: Shape, classes: int, words: Sequence[str] = ()) -> nn.Module:
        transformers = _transformers()
        kind = transformers.DistilBertForSequenceClassification
        if self.weights is None:
            config = transformers.DistilBertConfig(
                vocab_size=self.words,
                n_layers=self.layers,
                n_heads=self.heads,
                dim=self.width,
                hidden_dim=self.hidden,
                num_labels=classes,
            )
            return Scores(kind(config))
        try:
            with _quiet(transformers.utils.logging):
                network, report = kind.from_pretrained(
                    self.weights,
                    num_labels=classes,
                    local_files_only=True,
                    use_safetensors=True,
                    ignore_mismatched_sizes=True,  # a head for other classes makes way
                    output_loading_info=True,
                )
        except (OSError, ValueError, RuntimeError) as error:
            raise UndriftError(
                f"{self}: no weights there ({str(error).splitlines()[0]}); give a folder with "
                "config.json and model.safetensors, or weights=None for a random start"
            ) from None
        if missing := [key for key in sorted(report["missing_keys"]) if "classifier" not in key]:
            raise UndriftError(f"{self}: there is no {missing[0]} among these weights")
        return Scores(network)


class Scores(nn.Module):
    """The class scores of a `transformers` model for texts that are filled up with 0."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, sequence: Tensor) -> Tensor:
        read = sequence != PAD
        read[:, 0] = True  # its output is what the head sees
        scores: Tensor = self.inner(input_ids=sequence, attention_mask=read.long()).logits
        return scores


@contextmanager
def _quiet(logging: Any) -> Iterator[None]:
    """Without progress bars, and without being told that the head is new."""
    level = logging.get_verbosity()
    bars = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _transformers() -> Any:
    try:
        return importlib.import_module("transformers")
    except ImportError:
        raise UndriftError(
            "DistilBERT needs the library transformers: pip install 'undrift[text]'"
        ) from None
