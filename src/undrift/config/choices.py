"""Choices of the command line, here so that listing them does not import what they choose."""

from typing import Literal

Convention = Literal["paper", "prose", "exact_ops"]
"""How FedGBO's local steps are counted: as in its Table 9, as in its text, or exactly."""

SAVE_EVERY = 30.0
"""seconds between checkpoints"""
