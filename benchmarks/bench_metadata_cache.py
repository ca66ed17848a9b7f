"""A broker's answers from its metadata cache: request bytes to response bytes.

``metadata_all``     Metadata 13 of all of 5,000 topics with 50 partitions on 3 of 60 brokers
``metadata_fenced``  the same while one broker is fenced: a twentieth of the rows has a replica
                     offline
``metadata_one``     Metadata 13 of one topic, a thousand requests
``describe_page``    the first 2,000 partitions of DescribeTopicPartitions
``metadata_memcpy``  the floor: the bytes of ``metadata_all`` by memcpy between warm buffers

One thread, warm, without an authorizer. Peer: Kafka's ``KRaftMetadataCache`` with
``MetadataResponse`` and its serialisation, on the same cluster (`MetadataCaches.java`); its
responses have as many bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from benchmarks.bench_peers import run
from benchmarks.conftest import Sizes
from benchmarks.java_peers import Peers
from kraft import records
from kraft.broker.metadata_cache import MetadataCache
from kraft.image.publishing import ImagePublishing, Phase
from kraft.image.replay import MetadataState
from kraft.protocol.describe_topic_partitions import DescribeTopicPartitionsRequestData
from kraft.protocol.metadata import (
    MetadataRequestData,
    MetadataRequestTopic,
    MetadataResponseData,
)
from kraft.records import Record, Uuid
from kraft.records.batches import encode_records

VERSION = 13
EACH = 50
BROKERS = 60
REPEATS = 1000
CLUSTER_ID = "the-cluster-of-the-benchmark"


def topics_of(sizes: Sizes) -> int:
    return min(5_000, sizes.partitions // EACH)


def uuid(high: int, low: int) -> Uuid:
    return Uuid(high.to_bytes(8, "big") + low.to_bytes(8, "big"))


def cluster_records(topics: int) -> list[Record]:
    """Return the records of the cluster; `MetadataCaches.image` makes the same one."""
    log: list[Record] = [records.FeatureLevel(name="metadata.version", feature_level=30, version=0)]
    for broker in range(BROKERS):
        log.append(
            records.RegisterBroker(
                broker_id=broker,
                broker_epoch=broker,
                end_points=[
                    records.EndpointData(
                        name="PLAINTEXT", host=f"broker-{broker}.example", port=9092
                    )
                ],
                rack=f"rack-{broker % 3}",
                fenced=False,
                log_dirs=[uuid(3, broker)],
                version=3,
            )
        )
    row = 0
    for topic in range(topics):
        log.append(records.Topic(name=f"topic-{topic:05d}", topic_id=uuid(2, topic)))
        for partition in range(EACH):
            replicas = [(row + slot * (BROKERS // 3)) % BROKERS for slot in range(3)]
            log.append(
                records.Partition(
                    partition_id=partition,
                    topic_id=uuid(2, topic),
                    replicas=replicas,
                    isr=replicas,
                    leader=replicas[0],
                    leader_epoch=row % 11,
                    partition_epoch=row % 17,
                    directories=[uuid(3, broker) for broker in replicas],
                    version=2,
                )
            )
            row += 1
    return log


class Broker:
    """A metadata cache that follows a cluster."""

    def __init__(self, log: list[Record]) -> None:
        self._cluster = MetadataState(journaling=True)
        self._publishing = ImagePublishing(self._cluster)
        self.cache = MetadataCache(CLUSTER_ID, choose=min)
        self._publishing.register(self.cache, Phase.METADATA_CACHE)
        self.apply(log)

    def apply(self, log: list[Record]) -> None:
        batches = encode_records(log, base_offset=self._cluster.next_offset)
        self._cluster.apply(batches)
        self._publishing.note_batches(batches)
        self._publishing.publish(self._cluster.next_offset)

    def metadata(self, request: bytes) -> bytes:
        asked = MetadataRequestData.decode(request, VERSION)
        return self.cache.metadata(asked, VERSION, "PLAINTEXT").body


@pytest.fixture(scope="module")
def broker(sizes: Sizes) -> Broker:
    return Broker(cluster_records(topics_of(sizes)))


ALL = MetadataRequestData(topics=None, allow_auto_topic_creation=False).encode(VERSION)


def bench_metadata_all(
    benchmark: Any, measured: Callable[..., None], sizes: Sizes, broker: Broker
) -> None:
    body = benchmark.pedantic(
        broker.metadata, (ALL,), rounds=sizes.rounds, warmup_rounds=sizes.warmup
    )
    response = MetadataResponseData.decode(body, VERSION)
    partitions = topics_of(sizes) * EACH
    assert sum(len(topic.partitions) for topic in response.topics) == partitions
    assert not any(
        partition.error_code or partition.offline_replicas
        for topic in response.topics
        for partition in topic.partitions
    )
    measured("metadata_all", unit="partitions", count=partitions, bytes=len(body))


def bench_metadata_memcpy(
    benchmark: Any, measured: Callable[..., None], sizes: Sizes, broker: Broker
) -> None:
    source = np.frombuffer(broker.metadata(ALL), np.uint8)
    target = np.zeros_like(source)
    benchmark.pedantic(np.copyto, (target, source), rounds=sizes.rounds, warmup_rounds=sizes.warmup)
    assert target[-2] == source[-2]
    measured("metadata_memcpy", unit="partitions", count=topics_of(sizes) * EACH, bytes=len(source))


def bench_metadata_one(
    benchmark: Any, measured: Callable[..., None], sizes: Sizes, broker: Broker
) -> None:
    name = f"topic-{topics_of(sizes) // 2:05d}"
    request = MetadataRequestData([MetadataRequestTopic(name=name)], False).encode(VERSION)

    def ask() -> bytes:
        for _ in range(REPEATS):
            body = broker.metadata(request)
        return body

    body = benchmark.pedantic(ask, rounds=sizes.rounds, warmup_rounds=sizes.warmup)
    (topic,) = MetadataResponseData.decode(body, VERSION).topics
    assert (topic.name, len(topic.partitions)) == (name, EACH)
    measured("metadata_one", unit="requests", count=REPEATS, bytes=REPEATS * len(body))


def bench_describe_page(
    benchmark: Any, measured: Callable[..., None], sizes: Sizes, broker: Broker
) -> None:
    request = DescribeTopicPartitionsRequestData().encode(0)

    def ask() -> bytes:
        asked = DescribeTopicPartitionsRequestData.decode(request, 0)
        return broker.cache.describe_topic_partitions(asked, "PLAINTEXT")

    body = benchmark.pedantic(ask, rounds=sizes.rounds, warmup_rounds=sizes.warmup)
    measured(
        "describe_page",
        unit="partitions",
        count=min(2_000, topics_of(sizes) * EACH),
        bytes=len(body),
    )


def bench_metadata_fenced(
    benchmark: Any, measured: Callable[..., None], sizes: Sizes, broker: Broker
) -> None:
    broker.apply([records.BrokerRegistrationChange(broker_id=1, broker_epoch=1, fenced=1)])
    body = benchmark.pedantic(
        broker.metadata, (ALL,), rounds=sizes.rounds, warmup_rounds=sizes.warmup
    )
    partitions = topics_of(sizes) * EACH
    measured("metadata_fenced", unit="partitions", count=partitions, bytes=len(body))


@pytest.mark.peer
def test_kafkas_metadata_cache(peers: Peers, sizes: Sizes, broker: Broker) -> None:
    lines = run(peers, "metadata-cache", sizes, topics=topics_of(sizes), each=EACH, brokers=BROKERS)
    # The benchmark before has fenced a broker.
    assert lines["metadata_fenced"]["bytes"] == len(broker.metadata(ALL))
