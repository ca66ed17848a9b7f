"""The simulation of the quorum: runs of many seeds, and checks that can fail."""

import json
from collections import Counter
from random import Random

import pytest

from kraft.raft.election_state import ElectionState
from kraft.raft.interface import (
    AppendBatches,
    InstallSnapshot,
    Role,
    RoleChange,
    StoreSnapshotChunk,
    TruncateLog,
    WriteElectionState,
)
from kraft.raft.rpc import FetchRequest, FetchResponse, LogSlice, OffsetAndEpoch, VoteRequest
from kraft.raft.voters import KRaftVersionRange, ReplicaKey, VoterNode, VoterSet
from kraft.records import Uuid
from kraft.records.batches import encode_control_records
from kraft.simulation.batch_tree import BatchTree, Entry, Violation
from kraft.simulation.cluster import SimulatedCluster
from kraft.simulation.log_storage import LogStorage
from kraft.simulation.machine import Asked, Machine, Origin
from kraft.simulation.replays import QUORUM
from kraft.simulation.scenario import Phases, build
from kraft.simulation.seeds import SeedSummary
from kraft.simulation.storage import Snapshot, Storage, snapshot_content
from tests.harness.raft_nodes import batch
from tests.simulation import run


def test_a_large_run_fails_if_an_event_never_happens() -> None:
    counts = Counter({name: 1 for name in run.MUST_HAPPEN if name != "leader_crashes"})
    summary = SeedSummary(QUORUM, seeds=1, events=run.ALONE.enough_events, counts=counts)
    assert run.ALONE.never_happened(summary) == ["leader_crashes"]
    summary.events -= 1
    assert run.ALONE.never_happened(summary) == []


def test_a_run_of_many_seeds_prints_its_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.run_many(range(3, 7), 400, 1, as_json=True) == 0
    figures = json.loads(capsys.readouterr().out)
    assert (figures["seeds"], figures["violations"]) == (4, [])
    assert figures["never_happened"] == []
    assert run.run_many(range(3, 7), 400, 2, as_json=True) == 0
    again = json.loads(capsys.readouterr().out)
    for name in ("digest", "counts", "events", "simulated_seconds"):
        assert again[name] == figures[name]


# -- violations by hand


@pytest.fixture
def cluster() -> SimulatedCluster:
    """Return a cluster of at least three voters, all up, with committed batches and idle."""
    cluster, faults = build(next(seed for seed in range(99) if voter_count(seed) == 3))
    Phases(cluster, faults, 1).start()
    cluster.run()
    return cluster


def voter_count(seed: int) -> int:
    machines = build(seed)[0].machines.values()
    static = next(iter(machines)).config.static_voters
    return len(static) if static.ids and len(machines) == 3 else 0


def leader_of(cluster: SimulatedCluster) -> Machine:
    leader = cluster.leader()
    assert leader is not None
    return leader


def follower_of(cluster: SimulatedCluster) -> Machine:
    return next(it for it in cluster.machines.values() if it.role is Role.FOLLOWER)


def violated(error: pytest.ExceptionInfo[Violation]) -> str:
    return error.value.invariant


def test_two_leaders_of_an_epoch_are_noticed(cluster: SimulatedCluster) -> None:
    leader, follower = leader_of(cluster), follower_of(cluster)
    change = RoleChange(Role.LEADER, leader.epoch, follower.id)
    with pytest.raises(Violation) as error:
        cluster.checks.role_changed(follower, change)
    assert violated(error) == "at_most_one_leader_per_epoch"


def test_an_epoch_that_goes_back_is_noticed(cluster: SimulatedCluster) -> None:
    follower = follower_of(cluster)
    with pytest.raises(Violation) as error:
        cluster.checks.role_changed(follower, RoleChange(Role.UNATTACHED, follower.epoch - 1, -1))
    assert violated(error) == "epoch_never_goes_back"
    with pytest.raises(Violation) as error:
        follower.storage.perform(WriteElectionState(0, -1, -1, None, 0))
    assert violated(error) == "epoch_never_goes_back"


