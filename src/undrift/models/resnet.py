"""ResNet-56 for small images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from undrift.config import choice
from undrift.later import nn
from undrift.models.model import Model, Shape, image, layers

STAGES = ((16, 1), (32, 2), (64, 2))
"""Width and stride of the three stages."""


@dataclass(frozen=True)
class ResNet56(Model):
    """FedGLAD's network for CIFAR-10: a residual network of 56 layers with batch normalisation.

    form  bottleneck  [6, 6, 6] blocks of 1x1, 3x3, 1x1 with four times as many output channels, as
                      in FedGLAD's code
          basic       [9, 9, 9] blocks of 3x3, 3x3, as He et al. describe for CIFAR-10; where
                      the width doubles, the shortcut drops every other pixel and is padded with
                      zeros (their option A)
          projection  as basic, with 1x1 convolutions in these shortcuts (their option B)

    The running statistics of batch normalisation are buffers: clients send them with the model, and
    the server averages them.
    Reference: He et al., Deep residual learning for image recognition, CVPR 2016.
    """

    form: str = choice("bottleneck", "basic", "projection")

    def build(self, shape: Shape, classes: int, words: Sequence[str] = ()) -> nn.Module:
        channels, _, _ = image(shape)
        wide = self.form == "bottleneck"
        blocks: list[nn.Module] = [layers.ChannelsLast()]
        blocks += [*layers.conv_norm(channels, 16, 3), nn.ReLU()]
        width = 16
        for inner, stride in STAGES:
            outer = 4 * inner if wide else inner
            for number in range(6 if wide else 9):
                step = stride if number == 0 else 1
                blocks.append(layers.Block(width, inner, outer, step, padded=self.form == "basic"))
                width = outer
        network = nn.Sequential(
            *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes)
        )
        for module in network.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        return network
