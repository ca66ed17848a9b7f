"""The metadata directory that a tree is converted to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kraft
from kraft.errors import CorruptZnodeError, InvalidRequestError, UnsupportedVersionError
from kraft.raft.voters import Endpoint
from kraft.records import MetadataVersion
from kraft.zookeeper.convert import Converted, convert
from kraft.zookeeper.opened import TreeMetadata
from kraft.zookeeper.tree import ZnodeTree
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
    "/brokers/topics/a": topic((1, 2), (2, 1)),
    "/brokers/topics/a/partitions/0/state": state(1, (1,), epoch=3, version=8),
    "/brokers/topics/a/partitions/1/state": state(1, (1,), epoch=4, version=9),
    "/config/topics/a": settings(retention__ms="1"),
}
ENDPOINTS = (Endpoint("CONTROLLER", "localhost", 9093),)


def converted(tree: ZnodeTree, target: Path, **options: Any) -> Converted:
    return convert(tree, target, timestamp_ms=1000, **options)


def test_the_directory_has_the_state_of_the_tree(tmp_path: Path) -> None:
    done = converted(tree(ZNODES), tmp_path / "new")
    assert (done.cluster_id, done.node_id, done.epoch) == (CLUSTER_ID, 3000, 1)
    assert done.brokers == (1, 2)
    assert done.notes == ()
    metadata = kraft.open_metadata(tmp_path / "new")
    assert metadata.cluster_id == CLUSTER_ID
    assert metadata.next_offset == done.offset
    assert metadata.epoch == 1
    differences = kraft.diff(TreeMetadata(tree(ZNODES)), metadata)
    assert [each.kind for each in differences] == ["zk_migration"]
    assert _log_of(tmp_path / "new").quorum.voter_ids == (3000,)


def test_log_and_snapshot_agree(tmp_path: Path) -> None:
    done = converted(tree(ZNODES), tmp_path / "new")
    assert not kraft.verify([tmp_path / "new"]).findings
    directory = tmp_path / "new" / "__cluster_metadata-0"
    (snapshot,) = directory.glob("*.checkpoint")
    assert snapshot.name == f"{done.offset:020}-0000000001.checkpoint"
    assert not kraft.diff(kraft.open_metadata(snapshot), _log_of(tmp_path / "new"))


def test_the_log_has_the_records_of_kafkas_controller_in_order(tmp_path: Path) -> None:
    converted(tree({**ZNODES, "/brokers/ids/1": broker(1)}), tmp_path / "new")
    metadata = kraft.open_metadata(tmp_path / "new")
    assert [type(each.record).__name__ for each in metadata.records()] == [
        "LeaderChange",
        *("BeginTransaction", "FeatureLevel", "ZkMigrationState", "EndTransaction"),
        "RegisterBroker",
        *("BeginTransaction", "Topic", "Config", "Partition", "Partition"),
        *("ZkMigrationState", "EndTransaction", "ZkMigrationState"),
    ]


def test_a_controller_with_listeners_is_a_voter_that_may_change(tmp_path: Path) -> None:
    done = converted(tree(ZNODES), tmp_path / "new", node_id=7, endpoints=ENDPOINTS)
    assert done.is_dynamic
    quorum = kraft.open_metadata(tmp_path / "new").quorum
    assert quorum.kraft_version == 1
    assert [(each.id, each.directory_id) for each in quorum.voters] == [(7, done.directory_id)]


def test_a_static_quorum_has_the_configured_voters(tmp_path: Path) -> None:
    converted(tree(ZNODES), tmp_path / "new", node_id=7, voter_ids=(9, 7, 8))
    assert _log_of(tmp_path / "new").quorum.voter_ids == (7, 8, 9)


def test_the_node_id_is_free(tmp_path: Path) -> None:
    assert converted(tree({"/brokers/topics/a": topic((3005,))}), tmp_path / "a").node_id == 3006
    with pytest.raises(InvalidRequestError, match="node 2 is a broker of this cluster"):
        converted(tree(ZNODES), tmp_path / "b", node_id=2)
    assert not (tmp_path / "b").exists()
    assert converted(tree(ZNODES), tmp_path / "b", node_id=2, is_broker=True).node_id == 2


def test_a_running_cluster_and_changes_are_noted(tmp_path: Path) -> None:
    running = tree({**ZNODES, "/brokers/ids/1": broker(1)}, changed=("/brokers/topics/a",))
    first, second = converted(running, tmp_path / "new").notes
    assert first.startswith("registered in ZooKeeper: broker 1; the cluster runs")
    assert second == "changed while the tree was read: znode /brokers/topics/a"


def test_other_levels_of_metadata_version(tmp_path: Path) -> None:
    level = MetadataVersion.IBP_4_1_IV0
    converted(tree(ZNODES), tmp_path / "new", level=level)
    features = kraft.open_metadata(tmp_path / "new").features
    assert features["metadata.version"] == level
    assert features["eligible.leader.replicas.version"] == 1
    with pytest.raises(UnsupportedVersionError, match=r"3.5-IV2 has no metadata transactions"):
        converted(tree(), tmp_path / "old", level=MetadataVersion.IBP_3_5_IV2)
    with pytest.raises(UnsupportedVersionError, match=r"voters that can change need .*3.9-IV0"):
        converted(
            tree(),
            tmp_path / "old",
            level=MetadataVersion.IBP_3_8_IV0,
            node_id=7,
            endpoints=ENDPOINTS,
        )


def test_a_migration_under_way_is_refused(tmp_path: Path) -> None:
    def migrating(offset: int) -> ZnodeTree:
        return tree({"/migration": document(version=0, kraft_metadata_offset=offset)})

    with pytest.raises(InvalidRequestError, match="have migrated this cluster up to offset 7 "):
        converted(migrating(7), tmp_path / "new")
    assert converted(migrating(-1), tmp_path / "new").notes == ()


def test_a_failed_conversion_leaves_no_directory(tmp_path: Path) -> None:
    broken = {**ZNODES, "/brokers/topics/a/partitions/1/state": b"{"}
    with pytest.raises(CorruptZnodeError, match="/brokers/topics/a/partitions/1/state holds"):
        converted(tree(broken), tmp_path / "new")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "file").touch()
    with pytest.raises(InvalidRequestError, match="new already exists"):
        converted(tree(ZNODES), tmp_path / "new")


def test_progress_reaches_the_number_of_records(tmp_path: Path) -> None:
    seen: list[int] = []
    done = converted(tree(ZNODES), tmp_path / "new", on_progress=seen.append)
    assert seen[-1] == sum(done.records.values())


def _log_of(directory: Path) -> kraft.Metadata:
    """Return the state that the log makes without the snapshot."""
    return kraft.open_metadata(directory / "__cluster_metadata-0" / f"{0:020}.log")
