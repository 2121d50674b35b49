"""DistilBERT, from the library `transformers` (extra: text)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from typing import Any

from undrift.config import UndriftError, text, whole
from undrift.later import nn, torch
from undrift.models.model import PAD, Model, Shape, features, layers
from undrift.system.extras import require

PADDING = "[PAD]"
"""Token of id 0 in a vocabulary of word pieces."""


@dataclass(frozen=True)
class DistilBERT(Model):
    """FedGLAD's transformer for 20 Newsgroups and AG News: DistilBERT and 768-768-C.

    weights  a folder with config.json and model.safetensors, or a name in the cache of Hugging
             Face; nothing is ever downloaded. None: random weights, with these sizes:
    words    size of the vocabulary
    layers, heads, width, hidden   layers, attention heads, width of a token, of a hidden layer

    Inputs are ids of DistilBERT's own word pieces, as in AGNews(form="pieces"), padded with 0,
    which is masked. Data and weights must have the same vocabulary.
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
        if words and words[PAD] != PADDING:
            raise UndriftError(
                f"{self}: these data are word ids, not word pieces; use form='pieces', as in "
                "AGNews(form='pieces')"
            )
        transformers = require("transformers", "text", "DistilBERT")
        network = (self._random if self.weights is None else self._loaded)(transformers, classes)
        config = network.config
        if words and len(words) != config.vocab_size:
            raise UndriftError(
                f"{self}: has a vocabulary of {config.vocab_size} word pieces, the data's tokenizer"
                f" of {len(words)}; give both the same folder, or weights=None, words={len(words)}"
            )
        if features(shape) > config.max_position_embeddings:
            raise UndriftError(
                f"{self}: reads at most {config.max_position_embeddings} word pieces, these texts "
                f"have {features(shape)}; give the data a smaller length"
            )
        return layers.Scores(network)

    def _random(self, transformers: Any, classes: int) -> Any:
        return transformers.DistilBertForSequenceClassification(
            transformers.DistilBertConfig(
                vocab_size=self.words,
                n_layers=self.layers,
                n_heads=self.heads,
                dim=self.width,
                hidden_dim=self.hidden,
                num_labels=classes,
            )
        )

    def _loaded(self, transformers: Any, classes: int) -> Any:
        try:
            with _quiet(transformers.utils.logging):
                network, report = transformers.DistilBertForSequenceClassification.from_pretrained(
                    self.weights,
                    num_labels=classes,
                    dtype=torch.float32,
                    local_files_only=True,
                    use_safetensors=True,
                    ignore_mismatched_sizes=True,  # replaces a head for another number of classes
                    output_loading_info=True,
                )
        except (OSError, ValueError, RuntimeError) as error:
            raise UndriftError(
                f"{self}: cannot load the weights ({str(error).splitlines()[0]}); give a folder "
                "with config.json and model.safetensors, or weights=None for random weights"
            ) from None
        new = {*report["missing_keys"], *(key for key, *_ in report["mismatched_keys"])}
        if missing := sorted(key for key in new if "classifier" not in key):
            raise UndriftError(
                f"{self}: the weights have no {missing[0]} of the right size; give the weights of "
                "a DistilBERT model"
            )
        return network


@contextmanager
def _quiet(logging: Any) -> Iterator[None]:
    """Without progress bars and the warning that the head is new."""
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