def test_a_leader_without_what_is_committed_is_noticed(cluster: SimulatedCluster) -> None:
    follower = follower_of(cluster)
    follower.storage._keep(len(follower.storage.entries) - 1)
    with pytest.raises(Violation) as error:
        cluster.checks.role_changed(
            follower, RoleChange(Role.LEADER, follower.epoch + 1, follower.id)
        )
    assert violated(error) == "leader_has_all_committed"


def test_a_high_watermark_that_goes_back_is_noticed(cluster: SimulatedCluster) -> None:
    leader = leader_of(cluster)
    with pytest.raises(Violation) as error:
        cluster.checks.committed(leader, leader.high_watermark - 1)
    assert violated(error) == "high_watermark_never_goes_back"


def append(machine: Machine, *values: bytes, epoch: int | None = None) -> Entry:
    """Append a batch to the machine's disk without its node."""
    storage = machine.storage
    base_offset = storage.end_offset
    data = batch(base_offset, machine.epoch if epoch is None else epoch, *values)
    end_offset = base_offset + max(1, len(values))
    storage.perform(AppendBatches(base_offset, end_offset, data))
    return storage.last


def test_a_commit_without_a_majority_is_noticed(cluster: SimulatedCluster) -> None:
    leader = leader_of(cluster)
    entry = append(leader, b"alone")
    with pytest.raises(Violation) as error:
        cluster.checks.committed(leader, entry.end_offset)
    assert violated(error) == "majority_holds_committed"


def test_a_majority_that_does_not_know_the_epoch_does_not_count(
    cluster: SimulatedCluster,
) -> None:
    leader = leader_of(cluster)
    entry = append(leader, b"x")
    for other in cluster.machines.values():
        if other is not leader:
            append(other, b"x", epoch=leader.epoch)
            other.storage.election = ElectionState(leader.epoch - 1)
    with pytest.raises(Violation) as error:
        cluster.checks.committed(leader, entry.end_offset)
    assert violated(error) == "majority_holds_committed"


def test_a_follower_that_commits_first_is_noticed(cluster: SimulatedCluster) -> None:
    follower = follower_of(cluster)
    entry = append(follower, b"x")
    with pytest.raises(Violation) as error:
        cluster.checks.committed(follower, entry.end_offset)
    assert violated(error) == "majority_holds_committed"


def test_a_commit_of_an_earlier_epoch_alone_is_noticed(cluster: SimulatedCluster) -> None:
    leader = leader_of(cluster)
    for machine in cluster.machines.values():
        entry = append(machine, b"x", epoch=leader.epoch)
    leader.epoch += 1
    with pytest.raises(Violation) as error:
        cluster.checks.committed(leader, entry.end_offset)
    assert violated(error) == "high_watermark_waits_for_the_epoch"


def test_a_high_watermark_within_a_batch_is_noticed(cluster: SimulatedCluster) -> None:
    leader = leader_of(cluster)
    entry = append(leader, b"x", b"y")
    with pytest.raises(Violation) as error:
        cluster.checks.committed(leader, entry.end_offset - 1)
    assert violated(error) == "high_watermark_at_batch_end"


def test_messages_before_their_write_are_noticed(cluster: SimulatedCluster) -> None:
    leader, follower = leader_of(cluster), follower_of(cluster)
    checks, end_offset = cluster.checks, follower.storage.end_offset
    replica, epoch = follower.config.replica, follower.epoch
    for request in (
        FetchRequest("c", replica, epoch, end_offset + 1, epoch),
        FetchRequest("c", replica, epoch + 1, end_offset, epoch),
        VoteRequest("c", epoch + 1, replica, None, epoch, end_offset),
        VoteRequest("c", epoch, replica, None, epoch, end_offset + 1, is_pre_vote=True),
    ):
        with pytest.raises(Violation) as error:
            checks.request(follower, request)
        assert violated(error) == "sent_only_after_durable"
    with pytest.raises(Violation) as error:
        leader.storage.read(LogSlice(0, leader.storage.end_offset + 1, 1000))
    assert violated(error) == "sent_only_after_durable"


