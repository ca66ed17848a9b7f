"""Topics of Metadata responses from columns: large rows, old images, and rejected arguments.

`tests/property/test_metadata_cache.py` compares all versions and kinds of rows with a twin.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from kraft import records
from kraft._core.table.images import TableImage
from kraft._core.table.table import PartitionTable
from kraft._core.table.topic_bodies import (
    ListenerBrokers,
    described_topic,
    metadata_body,
    partition_counts,
)
from kraft.errors import (
    InvalidRequestError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from kraft.protocol.metadata import (
    MetadataResponseData,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kraft.records import Record, Uuid
from tests.harness.table_records import apply, batch_of

A, B = Uuid(b"a" * 16), Uuid(b"b" * 16)
HOME, OTHER = Uuid(b"h" * 16), Uuid(b"o" * 16)
Numbers = NDArray[np.int32]
NONE: Numbers = np.empty(0, np.int32)


def partition(index: int, replicas: list[int], topic_id: Uuid = A) -> Record:
    return records.Partition(
        partition_id=index,
        topic_id=topic_id,
        replicas=replicas,
        isr=replicas,
        leader=replicas[0],
        directories=[HOME] * len(replicas),
        version=1,
    )


def table_of(*log: Record) -> PartitionTable:
    table = PartitionTable()
    table.start_journal(0)
    apply(table, batch_of([records.Topic(name="a", topic_id=A), *log]))
    return table


def brokers_of(image: TableImage, count: int = 3) -> ListenerBrokers:
    return ListenerBrokers(image, [(id, False, True, [OTHER, HOME]) for id in range(count)])


def topics_of(
    image: TableImage, brokers: ListenerBrokers, version: int = 13
) -> list[MetadataResponseTopic]:
    """Return all topics of a response of version 13 or 0."""
    frame = MetadataResponseData().encode(version)
    # The empty array of topics, and the bytes after it.
    count, after = (1, 3) if version == 13 else (4, 0)
    head, tail = frame[: -(count + after)], frame[len(frame) - after :]
    numbers = np.array(image.topic_numbers(), np.int32)
    operations = np.full(len(numbers), 7, np.int32)
    body = metadata_body(image, brokers, version, numbers, operations, NONE, head, b"", 0, tail)
    return MetadataResponseData.decode(body, version).topics


def test_rows_with_many_replicas_enlarge_the_response() -> None:
    replicas = list(range(32))
    image = table_of(*(partition(index, replicas) for index in range(200))).image()
    (topic,) = topics_of(image, brokers_of(image, 31))
    assert topic.partitions == [
        MetadataResponsePartition(0, index, 0, -1, replicas, replicas, [31]) for index in range(200)
    ]


def test_an_old_image_shows_neither_new_topics_nor_new_values() -> None:
    table = table_of(partition(0, [0, 1, 2]), partition(1, [1, 2, 0]))
    image = table.image()
    before = topics_of(image, brokers_of(image))
    log = [
        records.Topic(name="b", topic_id=B),
        partition(2, [0]),
        partition(0, [1], B),
        records.PartitionChange(partition_id=0, topic_id=A, isr=[1], leader=1),
        records.PartitionChange(
            partition_id=1, topic_id=A, replicas=[0], isr=[0], leader=0, directories=[HOME]
        ),
        records.RemoveTopic(topic_id=A),
    ]
    for record in log:
        apply(table, batch_of([record], image.offset + 20 + log.index(record)))
        assert topics_of(image, brokers_of(image)) == before
    (topic,) = topics_of(table.image(), brokers_of(image))
    assert (topic.name, len(topic.partitions)) == ("b", 1)
    assert partition_counts(image, np.array([0], np.int32)).tolist() == [2]


def test_an_old_image_shows_no_later_partition_of_a_topic_with_scattered_rows() -> None:
    table = table_of(
        partition(0, [0]),
        records.Topic(name="b", topic_id=B),
        partition(0, [0], B),
        partition(1, [0]),
    )
    image = table.image()
    before = topics_of(image, brokers_of(image))
    assert [len(topic.partitions) for topic in before] == [2, 1]
    apply(table, batch_of([partition(2, [0]), partition(1, [0], B)], 10))
    assert topics_of(image, brokers_of(image)) == before
    assert partition_counts(image, np.array([0, 1], np.int32)).tolist() == [2, 1]
    brokers = brokers_of(image)
    assert described_topic(image, brokers, 0, False, 0, 9, 0)[1:] == (2, -1)


def test_a_directory_that_the_table_sees_later_makes_the_brokers_stale() -> None:
    table = table_of(partition(0, [0]))
    image = table.image()
    brokers = brokers_of(image)
    assert brokers.is_current
    later = partition(1, [0]).replace(directories=[OTHER])
    apply(table, batch_of([later], 10))
    assert not brokers.is_current
    image = table.image()
    (topic,) = topics_of(image, brokers_of(image))
    assert [one.offline_replicas for one in topic.partitions] == [[], []]


def test_a_later_partition_between_two_others_is_not_described() -> None:
    table = table_of(partition(0, [0]), partition(2, [0]))
    image = table.image()
    apply(table, batch_of([partition(1, [0])], 10))
    assert described_topic(image, brokers_of(image), 0, False, 0, 9, 0)[1:] == (1, -1)


def test_a_lost_directory_is_offline_on_a_broker_whose_directories_are_unknown() -> None:
    lost = Uuid((2).to_bytes(16, "big"))
    image = table_of(partition(0, [0, 1]).replace(directories=[HOME, lost])).image()
    brokers = ListenerBrokers(image, [(id, False, True, []) for id in range(2)])
    (topic,) = topics_of(image, brokers)
    assert topic.partitions[0].offline_replicas == [1]


@pytest.mark.parametrize("isr", [[0], [0, 2], [0, 2, 2], [0, 0, 2], [2, 1, 0], [0, 9]])
def test_the_isr_is_listed_as_the_record_has_it(isr: list[int]) -> None:
    image = table_of(partition(0, [0, 1, 2]).replace(isr=isr)).image()
    (topic,) = topics_of(image, brokers_of(image))
    assert topic.partitions[0].isr_nodes == isr


def test_version_0_has_an_error_for_an_isr_member_that_is_not_alive() -> None:
    image = table_of(partition(0, [0, 1]).replace(isr=[0, 9])).image()
    (topic,) = topics_of(image, brokers_of(image), 0)
    (described,) = topic.partitions
    assert (described.error_code, described.isr_nodes) == (9, [0])


def test_a_topic_is_described_from_a_partition_on() -> None:
    image = table_of(*(partition(index, [0, 9]) for index in range(5))).image()
    brokers = brokers_of(image)
    assert [described_topic(image, brokers, 0, False, first, limit, 0)[1:] for first, limit in (
        (0, 5), (0, 4), (3, 9), (4, 0), (5, 1), (2**40, 2**62)
    )] == [(5, -1), (4, 4), (2, -1), (0, 4), (0, -1), (0, -1)]  # fmt: skip


def test_arguments_are_checked() -> None:
    image = table_of(partition(0, [0])).image()
    brokers = brokers_of(image)
    one = np.zeros(1, np.int32)

    def body(version: int, topics: Numbers, operations: Numbers) -> bytes:
        return metadata_body(image, brokers, version, topics, operations, NONE, b"", b"", 0, b"")

    for version in (-1, 14):
        with pytest.raises(UnsupportedVersionError, match="0 to 13"):
            body(version, one, one)
    for number in (-1, 1):
        with pytest.raises(UnknownTopicOrPartitionError):
            body(13, one + number, one)
        with pytest.raises(UnknownTopicOrPartitionError):
            described_topic(image, brokers, number, False, 0, 1, 0)
    with pytest.raises(InvalidRequestError, match="0 operations for 1 topics"):
        body(13, one, NONE)
    with pytest.raises(InvalidRequestError, match="no partitions from -1"):
        described_topic(image, brokers, 0, False, -1, 1, 0)
    other = table_of(partition(0, [0])).image()
    with pytest.raises(InvalidRequestError, match="of another table"):
        topics_of(other, brokers)
    with pytest.raises(ValueError, match="16 bytes"):
        ListenerBrokers(image, [(0, False, True, [b"short"])])
