"""The schemas of Kafka's releases as its classes print them, from tests/data."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from tests.harness import kafka_jars

DATA = kafka_jars.PROJECT / "tests" / "data"


def kept_path(release: str) -> Path:
    return DATA / f"schemas-{release}.json.gz"


def kept(release: str) -> dict[str, Any]:
    """Return the kept output of the release's classes."""
    schemas: dict[str, Any] = json.loads(gzip.decompress(kept_path(release).read_bytes()))
    return schemas