def test_a_second_vote_is_noticed(cluster: SimulatedCluster) -> None:
    follower, epoch = follower_of(cluster), 99
    first, second = (it.config.replica for it in list(cluster.machines.values())[:2])
    request = VoteRequest("c", epoch, first, None, 1, 1)
    follower.storage.perform(WriteElectionState(epoch, -1, first.id, first.directory_id, 0))
    cluster.checks._vote(follower, epoch, first, request)
    follower.storage.election = ElectionState(epoch, -1, second)
    with pytest.raises(Violation) as error:
        cluster.checks._vote(follower, epoch, second, request)
    assert violated(error) == "vote_once_per_epoch"


def test_a_vote_that_is_forgotten_on_disk_is_noticed() -> None:
    storage = empty_storage()
    storage.perform(WriteElectionState(7, -1, 2, None, 0))
    storage.perform(WriteElectionState(7, 3, 2, None, 0))
    with pytest.raises(Violation) as error:
        storage.perform(WriteElectionState(7, 3, -1, None, 0))
    assert violated(error) == "vote_once_per_epoch"


def test_a_leader_that_loads_a_snapshot_is_noticed(cluster: SimulatedCluster) -> None:
    with pytest.raises(Violation) as error:
        cluster.checks.writes(leader_of(cluster), [InstallSnapshot(OffsetAndEpoch(3, 1))])
    assert violated(error) == "leader_never_loads_a_snapshot"


def test_an_isolated_leader_that_does_not_resign_is_noticed(cluster: SimulatedCluster) -> None:
    leader = leader_of(cluster)
    cluster.checks.check_quorum(leader, cluster.now)
    cluster.checks.check_quorum(leader, cluster.now + 5000.0)
    with pytest.raises(Violation) as error:
        cluster.checks.check_quorum(leader, cluster.now + 7000.0)
    assert violated(error) == "an_isolated_leader_resigns"


def test_a_leader_that_resigns_while_voters_fetch_is_noticed(cluster: SimulatedCluster) -> None:
    leader = leader_of(cluster)
    _serve_fetches(cluster, leader, leader.node.log.voters)
    with pytest.raises(Violation) as error:
        cluster.checks._check_resignation(leader, cluster.now)
    assert violated(error) == "a_leader_in_contact_does_not_resign"


def test_what_a_new_voter_fetched_as_an_observer_does_not_keep_its_leader(
    cluster: SimulatedCluster,
) -> None:
    """Seed 1706: the voter that was added had a fetch waiting when it became a voter."""
    leader = leader_of(cluster)
    _serve_fetches(cluster, leader, VoterSet())
    cluster.checks._check_resignation(leader, cluster.now)


def _serve_fetches(cluster: SimulatedCluster, leader: Machine, voters: VoterSet) -> None:
    """Let the leader answer only a fetch of each node that asked when these were its voters."""
    leader.served.clear()
    end_offset = leader.storage.end_offset
    for machine in cluster.machines.values():
        request = FetchRequest("c", machine.config.replica, leader.epoch, end_offset, leader.epoch)
        asked = Asked(Origin(machine, machine.life, 1), request, cluster.now, voters)
        cluster.checks.response(leader, asked, FetchResponse(0, leader.epoch, leader.id))


def test_no_commit_after_the_faults_have_stopped_is_noticed(cluster: SimulatedCluster) -> None:
    for one in cluster.machines:
        cluster.blocked |= {(one, other) for other in cluster.machines if other != one}
    cluster.is_over = False
    cluster.expect_commit()
    with pytest.raises(Violation) as error:
        cluster.run()
    assert violated(error) == "commit_within_10_seconds"


def test_a_node_that_stays_behind_is_noticed(cluster: SimulatedCluster) -> None:
    straggler = follower_of(cluster)
    cluster.blocked |= {(other, straggler.id) for other in cluster.machines}
    cluster.is_over = False
    cluster.expect_commit()
    cluster.append(leader_of(cluster))
    with pytest.raises(Violation) as error:
        cluster.run()
    assert violated(error) == "everyone_catches_up_within_10_seconds"


# -- the tree of batches, and the disk


def empty_storage() -> Storage:
    return Storage(1, BatchTree(None, 0), VoterSet())


