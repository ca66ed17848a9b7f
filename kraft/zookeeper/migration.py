"""Turn the znodes of a Kafka cluster into the records of its migration to KRaft.

Pure. `migrated_records` yields what Kafka 3.9's own migration writes for the same tree
(``ZkMigrationClient.readAllMetadata``): topics with their settings and partitions, then settings of
brokers, client quotas with SCRAM credentials, producer ids, ACLs and delegation tokens. Ids of ACLs
differ, because Kafka draws them at random.

Differences: where Kafka takes a znode that is no JSON for an empty one, this module raises
CorruptZnodeError. Everything that is lost or assumed is a sentence in ``notes``.
Called by `convert` and `opened`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from kraft.errors import CorruptZnodeError
from kraft.image.configs import BROKER, TOPIC
from kraft.records import Config, Partition, ProducerIds, Record, Topic, Uuid
from kraft.zookeeper.checked_values import (
    DEFAULT_ENTITY,
    INT32_MAX,
    INT64_MAX,
    configs_of,
    named,
    number,
)
from kraft.zookeeper.migrated_security import migrated_acls, migrated_quotas, migrated_tokens
from kraft.zookeeper.tree import ZnodeTree
from kraft.zookeeper.znodes import (
    CLUSTER_ID,
    CONFIG,
    DELETE_TOPICS,
    PRODUCER_ID_BLOCK,
    TOPICS,
    JsonZnode,
    PartitionStateZnode,
    TopicZnode,
    config_path,
    decode_cluster_id,
    partitions_path,
    state_path,
    topic_path,
)

#: The version in which Kafka's migration writes partitions: without the ids of directories, which
#: ZooKeeper does not have.
_PARTITION_VERSION = 0

#: The ends of the names of settings whose values brokers encrypt in ZooKeeper
#: (``DynamicBrokerConfig.DynamicPasswordConfigs``).
_PASSWORDS = (
    "ssl.keystore.password",
    "ssl.key.password",
    "ssl.truststore.password",
    "sasl.jaas.config",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.truststore.certificates",
)

#: Returns the text of an encrypted value; the second argument names the setting in errors.
DecodePassword = Callable[[str, str], str]


def cluster_id_of(tree: ZnodeTree) -> str:
    """Return the cluster's id. Raises ZooKeeperError for a tree that is not Kafka's."""
    return decode_cluster_id(tree.required(CLUSTER_ID).data)


def migrated_records(
    tree: ZnodeTree, notes: list[str], decode_password: DecodePassword | None = None
) -> Iterator[Record]:
    """Yield the records of the tree, in the order of Kafka's migration, names sorted.

    Without ``decode_password`` encrypted settings of brokers keep their encrypted text, as in a
    migration whose controller has no ``password.encoder.secret``. Appends to ``notes``.

    Raises CorruptZnodeError with the path of a znode that Kafka did not write, ZooKeeperError
    where the tree is not that of a Kafka cluster.
    """
    yield from _topics(tree, notes)
    yield from _broker_configs(tree, notes, decode_password)
    yield from migrated_quotas(tree)
    yield from _producer_ids(tree)
    yield from migrated_acls(tree, notes)
    yield from migrated_tokens(tree)


def topics_of(tree: ZnodeTree) -> list[str]:
    """Return the topics that Kafka migrates: all but those whose deletion is pending."""
    tree.required(TOPICS)
    deleted = set(tree.children(DELETE_TOPICS))
    return [topic for topic in tree.children(TOPICS) if topic not in deleted]


def assigned_brokers(tree: ZnodeTree) -> tuple[int, ...]:
    """Return the ids of all brokers that have replicas of migrated topics, sorted."""
    brokers: set[int] = set()
    for topic in topics_of(tree):
        path = topic_path(topic)
        for replicas in TopicZnode.decode(tree.required(path).data, topic).assignment.values():
            brokers.update(_brokers(path, "a replica", replicas))
    return tuple(sorted(brokers))


def _topics(tree: ZnodeTree, notes: list[str]) -> Iterator[Record]:
    stateless: list[str] = []
    unassigned: list[str] = []
    topics = topics_of(tree)
    for topic in topics:
        path = topic_path(topic)
        znode = TopicZnode.decode(tree.required(path).data, topic)
        topic_id = _topic_id(path, znode.topic_id)
        yield Topic(topic, topic_id)
        yield from _topic_configs(tree, topic)
        for partition in sorted(znode.assignment):
            if partition > INT32_MAX:
                raise CorruptZnodeError(f"{path} has the partition {partition}: it is too large")
            yield _partition(tree, topic, topic_id, partition, znode, stateless)
        known = znode.assignment.keys()
        unassigned += (
            f"{partitions_path(topic)}/{name}"
            for name in tree.children(partitions_path(topic))
            if not (name.isdigit() and int(name) in known)
        )
    if pending := [topic for topic in tree.children(DELETE_TOPICS) if topic not in topics]:
        notes.append(
            f"left out, because its deletion is pending: {named(pending, 'topic')}; brokers rename "
            "the partitions to *-stray"
        )
    if stateless:
        notes.append(
            f"without a state: {named(stateless, 'partition')}; leader and ISR are the assigned "
            "replicas, as in Kafka's migration"
        )
    if unassigned:
        notes.append(f"left out, because no replica is assigned: {named(unassigned, 'znode')}")


def _topic_id(path: str, text: str | None) -> Uuid:
    if text is None:
        raise CorruptZnodeError(
            f"{path} has no topic_id: brokers from 2.8 on add it when their controller starts. "
            "Upgrade all brokers to 3.9, set inter.broker.protocol.version=3.9, and restart them"
        )
    try:
        return Uuid.parse(text)
    except ValueError:
        raise CorruptZnodeError(f"{path}: topic_id is {text!r:.40}, not a uuid") from None


def _topic_configs(tree: ZnodeTree, topic: str) -> Iterator[Record]:
    for name, value in configs_of(tree, "topics", topic).items():
        yield Config(TOPIC, topic, name, value)


def _partition(
    tree: ZnodeTree,
    topic: str,
    topic_id: Uuid,
    partition: int,
    znode: TopicZnode,
    stateless: list[str],
) -> Partition:
    path = topic_path(topic)
    replicas = _brokers(path, "a replica", znode.assignment[partition])
    if not replicas:
        raise CorruptZnodeError(f"{path}: partition {partition} has no replicas")
    record = Partition(
        partition,
        topic_id,
        replicas,
        replicas,
        _brokers(path, "a removed replica", znode.removing.get(partition, ())),
        _brokers(path, "an added replica", znode.adding.get(partition, ())),
        replicas[0],
        0,
        0,
        0,
        version=_PARTITION_VERSION,
    )
    path = state_path(topic, partition)
    stored = tree.get(path)
    if stored is None:
        stateless.append(f"{topic}-{partition}")
        return record
    state = PartitionStateZnode.decode(stored.data, path)
    record.isr = _brokers(path, "a member of the ISR", state.isr)
    record.leader = number(path, "leader", state.leader, -1, INT32_MAX)
    record.leader_epoch = number(path, "leader_epoch", state.leader_epoch, 0, INT32_MAX)
    record.leader_recovery_state = number(
        path, "leader_recovery_state", state.recovery_state or 0, 0, 1
    )
    record.partition_epoch = stored.version
    return record


def _brokers(path: str, what: str, ids: Sequence[int]) -> list[int]:
    for each in ids:
        number(path, what, each, 0, INT32_MAX)
    return list(ids)


def _broker_configs(
    tree: ZnodeTree, notes: list[str], decode_password: DecodePassword | None
) -> Iterator[Record]:
    encrypted: list[str] = []
    for entity in tree.children(f"{CONFIG}/brokers"):
        path = config_path("brokers", entity)
        name = "" if entity == DEFAULT_ENTITY else entity
        if name and not (name.isascii() and name.isdigit() and int(name) <= INT32_MAX):
            raise CorruptZnodeError(f"{path} is not named {DEFAULT_ENTITY} nor by a broker's id")
        for key, value in configs_of(tree, "brokers", entity).items():
            if key.endswith(_PASSWORDS):
                if decode_password is None:
                    encrypted.append(f"{key} of {path}")
                else:
                    value = decode_password(value, f"{path}: {key}")
            yield Config(BROKER, name, key, value)
    if encrypted:
        notes.append(
            f"encrypted, and of no use to brokers: {named(encrypted, 'setting')}; set it again, "
            "or give the password.encoder.secret of the brokers"
        )


def _producer_ids(tree: ZnodeTree) -> Iterator[Record]:
    data = tree.data(PRODUCER_ID_BLOCK)
    if not data:
        return
    znode = JsonZnode(PRODUCER_ID_BLOCK, data)
    broker = number(PRODUCER_ID_BLOCK, "broker", znode.integer("broker"), -1, INT32_MAX)
    znode.text("block_end")
    end = znode.number_in_text("block_end", 0)
    number(PRODUCER_ID_BLOCK, "block_end", end, 0, INT64_MAX - 1)
    yield ProducerIds(broker, -1, end + 1)
