"""A broker's answers from its metadata cache, compared with those of Kafka's ``KafkaApis``.

Both replay the same records (`java/MetadataCacheOracle.java`), and answer the same requests of
every version. The responses are compared field by field: Kafka's sets have no order.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from kraft import records
from kraft.broker.metadata_cache import (
    MetadataCache,
    MetadataCacheSettings,
    failed_description,
    failed_metadata,
)
from kraft.errors import KraftError
from kraft.image.publishing import ImagePublishing, Phase
from kraft.image.replay import MetadataState
from kraft.protocol.describe_cluster import (
    DESCRIBE_CLUSTER,
    DescribeClusterRequestData,
    DescribeClusterResponseData,
)
from kraft.protocol.describe_topic_partitions import (
    DESCRIBE_TOPIC_PARTITIONS,
    DescribeTopicPartitionsRequestData,
    DescribeTopicPartitionsResponseData,
    TopicPartitionsCursor,
    TopicPartitionsRequestTopic,
)
from kraft.protocol.headers import Api
from kraft.protocol.metadata import (
    METADATA,
    MetadataRequestData,
    MetadataRequestTopic,
    MetadataResponseData,
)
from kraft.records import ZERO_UUID, Record, Uuid
from kraft.records.values import encode_value
from tests.harness.kafka_jars import Jars
from tests.harness.line_process import JsonRequests, LineProcess
from tests.harness.table_records import batch_of

pytestmark = pytest.mark.interop

LISTENERS = ("PLAIN", "TLS", "NONE")
NAMES = ("a", "b", "c.d", "empty", "__consumer_offsets", "__share_group_state", "late")
OTHER_NAMES = ("gone", "", "..", "no spaces", "x" * 250, "\U0001f600")
DIRECTORIES = [Uuid(n.to_bytes(16, "big")) for n in (0, 1, 2, 77, 78, 2**100)]
#: Numbers of CREATE and DESCRIBE on topics (2) and on the cluster (4).
DENIABLE = [f"{one} 2 {name}" for one in (5, 8) for name in (*NAMES, "gone")] + [
    f"{one} 4 kafka-cluster" for one in (5, 8, 9)
]


@pytest.fixture(scope="module")
def kafka(jars: Jars) -> Iterator[JsonRequests]:
    command = jars.oracle("MetadataCacheOracle")
    with LineProcess(command, errors=subprocess.DEVNULL) as process:
        yield JsonRequests(process)


def random_cluster(chance: random.Random) -> list[Record]:
    """Return brokers of every kind, and topics whose partitions some of them hold."""
    log: list[Record] = [records.FeatureLevel(name="metadata.version", feature_level=27, version=0)]
    for broker_id in chance.sample(range(6), chance.randint(0, 6)):
        listeners = chance.sample(("PLAIN", "TLS"), chance.choice((1, 2, 2, 2)))
        log.append(
            records.RegisterBroker(
                broker_id=broker_id,
                broker_epoch=broker_id + 10,
                incarnation_id=Uuid(chance.randbytes(16)),
                end_points=[
                    records.EndpointData(name=name, host=f"{name}-{broker_id}", port=9000)
                    for name in listeners
                ],
                rack=chance.choice((None, "r1")),
                fenced=chance.random() < 0.2,
                log_dirs=chance.sample(DIRECTORIES[3:], chance.randint(0, 3)),
                version=3,
            )
        )
    for number, name in enumerate(chance.sample(NAMES, chance.randint(0, len(NAMES)))):
        topic_id = Uuid(bytes([number + 1]) * 16)
        log.append(records.Topic(name=name, topic_id=topic_id))
        indexes = [] if name == "empty" else list(range(chance.randint(1, 5)))
        if name == "c.d":
            indexes = chance.sample(range(12), 5)
        log += [random_partition(chance, topic_id, index) for index in indexes]
    return log


def random_partition(chance: random.Random, topic_id: Uuid, index: int) -> Record:
    replicas = chance.sample(range(7), chance.choice((1, 3, 3, 3, 4, 6)))
    isr = chance.sample(replicas, chance.randint(0, len(replicas)))
    out = [replica for replica in replicas if replica not in isr]
    return records.Partition(
        partition_id=index,
        topic_id=topic_id,
        replicas=replicas,
        isr=isr,
        leader=chance.choice([*isr, *replicas, -1]),
        leader_epoch=chance.randrange(100),
        partition_epoch=chance.randrange(100),
        directories=[chance.choice(DIRECTORIES) for _ in replicas],
        eligible_leader_replicas=out[:1] or None,
        last_known_elr=out[1:] or None,
        version=2,
    )


def random_metadata_request(chance: random.Random, version: int) -> MetadataRequestData:
    def topic() -> MetadataRequestTopic:
        name: str | None = chance.choice((*NAMES, *OTHER_NAMES))
        topic_id = ZERO_UUID
        if version >= 10 and chance.random() < 0.2:
            topic_id = Uuid(bytes([chance.randint(1, 9)]) * 16)
        if version >= 10 and chance.random() < (0.7 if topic_id != ZERO_UUID else 0.02):
            name = None
        return MetadataRequestTopic(topic_id, name)

    topics = [topic() for _ in range(chance.choice((0, 1, 2, 5)))]
    return MetadataRequestData(
        None if version and chance.random() < 0.2 else topics,
        version < 4 or chance.random() < 0.5,
        8 <= version <= 10 and chance.random() < 0.5,
        version >= 8 and chance.random() < 0.5,
    )


def random_description(chance: random.Random) -> DescribeTopicPartitionsRequestData:
    cursor = None
    if chance.random() < 0.5:
        cursor = TopicPartitionsCursor(chance.choice((*NAMES, "gone")), chance.randint(-1, 4))
    names = chance.sample((*NAMES, *OTHER_NAMES), chance.choice((0, 0, 1, 3, 8)))
    if cursor is not None and names and chance.random() < 0.9:
        names.append(cursor.topic_name)
    if cursor is None and "" in names:
        # Kafka throws a NullPointerException: it takes "" for the topic of the missing cursor.
        names.remove("")
    return DescribeTopicPartitionsRequestData(
        [TopicPartitionsRequestTopic(name) for name in names], chance.randint(-1, 9), cursor
    )


class Both:
    """kraft's cache and Kafka's broker with the same records."""

    def __init__(
        self, kafka: JsonRequests, log: list[Record], *, auto_create: bool, limit: int
    ) -> None:
        self._kafka = kafka
        kafka("image", records=[encode_value(record).hex() for record in log])
        cluster = MetadataState(journaling=True)
        publishing = ImagePublishing(cluster)
        self.cache = MetadataCache("the-cluster", MetadataCacheSettings(auto_create, limit))
        publishing.register(self.cache, Phase.METADATA_CACHE)
        batch = batch_of(log)
        cluster.apply(batch)
        publishing.note_batches(batch)
        publishing.publish(cluster.next_offset)
        assert publishing.fault_counts == {}
        self.alive = {one.id for one in cluster.state.brokers.values() if not one.fenced} or {-1}
        self._settings = {"auto_create": auto_create, "limit": limit}

    def ask(
        self, api: Api, version: int, body: bytes, listener: str, denied: list[str] | None
    ) -> tuple[bytes, set[str], str]:
        """Return Kafka's response, the topics that it would create, and the request's exception."""
        answer = self._kafka(
            "ask",
            key=api.key,
            version=version,
            body=body.hex(),
            listener=listener,
            denied=denied,
            **self._settings,
        )
        return bytes.fromhex(answer["body"]), set(answer["create"]), answer["thrown"]


def denying(denied: list[str] | None) -> Any:
    if denied is None:
        return None
    return lambda operation, kind, name, log_if_denied=True: (
        f"{int(operation)} {int(kind)} {name}" not in denied
    )


def comparable(response: MetadataResponseData) -> MetadataResponseData:
    for topic in response.topics:
        topic.partitions.sort(key=lambda partition: partition.partition_index)
    response.topics.sort(key=lambda topic: (topic.name or "", topic.topic_id))
    response.brokers.sort(key=lambda broker: broker.node_id)
    return response


@pytest.mark.parametrize("seed", range(40))
def test_the_answers_are_those_of_kafkas_broker(kafka: JsonRequests, seed: int) -> None:
    chance = random.Random(seed)
    both = Both(
        kafka, random_cluster(chance), auto_create=seed % 2 == 0, limit=(2000, 3)[seed // 2 % 2]
    )
    for _ in range(60):
        listener = chance.choice(LISTENERS)
        denied = None
        if chance.random() < 0.5:
            denied = chance.sample(DENIABLE, chance.randint(0, 10))
        compare_metadata(both, chance, listener, denied)
        compare_description(both, chance, listener, denied)
        compare_cluster(both, chance, listener, denied)


def compare_metadata(
    both: Both, chance: random.Random, listener: str, denied: list[str] | None
) -> None:
    version = chance.randint(METADATA.lowest, METADATA.highest)
    request = random_metadata_request(chance, version)
    to_create: set[str] = set()
    rejected = False
    try:
        body, names = both.cache.metadata(request, version, listener, denying(denied))
        to_create = set(names)
    except KraftError as error:
        body = failed_metadata(request, error).encode(version)
        rejected = True
    theirs, created, thrown = both.ask(METADATA, version, request.encode(version), listener, denied)
    assert rejected == bool(thrown), (version, request, thrown)
    ours = comparable(MetadataResponseData.decode(body, version))
    kafkas = comparable(MetadataResponseData.decode(theirs, version))
    if kafkas.controller_id != -1:
        assert {ours.controller_id, kafkas.controller_id} <= both.alive
        ours.controller_id = kafkas.controller_id
    assert ours == kafkas, (version, request, listener, denied)
    assert to_create == created


def compare_description(
    both: Both, chance: random.Random, listener: str, denied: list[str] | None
) -> None:
    request = random_description(chance)
    rejected = False
    try:
        body = both.cache.describe_topic_partitions(request, listener, denying(denied))
    except KraftError as error:
        body = failed_description(request, error).encode(0)
        rejected = True
    theirs, _, thrown = both.ask(DESCRIBE_TOPIC_PARTITIONS, 0, request.encode(0), listener, denied)
    assert rejected == bool(thrown), (request, thrown)
    answers = [DescribeTopicPartitionsResponseData.decode(each, 0) for each in (body, theirs)]
    for answer in answers:
        # Kafka sorts the topics but those that the client may not describe.
        is_denied = [topic.error_code == 29 for topic in answer.topics]
        assert is_denied == sorted(is_denied)
        answer.topics.sort(key=lambda topic: (topic.name or "") if topic.error_code == 29 else "")
    assert answers[0] == answers[1], (request, listener, denied)


def compare_cluster(
    both: Both, chance: random.Random, listener: str, denied: list[str] | None
) -> None:
    version = chance.randint(DESCRIBE_CLUSTER.lowest, DESCRIBE_CLUSTER.highest)
    request = DescribeClusterRequestData(
        chance.random() < 0.5,
        chance.choice((1, 1, 1, 2, 7)) if version else 1,
        version >= 2 and chance.random() < 0.5,
    )
    ours = both.cache.describe_cluster(request, version, listener, denying(denied))
    theirs, _, thrown = both.ask(
        DESCRIBE_CLUSTER, version, request.encode(version), listener, denied
    )
    assert not thrown
    ours = DescribeClusterResponseData.decode(ours.encode(version), version)
    kafkas = DescribeClusterResponseData.decode(theirs, version)
    kafkas.brokers.sort(key=lambda broker: broker.broker_id)
    assert (ours.error_message is None) == (kafkas.error_message is None)
    kafkas.error_message = ours.error_message
    # Both choose a broker at random, and name it if it has the listener.
    shown = {broker.broker_id for broker in kafkas.brokers} | {-1}
    assert {ours.controller_id, kafkas.controller_id} <= (both.alive | {-1}) & shown
    kafkas.controller_id = ours.controller_id
    assert ours == kafkas, (version, request, listener, denied)
