"""Replay random logs here and by Kafka's MetadataImage: the same errors, the same snapshots.

The logs have every record type except topics and partitions. Where Kafka's controllers reject a
record that its images accept, ``ClusterState`` rejects it too; those records are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from struct import Struct

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from kraft import records
from kraft.errors import KraftError
from kraft.image import ClusterState
from kraft.records import Record
from kraft.records.values import decode_value, encode_value
from tests.harness.kafka_jars import Jars
from tests.harness.metadata_files import canonical, kinds
from tests.harness.state_records import RECORDS

pytestmark = pytest.mark.interop

METADATA_VERSION = 30
INT = Struct(">i")

# The controller rejects records that the image accepts: of an unregistered broker, of a missing
# credential, with a producer id that does not increase.
STRICTER = (records.UnregisterBroker, records.RemoveUserScramCredential, records.ProducerIds)


def random_logs(count: int) -> list[list[Record]]:
    logs: list[list[Record]] = []

    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(RECORDS, max_size=60))
    def generate(log: list[Record]) -> None:
        logs.append(log)

    generate()
    return [fit_for_both(log) for log in logs]


def fit_for_both(log: list[Record]) -> list[Record]:
    """Return a log of one metadata.version, without records that only one side checks."""
    kept: list[Record] = [records.FeatureLevel("metadata.version", METADATA_VERSION)]
    state = ClusterState()
    for record in log:
        if isinstance(record, records.UnregisterController):
            continue  # of 4.4
        if isinstance(record, records.FeatureLevel) and (
            record.name == "metadata.version" or record.feature_level < 0
        ):
            continue  # only the controller checks the range of a feature
        try:
            state.apply(record, 0)
        except KraftError:
            if isinstance(record, STRICTER):
                continue
        kept.append(record)
    return kept


def encoded(logs: list[list[Record]]) -> Iterator[bytes]:
    yield INT.pack(len(logs))
    for log in logs:
        yield INT.pack(len(log))
        for record in log:
            value = encode_value(record, metadata_version=METADATA_VERSION)
            yield INT.pack(len(value)) + value


def comparable(record: Record) -> tuple[int, str]:
    """Return a record without the orders of a Java HashMap."""
    if isinstance(record, records.ClientQuota):
        record = record.replace(entity=sorted(record.entity, key=lambda part: part.entity_type))
    return canonical(record)


def test_random_logs_give_the_same_snapshots_as_kafkas_image(tmp_path: Path, jars: Jars) -> None:
    logs = random_logs(600)
    question, answer = tmp_path / "logs", tmp_path / "snapshots"
    question.write_bytes(b"".join(encoded(logs)))

    jars.run("ImageReplay", question, answer, classes=jars.compiled("ImageReplay"))

    data = answer.read_bytes()
    position = 0
    for log in logs:
        state = ClusterState()
        for offset, record in enumerate(log):
            try:
                state.apply(record, offset)
            except KraftError:
                assert data[position] == 0, f"Kafka accepts {record}"
            else:
                assert data[position] == 1, f"Kafka refuses {record}"
            position += 1
        (count,) = INT.unpack_from(data, position)
        position += INT.size
        theirs = []
        for _ in range(count):
            (size,) = INT.unpack_from(data, position)
            position += INT.size
            theirs.append(decode_value(data[position : position + size]))
            position += size
        ours = [*state.snapshot_records_before_topics(), *state.snapshot_records_after_topics()]
        assert kinds(ours) == kinds(theirs)
        assert Counter(map(comparable, ours)) == Counter(map(comparable, theirs))
    assert position == len(data)
