"""Topics, settings of brokers and producer ids of a tree as the records of its migration."""

from __future__ import annotations

import pytest

from kraft.errors import CorruptZnodeError, ZooKeeperError
from kraft.records import Config, Partition, ProducerIds, Record, Topic, Uuid
from kraft.zookeeper.migration import assigned_brokers, migrated_records
from kraft.zookeeper.tree import StoredZnode, ZnodeTree
from tests.harness.znode_trees import TOPIC_ID, document, settings, state, topic, tree

ID = Uuid.parse(TOPIC_ID)


def records_of(tree: ZnodeTree) -> list[Record]:
    """Return the records of a tree in which nothing is missing."""
    notes: list[str] = []
    found = list(migrated_records(tree, notes))
    assert notes == []
    return found


def test_an_empty_cluster_has_no_records() -> None:
    assert records_of(tree()) == []


def test_a_topic_brings_its_id_settings_assignment_and_state() -> None:
    found = records_of(
        tree(
            {
                "/brokers/topics/a": topic((1, 2), (2, 1)),
                "/config/topics/a": settings(retention__ms="1000"),
                "/brokers/topics/a/partitions/0/state": state(2, (2,), epoch=4, version=9),
                "/brokers/topics/a/partitions/1/state": state(-1, (2, 1), epoch=1, version=2),
            }
        )
    )
    assert found == [
        Topic("a", ID),
        Config(2, "a", "retention.ms", "1000"),
        Partition(0, ID, [1, 2], [2], [], [], 2, 0, 4, 9),
        Partition(1, ID, [2, 1], [2, 1], [], [], -1, 0, 1, 2),
    ]
    assert [each.version for each in found if isinstance(each, Partition)] == [0, 0]


def test_a_reassignment_and_a_recovering_leader_are_kept() -> None:
    znode = document(
        version=3,
        topic_id=TOPIC_ID,
        partitions={"0": [3, 1, 2]},
        adding_replicas={"0": [3]},
        removing_replicas={"0": [2]},
    )
    recovering = document(
        version=1, leader=1, leader_epoch=7, isr=[1], controller_epoch=2, leader_recovery_state=1
    )
    (_, partition) = records_of(
        tree(
            {
                "/brokers/topics/a": znode,
                "/brokers/topics/a/partitions/0/state": StoredZnode(recovering, 5),
            }
        )
    )
    assert partition == Partition(0, ID, [3, 1, 2], [1], [2], [3], 1, 1, 7, 5)


def test_a_partition_without_state_starts_with_all_replicas_in_sync() -> None:
    notes: list[str] = []
    found = list(migrated_records(tree({"/brokers/topics/a": topic((2, 1))}), notes))
    assert found[1] == Partition(0, ID, [2, 1], [2, 1], [], [], 2, 0, 0, 0)
    assert notes == [
        "without a state: partition a-0; leader and ISR are the assigned replicas, as in Kafka's "
        "migration"
    ]


def test_a_topic_whose_deletion_is_pending_is_left_out() -> None:
    notes: list[str] = []
    deleted = {"/brokers/topics/a": topic((1,)), "/admin/delete_topics/a": b""}
    assert list(migrated_records(tree(deleted), notes)) == []
    assert notes == [
        "left out, because its deletion is pending: topic a; brokers rename the partitions to "
        "*-stray"
    ]
    assert assigned_brokers(tree(deleted)) == ()


def test_a_partition_that_is_not_assigned_is_left_out() -> None:
    notes: list[str] = []
    left = {
        "/brokers/topics/a": topic((1,)),
        "/brokers/topics/a/partitions/0/state": state(1, (1,)),
        "/brokers/topics/a/partitions/7/state": state(1, (1,)),
    }
    assert len(list(migrated_records(tree(left), notes))) == 2
    assert notes == [
        "left out, because no replica is assigned: znode /brokers/topics/a/partitions/7"
    ]


