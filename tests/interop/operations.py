"""The size of the tests of the operators' commands: CI's, or that of ``make operations``."""

from __future__ import annotations

import os
from typing import TypeVar

import pytest

_IS_FULL_SIZE = os.environ.get("OPERATIONS", "") == "all"

#: For tests with older releases, and those whose steps CI takes with kraft's nodes (tests/e2e).
in_full_size = pytest.mark.skipif(not _IS_FULL_SIZE, reason="make operations")

Case = TypeVar("Case")


def cases(first: Case, *others: Case) -> list[Case]:
    """Return the cases of a test: all in full size, in CI the first one."""
    return [first, *others] if _IS_FULL_SIZE else [first]