def test_logs_that_do_not_match_are_noticed() -> None:
    tree = BatchTree(None, 0)
    one, other = Storage(1, tree, VoterSet()), Storage(2, tree, VoterSet())
    one.perform(AppendBatches(0, 1, batch(0, 1, b"a")))
    with pytest.raises(Violation) as error:
        other.perform(AppendBatches(0, 1, batch(0, 1, b"b")))
    assert violated(error) == "logs_match"

    other.perform(AppendBatches(0, 1, batch(0, 2, b"b")))
    one.perform(AppendBatches(1, 2, batch(1, 3, b"c")))
    with pytest.raises(Violation) as error:
        other.perform(AppendBatches(1, 2, batch(1, 3, b"c")))
    assert violated(error) == "logs_match"


def test_a_gap_is_noticed() -> None:
    storage = empty_storage()
    with pytest.raises(Violation) as error:
        storage.perform(AppendBatches(5, 6, batch(5, 1)))
    assert violated(error) == "logs_match"


def test_a_truncated_commit_is_noticed_if_the_node_knows_its_epoch() -> None:
    storage = empty_storage()
    storage.perform(AppendBatches(0, 1, batch(0, 1)))
    storage.tree.commit(storage.last, 2)
    storage.perform(WriteElectionState(2, 2, -1, None, 0))
    with pytest.raises(Violation) as error:
        storage.perform(TruncateLog(0))
    assert violated(error) == "committed_never_lost_or_changed"


def test_a_follower_of_an_older_leader_may_truncate_what_it_never_acknowledged() -> None:
    storage = empty_storage()
    storage.perform(AppendBatches(0, 1, batch(0, 1)))
    storage.tree.commit(storage.last, 3)
    storage.perform(WriteElectionState(2, 2, -1, None, 0))
    storage.perform(TruncateLog(0))
    assert storage.end_offset == 0


def test_another_commit_at_the_same_offset_is_noticed() -> None:
    tree = BatchTree(None, 0)
    one, other = Storage(1, tree, VoterSet()), Storage(2, tree, VoterSet())
    one.perform(AppendBatches(0, 1, batch(0, 1)))
    other.perform(AppendBatches(0, 1, batch(0, 2)))
    tree.commit(one.last, 1)
    with pytest.raises(Violation) as error:
        tree.commit(other.last, 2)
    assert violated(error) == "committed_never_lost_or_changed"


def voters(*ids: int) -> VoterSet:
    return VoterSet(
        VoterNode(ReplicaKey(id, Uuid(bytes([1, *[0] * 14, id]))), (), KRaftVersionRange(0, 1))
        for id in ids
    )


def change_voters(storage: Storage, *ids: int) -> None:
    at = storage.end_offset
    record = encode_control_records([voters(*ids).to_record()], base_offset=at, epoch=1)
    storage.perform(AppendBatches(at, at + 1, bytes(record)))


def test_two_voter_changes_at_once_are_noticed() -> None:
    storage = Storage(1, BatchTree(voters(1, 2, 3), 1), VoterSet())
    with pytest.raises(Violation) as error:
        change_voters(storage, 1)
    assert violated(error) == "one_voter_change_at_a_time"


def test_a_voter_change_before_the_last_is_committed_is_noticed() -> None:
    storage = Storage(1, BatchTree(voters(1, 2, 3), 1), VoterSet())
    change_voters(storage, 1, 2)
    with pytest.raises(Violation) as error:
        change_voters(storage, 1, 2, 4)
    assert violated(error) == "one_voter_change_at_a_time"

    storage = Storage(1, BatchTree(voters(1, 2, 3), 1), VoterSet())
    change_voters(storage, 1, 2)
    storage.tree.commit(storage.last, 1)
    change_voters(storage, 1, 2, 4)
    assert storage.last.voters == voters(1, 2, 4)


def test_a_voter_that_does_not_support_the_level_is_noticed() -> None:
    storage = Storage(1, BatchTree(voters(1, 2, 3), 1), VoterSet())
    too_old = voters(1, 2, 3).with_voter(
        VoterNode(ReplicaKey(3, Uuid(bytes([1, *[0] * 14, 3]))), (), KRaftVersionRange(0, 0))
    )
    record = encode_control_records([too_old.to_record()], base_offset=0, epoch=1)
    with pytest.raises(Violation) as error:
        storage.perform(AppendBatches(0, 1, bytes(record)))
    assert violated(error) == "voters_support_the_kraft_version"


