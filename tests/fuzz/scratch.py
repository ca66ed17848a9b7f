"""Directories that a target writes its input into, below ``TMPDIR`` (``run.py`` says which)."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path


@cache
def _home() -> Path:
    directory = tempfile.mkdtemp(prefix="kraft-fuzz-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return Path(directory)


def scratch(name: str = "input") -> Path:
    """An empty directory of this name; what lay there from the input before is gone."""
    directory = _home() / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    return directory