def test_settings_of_brokers_and_of_all_brokers() -> None:
    found = records_of(
        tree(
            {
                "/config/brokers/<default>": settings(log__cleaner__threads="2"),
                "/config/brokers/11": settings(
                    max__connections="9", leader__replication__throttled__rate="5"
                ),
                "/config/brokers/12": b"",
            }
        )
    )
    assert found == [
        Config(4, "11", "leader.replication.throttled.rate", "5"),
        Config(4, "11", "max.connections", "9"),
        Config(4, "", "log.cleaner.threads", "2"),
    ]


def test_encrypted_settings_are_decoded_or_noted() -> None:
    name = "listener.name.external.ssl.keystore.password"
    secret = tree({"/config/brokers/1": document(version=1, config={name: "encrypted"})})
    notes: list[str] = []
    (kept,) = migrated_records(secret, notes)
    assert kept == Config(4, "1", name, "encrypted")
    assert notes == [
        f"encrypted, and of no use to brokers: setting {name} of /config/brokers/1; set it again, "
        "or give the password.encoder.secret of the brokers"
    ]
    notes.clear()
    (decoded,) = migrated_records(secret, notes, lambda value, where: f"{value} {where}")
    assert decoded == Config(4, "1", name, f"encrypted /config/brokers/1: {name}")
    assert notes == []


def test_the_next_block_of_producer_ids() -> None:
    block = document(version=1, broker=2, block_start="3000", block_end="3999")
    assert records_of(tree({"/latest_producer_id_block": block})) == [ProducerIds(2, -1, 4000)]


@pytest.mark.parametrize(
    ("path", "content", "message"),
    [
        ("/brokers/topics/a", b"", "/brokers/topics/a holds b'', which is not JSON"),
        ("/brokers/topics/a", b"[1]", r"/brokers/topics/a holds b'\[1\]', not a JSON object"),
        ("/brokers/topics/a", topic((1,), topic_id=None), "/brokers/topics/a has no topic_id"),
        ("/brokers/topics/a", topic((1,), topic_id="x"), "topics/a: topic_id is 'x', not a uuid"),
        ("/brokers/topics/a", topic(()), "/brokers/topics/a: partition 0 has no replicas"),
        ("/brokers/topics/a", topic((-1,)), "/brokers/topics/a: a replica is -1, not 0 to"),
        (
            "/brokers/topics/a",
            document(version=3, topic_id=TOPIC_ID, partitions={"5000000000": [1]}),
            "/brokers/topics/a has the partition 5000000000: it is too large",
        ),
        ("/brokers/topics/b/partitions/0/state", b"{}", "b/partitions/0/state: leader is missing"),
        (
            "/brokers/topics/b/partitions/0/state",
            b"[" * 100_000,
            "b/partitions/0/state holds .*, which is not JSON",
        ),
        (
            "/brokers/topics/b/partitions/0/state",
            document(leader=-2, leader_epoch=0, isr=[1], controller_epoch=1),
            "/brokers/topics/b/partitions/0/state: leader is -2, not -1 to",
        ),
        ("/config/topics/b", b'{"config":{"a":1}}', "/config/topics/b: a is 1, not a text"),
        (
            "/config/topics/b",
            rb'{"config":{"a":"\ud800"}}',
            "/config/topics/b has a text that is not valid",
        ),
        ("/config/brokers/x", b"", "/config/brokers/x is not named <default> nor by a broker's id"),
        ("/latest_producer_id_block", b"{}", "/latest_producer_id_block: broker is missing"),
        (
            "/latest_producer_id_block",
            document(version=1, broker=1, block_start="0", block_end="9223372036854775807"),
            "/latest_producer_id_block: block_end is 9223372036854775807, not 0 to",
        ),
    ],
)
def test_an_error_names_the_path(path: str, content: bytes, message: str) -> None:
    corrupt = {"/brokers/topics/b": topic((1,)), path: content}
    with pytest.raises(CorruptZnodeError, match=message):
        list(migrated_records(tree(corrupt), []))


def test_a_tree_without_topics_is_not_kafkas() -> None:
    with pytest.raises(ZooKeeperError, match=r"the tree has no /brokers/topics, .* the chroot"):
        list(migrated_records(tree({"/brokers/topics": None}), []))
