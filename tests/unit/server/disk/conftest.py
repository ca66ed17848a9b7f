"""Fixtures of the tests of stores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kraft.server.disk.store import MetadataStore
from tests.harness.metadata_store import open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MetadataStore]:
    store = open_store(tmp_path)
    yield store
    store.close()
