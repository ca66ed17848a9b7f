"""The kept authorization matrix is still what Apache Kafka's controller answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.authorization import ask_kafka
from tests.reference import authorization

pytestmark = pytest.mark.interop


def test_the_kept_table_is_kafkas(tmp_path: Path) -> None:
    kept = authorization.load_table()

    def found(name: str) -> list[str]:
        (tmp_path / name).mkdir()
        return authorization.differences(kept, ask_kafka(tmp_path / name))

    differences = found("first")
    if differences:
        # Kafka's DescribeConfigs reads metadata that are published after the answer to a change: on
        # a busy machine it may not know a new topic. Only what differs twice is a difference.
        again = found("again")
        differences = [each for each in differences if each in again]
    assert not differences, "\n".join([str(len(differences)), *differences[:20]])
