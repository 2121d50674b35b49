"""Choices of the command line that can be named before what they choose is loaded."""

from typing import Literal

EngineName = Literal["auto", "compiled", "threads", "sequential"]

Convention = Literal["paper", "prose", "exact_ops"]
"""How FedGBO's local steps are counted: as its Table 9, as the text beside it, or as they are."""

SAVE_EVERY = 30.0
"""seconds between two checkpoints"""
