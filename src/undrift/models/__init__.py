"""The papers' networks, by name: `MODELS["MLP"]().build(shape, classes)`."""

from undrift.models.distilbert import DistilBERT
from undrift.models.flat import MLP, Linear
from undrift.models.images import AdaBestCNN, FedGBOCNN, FedGLADCNN
from undrift.models.model import Model, Shape
from undrift.models.own import OwnModel
from undrift.models.resnet import ResNet56
from undrift.models.text import BiLSTM, FedGBOGRU, StackOverflowLSTM

MODELS: dict[str, type[Model]] = {
    model.__name__: model
    for model in (
        MLP,
        Linear,
        AdaBestCNN,
        FedGBOCNN,
        FedGLADCNN,
        ResNet56,
        FedGBOGRU,
        BiLSTM,
        StackOverflowLSTM,
        DistilBERT,
    )
}

__all__ = [
    "MLP",
    "MODELS",
    "AdaBestCNN",
    "BiLSTM",
    "DistilBERT",
    "FedGBOCNN",
    "FedGBOGRU",
    "FedGLADCNN",
    "Linear",
    "Model",
    "OwnModel",
    "ResNet56",
    "Shape",
    "StackOverflowLSTM",
]
