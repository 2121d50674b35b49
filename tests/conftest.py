"""Tests are deterministic and use one thread each."""

import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("undrift", derandomize=True, deadline=None, max_examples=25)
settings.load_profile("undrift")
