"""A tree of znodes as a library object, with the questions of a metadata directory."""

from __future__ import annotations

import pytest

import kraft
from kraft.errors import InvalidArgumentError, ZooKeeperError
from kraft.zookeeper.opened import TreeMetadata
from tests.harness.znode_trees import (
    CLUSTER_ID,
    broker,
    document,
    settings,
    state,
    topic,
    tree,
)

ZNODES = {
    "/brokers/ids/1": broker(1, czxid=70, rack="r"),
    "/brokers/topics/a": topic((1, 2), (2, 1)),
    "/brokers/topics/a/partitions/0/state": state(1, (1,), epoch=3, version=8),
    "/brokers/topics/a/partitions/1/state": state(1, (1,), epoch=4, version=9),
    "/config/topics/a": settings(retention__ms="1"),
    "/controller": document(version=2, brokerid=1, timestamp="5", kraftControllerEpoch=-1),
    "/controller_epoch": b"12",
}


def test_a_tree_answers_the_questions_of_a_directory() -> None:
    metadata = TreeMetadata(tree(ZNODES))
    assert metadata.cluster_id == CLUSTER_ID
    assert (metadata.controller_id, metadata.controller_epoch) == (1, 12)
    assert metadata.notes == []
    assert metadata.features == {"metadata.version": 21}
    assert metadata.partitions.leader.tolist() == [1, 1]
    assert metadata.partitions.leader_epoch.tolist() == [3, 4]
    assert metadata.partitions.partition_epoch.tolist() == [8, 9]
    assert metadata.configs.topic("a") == {"retention.ms": "1"}
    assert metadata.brokers[1].epoch == 70
    assert not metadata.brokers[1].fenced


def test_decisions_and_earlier_states_work() -> None:
    metadata = TreeMetadata(tree(ZNODES))
    before = metadata.next_offset
    metadata.apply(metadata.fence_broker(1))
    assert metadata.brokers[1].fenced
    assert metadata.partitions.leader.tolist() == [-1, -1]
    assert kraft.diff(metadata.at(before), metadata)
    metadata.revert(before)
    assert metadata.partitions.leader.tolist() == [1, 1]
    assert [type(each.record).__name__ for each in metadata.records("Topic")] == ["Topic"]


def test_a_cluster_without_a_controller() -> None:
    metadata = TreeMetadata(tree())
    assert (metadata.controller_id, metadata.controller_epoch) == (-1, -1)


def test_changed_znodes_are_noted() -> None:
    metadata = TreeMetadata(tree(changed=("/brokers/topics/a",)))
    assert metadata.notes == ["changed while the tree was read: znode /brokers/topics/a"]


def test_a_tree_without_a_cluster_id_is_not_kafkas() -> None:
    with pytest.raises(ZooKeeperError, match="the tree has no /cluster/id, which every Kafka"):
        TreeMetadata(tree({"/cluster/id": None}))


@pytest.mark.parametrize("address", [None, 1, b"a:1", "a:b:c", "localhost:99999", "a\ud800"])
def test_another_address_is_refused(address: object) -> None:
    with pytest.raises(InvalidArgumentError):
        kraft.open_zookeeper(address)  # type: ignore[arg-type]


def test_a_directory_is_not_at_an_address() -> None:
    with pytest.raises(InvalidArgumentError, match=r"no path: use kraft.open_zookeeper"):
        kraft.open_metadata("zookeeper://localhost:2181")
