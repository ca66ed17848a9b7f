"""Backups of recorded metadata: what damage is found, and what a restore writes."""

from __future__ import annotations

import dataclasses
import json
import re
from itertools import permutations
from pathlib import Path
from random import Random

import pytest

from kraft.controller.brokers.broker_lifecycle import (
    fence_broker,
    register_broker,
    unfence_broker,
)
from kraft.errors import (
    CorruptRecordError,
    InvalidRequestError,
    KraftError,
    StorageError,
    UnsupportedVersionError,
)
from kraft.metadata.backup import MANIFEST, Backup, read_backup, write_backup
from kraft.metadata.diff import diff
from kraft.metadata.directory import MetadataDirectory
from kraft.metadata.facade import Metadata, open_metadata
from kraft.metadata.snapshots import load_snapshot, save_snapshot
from kraft.raft.voters import Endpoint
from kraft.records import RECORD_TYPES
from kraft.server.disk.store import MetadataStore
from kraft.server.storage.restore import (
    EPOCH_MARGIN,
    PRODUCER_IDS_PER_EPOCH,
    RULES,
    restore,
)
from tests.harness.decisions import Lab, registration

DATA = Path(__file__).parents[3] / "data"
NOW_MS = 1_800_000_000_000
CLUSTER_ID = "Jm4zGxYVQxO0Jq5lRd5rBw"
ENDPOINTS = (Endpoint("CONTROLLER", "localhost", 9093),)


@pytest.fixture
def source() -> Metadata:
    return open_metadata(DATA / "kafka-4.3" / "controller-101")


@pytest.fixture
def backup(source: Metadata, tmp_path: Path) -> Backup:
    return write_backup(source, tmp_path / "backup", cluster_id=CLUSTER_ID, created_ms=NOW_MS)


def test_a_backup_is_the_state(source: Metadata, backup: Backup) -> None:
    manifest = backup.manifest
    assert (manifest.cluster_id, manifest.offset) == (CLUSTER_ID, source.next_offset)
    assert manifest.records["Partition"] == len(source.partitions)
    assert list(diff(source, open_metadata(backup.snapshot.path))) == []
    assert read_backup(backup.path) == backup
    for path in backup.path.iterdir():
        assert path.stat().st_mode & 0o077 == 0, "secrets are readable by others"


@pytest.mark.parametrize("seed", range(40))
def test_damage_is_found(backup: Backup, seed: int) -> None:
    dice = Random(seed)
    path = dice.choice(sorted(backup.path.iterdir()))
    content = bytearray(path.read_bytes())
    if dice.random() < 0.3:
        del content[dice.randrange(len(content)) :]
    else:
        content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
    if path.name == MANIFEST and _has_same_meaning(content, path):
        return
    path.write_bytes(content)
    with pytest.raises(KraftError, match=re.escape(str(backup.path))):
        read_backup(backup.path)


def _has_same_meaning(content: bytearray, path: Path) -> bool:
    """White space of JSON has no meaning, so that not every damage of it is one."""
    try:
        return bool(json.loads(content) == json.loads(path.read_bytes()))
    except ValueError:
        return False


def test_the_snapshot_of_another_backup_is_found(source: Metadata, backup: Backup) -> None:
    """It is sound, with the same name and size: only the checksum tells."""
    other = write_backup(
        source, backup.path.parent / "other", cluster_id=CLUSTER_ID, created_ms=NOW_MS + 1
    )
    assert other.manifest.size == backup.manifest.size
    backup.snapshot.path.write_bytes(other.snapshot.path.read_bytes())
    with pytest.raises(CorruptRecordError, match="SHA-256 is not that of the backup"):
        read_backup(backup.path)


def test_missing_files_are_named(backup: Backup, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="is not a backup"):
        read_backup(tmp_path)
    backup.snapshot.path.unlink()
    with pytest.raises(CorruptRecordError, match=r"checkpoint is missing"):
        read_backup(backup.path)


def test_a_newer_format_is_named(backup: Backup) -> None:
    path = backup.path / MANIFEST
    fields = json.loads(path.read_text())
    path.write_text(json.dumps(fields | {"format": 2}))
    with pytest.raises(UnsupportedVersionError, match="format 2"):
        read_backup(backup.path)


def test_an_open_transaction_has_no_backup(tmp_path: Path) -> None:
    source = open_metadata(DATA / "kafka-4.3-transaction" / "controller-201-open")
    with pytest.raises(InvalidRequestError, match="transaction"):
        write_backup(source, tmp_path / "b", cluster_id=CLUSTER_ID, created_ms=NOW_MS)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("endpoints", "margin"),
    [(ENDPOINTS, EPOCH_MARGIN), ((), 2 * EPOCH_MARGIN)],
    ids=["dynamic", "static"],
)
def test_a_restore(
    source: Metadata,
    backup: Backup,
    endpoints: tuple[Endpoint, ...],
    margin: int,
    tmp_path: Path,
) -> None:
    done = restore(
        backup,
        tmp_path / "new",
        node_id=7,
        endpoints=endpoints,
        timestamp_ms=NOW_MS,
        epoch_margin=margin,
    )
    assert (done.offset, done.epoch) == (source.next_offset, source.epoch + margin)
    made = open_metadata(tmp_path / "new")
    assert made.next_offset == source.next_offset
    assert made.features == source.features
    assert made.configs == source.configs
    assert made.client_quotas == source.client_quotas
    assert made.scram_credentials == source.scram_credentials
    assert made.delegation_tokens == source.delegation_tokens
    assert made.state.acls == source.state.acls
    assert list(made.controllers) == []
    fenced = {id: dataclasses.replace(each, fenced=True) for id, each in source.brokers.items()}
    assert made.brokers == fenced
    ids = margin * PRODUCER_IDS_PER_EPOCH
    assert made.state.next_producer_id == source.state.next_producer_id + ids
    for before, after in zip(source.partitions, made.partitions, strict=True):
        assert (after.topic, after.partition) == (before.topic, before.partition)
        assert (after.replicas, after.directories) == (before.replicas, before.directories)
        assert after.leader_epoch == before.leader_epoch + margin
        assert after.partition_epoch == before.partition_epoch + margin
        assert (after.leader, after.isr, after.elr) == (-1, (), before.isr + before.elr)
        last_known = (before.leader,) if before.leader >= 0 else before.last_known_elr
        assert after.last_known_elr == last_known

    store = MetadataStore.open(tmp_path / "new")
    try:
        assert store.view.end_offset == done.offset
        assert store.election.epoch == done.epoch
        voters = [(each.id, each.key.directory_id) for each in store.view.voters]
        assert voters == ([(7, done.directory_id)] if endpoints else [])
        assert store.view.kraft_version == int(bool(endpoints))
    finally:
        store.close()


