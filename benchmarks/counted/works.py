"""The table of all counted works, filled."""

from benchmarks.counted import core, deciding, quorum
from benchmarks.counted.work import WORKS

__all__ = ["WORKS", "core", "deciding", "quorum"]
