"""Lets torchvision be imported beside a CPU build of PyTorch.

Its wheels on PyPI are built for CUDA, so its operators do not load, and the import stops at the
first two. No contestant uses them: it is enough to declare them.
"""

import torch

LIBRARY = torch.library.Library("torchvision", "FRAGMENT")
for name in "nms", "qnms":
    if not hasattr(torch.ops.torchvision, name):
        LIBRARY.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
