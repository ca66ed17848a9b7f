"""The kept authorization matrix is still what Apache Kafka's controller answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.authorization import ask_kafka
from tests.reference import authorization

pytestmark = pytest.mark.interop


def test_the_kept_table_is_kafkas(tmp_path: Path) -> None:
    differences = authorization.differences(authorization.load_table(), ask_kafka(tmp_path))
    assert not differences, "\n".join([str(len(differences)), *differences[:20]])