def test_a_crash_keeps_a_prefix_of_the_unsynced_batches() -> None:
    ends = Counter()
    for seed in range(60):
        storage = empty_storage()
        storage.perform(AppendBatches(0, 1, batch(0, 1)))
        more = [AppendBatches(at, at + 1, batch(at, 1, b"%d" % at)) for at in range(1, 4)]
        storage.crash(more, Random(seed))
        ends[storage.end_offset] += 1
        assert [entry.base_offset for entry in storage.entries] == list(range(storage.end_offset))
    assert set(ends) == {1, 2, 3, 4}


def test_the_real_log_keeps_all_synced_batches_and_a_prefix_of_the_others() -> None:
    ends = Counter()
    for seed in range(40):
        storage = LogStorage(1, BatchTree(None, 0), VoterSet())
        storage.perform(AppendBatches(0, 1, batch(0, 1)))
        storage.sync()
        more = [AppendBatches(at, at + 1, batch(at, 1, b"%d" % at)) for at in range(1, 4)]
        storage.crash(more, Random(seed))
        ends[storage.boot().end_offset] += 1
    assert {1, 2, 3} <= set(ends) <= {1, 2, 3, 4}


def test_a_real_log_that_loses_synced_batches_is_noticed() -> None:
    storage = LogStorage(1, BatchTree(None, 0), VoterSet())
    storage.perform(AppendBatches(0, 1, batch(0, 1)))
    storage.sync()
    storage._disk.lasting.clear()
    always_nothing = Random()
    always_nothing.random = lambda: 0.0  # type: ignore[method-assign]
    with pytest.raises(Violation) as error:
        storage.crash([], always_nothing)
    assert violated(error) == "the_real_log_equals_its_model"


def test_a_truncation_before_a_crash_is_durable() -> None:
    for seed in range(30):
        storage = empty_storage()
        writes = [
            AppendBatches(0, 1, batch(0, 1)),
            AppendBatches(1, 2, batch(1, 1)),
            TruncateLog(1),
        ]
        storage.crash(writes, Random(seed))
        if storage.truncations:
            assert storage.end_offset == 1


def test_a_snapshot_ahead_of_the_log_is_where_a_restarted_log_begins() -> None:
    """The node crashed between renaming the snapshot and emptying the log."""
    tree = BatchTree(None, 0)
    leader, follower = Storage(1, tree, VoterSet()), Storage(2, tree, VoterSet())
    for at in range(3):
        leader.perform(AppendBatches(at, at + 1, batch(at, 1, b"%d" % at)))
        tree.commit(leader.last, 1)
    id = OffsetAndEpoch(3, 1)
    follower.perform(AppendBatches(0, 1, leader.entries[0].data))
    follower.perform(StoreSnapshotChunk(id, 0, snapshot_content(id)))
    follower.rename_download(id)
    assert follower.end_offset == 1

    view = follower.boot()

    assert (view.start_offset, view.end_offset) == (3, 3)
    assert view.last_epoch == 1


def test_an_incomplete_snapshot_is_noticed() -> None:
    storage = empty_storage()
    id = OffsetAndEpoch(3, 1)
    storage.perform(StoreSnapshotChunk(id, 0, snapshot_content(id)[:50]))
    with pytest.raises(Violation) as error:
        storage.perform(InstallSnapshot(id))
    assert violated(error) == "snapshot_is_whole"


def test_a_log_start_without_a_snapshot_is_noticed() -> None:
    storage = empty_storage()
    storage.perform(AppendBatches(0, 1, batch(0, 1)))
    storage.perform(AppendBatches(1, 2, batch(1, 1)))
    storage.snapshots[OffsetAndEpoch(1, 1)] = Snapshot(b"", storage.entries[0])
    storage.clean(1, 1)
    storage.check_snapshot_at_log_start()
    storage.start_offset = 2
    with pytest.raises(Violation) as error:
        storage.check_snapshot_at_log_start()
    assert violated(error) == "snapshot_at_log_start"
