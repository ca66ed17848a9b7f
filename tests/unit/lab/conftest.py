"""Fixtures for the tests of the lab."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def temporary_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make ``tempfile`` use a directory of the test; return this directory."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place
