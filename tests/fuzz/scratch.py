"""Directories for a target's input files, below ``TMPDIR`` (``run.py`` sets it)."""

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
    """Return an empty directory of this name; the earlier input's files are removed."""
    directory = _home() / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    return directory
