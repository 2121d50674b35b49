"""Known mistakes: each is one piece of a rule, written otherwise."""

from undrift.checks.conform.mistakes import common as common
from undrift.checks.conform.mistakes import robust as robust
from undrift.checks.conform.mistakes import single as single
from undrift.checks.conform.mistakes.lattice import Mistake, lattice, made, mistakes, said

__all__ = ["Mistake", "lattice", "made", "mistakes", "said"]