@pytest.mark.parametrize(
    ("margin", "words"), [(0, "give 1 or more"), ((1 << 31) - 1, "Use a smaller margin")]
)
def test_a_margin_without_an_epoch(backup: Backup, margin: int, words: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=words):
        restore(
            backup,
            tmp_path / "new",
            node_id=7,
            endpoints=ENDPOINTS,
            timestamp_ms=NOW_MS,
            epoch_margin=margin,
        )
    assert sorted(tmp_path.iterdir()) == [backup.path]


def test_a_static_restore_of_an_old_metadata_version(tmp_path: Path) -> None:
    """Below 3.9-IV0 voters cannot change."""
    source = open_metadata(DATA / "kafka-3.7" / "controller-101")
    made = write_backup(source, tmp_path / "b", cluster_id=CLUSTER_ID, created_ms=NOW_MS)
    with pytest.raises(InvalidRequestError, match=r"3\.9-IV0"):
        restore(made, tmp_path / "new", node_id=7, endpoints=ENDPOINTS, timestamp_ms=NOW_MS)
    done = restore(made, tmp_path / "new", node_id=7, endpoints=(), timestamp_ms=NOW_MS)
    assert len(open_metadata(done.path).partitions) == len(source.partitions)


def test_every_record_of_a_snapshot_has_a_rule(source: Metadata) -> None:
    """The other record types are changes of these, and no snapshot has them."""
    only_in_logs = {
        *("UnregisterBroker", "UnregisterController", "PartitionChange", "RemoveTopic", "NoOp"),
        *("FenceBroker", "UnfenceBroker", "BrokerRegistrationChange", "ClearElr"),
        *("RemoveAccessControlEntry", "RemoveUserScramCredential", "RemoveDelegationToken"),
        *("BeginTransaction", "EndTransaction", "AbortTransaction"),
    }
    assert {each.__name__ for each in RULES} == set(RECORD_TYPES) - only_in_logs


@pytest.mark.parametrize("seed", range(60))
def test_a_broker_with_its_data_leads_whoever_returns_first(seed: int, tmp_path: Path) -> None:
    """A healthy replica left the ISR when it registered, in favour of one that returned wiped."""
    dice = Random(seed)
    ids = [0, 1, 2]
    saved = Lab(len(ids), elr=True)
    saved.create("t", ids)
    saved.do(fence_broker(saved.cluster, dice.choice(ids)))
    held = saved.partition("t")["isr"]
    lost = set(dice.sample(ids, dice.randrange(len(ids) + 1)))

    restored = restored_lab(saved, tmp_path)
    dice.shuffle(ids)
    for id in ids:
        come_back(restored, id, -1 if id in lost else saved.cluster.state.brokers[id].epoch)
    leader = restored.partition("t")["leader"]
    with_data = set(held) - lost
    assert leader in with_data if with_data else leader == saved.partition("t")["leader"]


@pytest.mark.parametrize("order", permutations(range(3)))
def test_without_elr_the_last_member_of_the_isr_that_returns_leads(
    order: tuple[int, ...], tmp_path: Path
) -> None:
    """As after a restart of all brokers; until then the partition has no leader."""
    saved = Lab(3)
    saved.create("t", [0, 1, 2])
    saved.create("one", [1])
    restored = restored_lab(saved, tmp_path)
    for id in order:
        assert restored.partition("t")["leader"] == -1
        come_back(restored, id, -1)
    assert restored.partition("t")["leader"] == order[-1]
    assert restored.partition("one")["leader"] == 1


def restored_lab(saved: Lab, directory: Path) -> Lab:
    """Return the cluster that starts from a backup of another one."""
    file = save_snapshot(
        directory / "source", saved.cluster, last_contained_log_timestamp_ms=0, timestamp_ms=0
    )
    backup = write_backup(
        open_metadata(file), directory / "backup", cluster_id=CLUSTER_ID, created_ms=NOW_MS
    )
    target = directory / "new"
    restore(backup, target, node_id=7, endpoints=(), timestamp_ms=NOW_MS)
    restored = Lab(0)
    restored.cluster = load_snapshot(MetadataDirectory.find(target).snapshots[0])
    return restored


def come_back(lab: Lab, id: int, previous_epoch: int) -> None:
    """Register a broker that has restarted, and unfence it; -1 without a clean shutdown."""
    asked = registration(id, incarnation=2, previous_broker_epoch=previous_epoch)
    lab.do(register_broker(lab.cluster, asked, next_offset=lab.cluster.next_offset))
    lab.do(unfence_broker(lab.cluster, id))
