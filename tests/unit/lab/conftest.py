"""Fixtures of the lab's tests."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def temporary_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put temporary files into a directory of the test; return it."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place
