"""Generated disasters: what a rescue keeps, what it says, and what it refuses.

Each seed is a quorum whose history the test knows, and the directories that a disaster left of it.
``RESCUE_DISASTERS=200`` runs as many seeds; ``RESCUE_SEED`` is the first.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import kraft
from kraft.image.replay import MetadataState
from kraft.metadata.directory import METADATA_LOG
from kraft.metadata.facade import Metadata
from kraft.metadata.source import MetadataSource
from kraft.server.disk.store import MetadataStore
from kraft.server.rescue.assessment import EPOCH_MARGIN, Assessment, assess
from kraft.server.rescue.founding import FoundedQuorum, found_in, found_in_place
from kraft.server.rescue.report import document, unknown
from kraft.server.rescue.survivors import RescueRefusedError
from tests.harness.quorum_disasters import Disaster, Left
from tests.harness.quorum_history import NodeLog

RUNS = int(os.environ.get("RESCUE_DISASTERS", "30"))
SEED = int(os.environ.get("RESCUE_SEED", "1"))
NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize("seed", range(SEED, SEED + RUNS))
def test_disaster(seed: int, tmp_path: Path) -> None:
    disaster = Disaster(seed, tmp_path / "left")
    before = contents(disaster.folder)
    reason = refusal(disaster)
    paths = [each.path for each in disaster.left]
    if reason is not None:
        with pytest.raises(RescueRefusedError, match=re.escape(reason)):
            assess(paths)
        assert contents(disaster.folder) == before
        return
    assessment = assess(paths)
    chosen = next(each for each in disaster.left if each.path == assessment.chosen.path)
    check_assessment(disaster, assessment, chosen)
    assert contents(disaster.folder) == before

    if assessment.voter.base is assessment.chosen and disaster.dice.random() < 0.5:
        founded = found_in_place(assessment, tmp_path / "kept", timestamp_ms=NOW_MS)
        kept = contents(tmp_path / "kept")
        given = {
            path.relative_to(chosen.path): content
            for path, content in before.items()
            if path.is_relative_to(chosen.path) and path.name != ".lock"
        }
        assert {path.relative_to(tmp_path / "kept"): content for path, content in kept.items()} == (
            given
        )
    else:
        founded = found_in(assessment, tmp_path / "new", timestamp_ms=NOW_MS)
        assert contents(disaster.folder) == before
        assert not (tmp_path / "new.part").exists()
    check_quorum(disaster, assessment, founded, chosen.node)


def refusal(disaster: Disaster) -> str | None:
    """Return a part of the message with which this disaster must be refused; None for a rescue."""
    left = disaster.left
    if any(each.is_damaged for each in left):
        return "kraft salvage"
    if len({each.is_foreign for each in left}) > 1:
        return "different clusters"
    if not any(each.node.batches for each in left):
        return "no directory has a record"
    for each in left:
        voters = disaster.history.voters_of(each.node)
        if not voters.is_voter(each.node.key) or not knows_voters(disaster, each.node):
            continue
        votes = [
            other
            for other in left
            if voters.is_voter(other.node.key) and other.node.rank <= each.node.rank
        ]
        if len(votes) >= voters.majority:
            return "majority"
    if not any(disaster.history.voters_of(best(left)).is_voter(each.node.key) for each in left):
        return "-c FILE"
    return None


def knows_voters(disaster: Disaster, node: NodeLog) -> bool:
    """A node with an empty log, whose voters are in the log, knows none."""
    return disaster.history.is_static or bool(node.batches)


def best(left: list[Left]) -> NodeLog:
    """Return the best log among those that have the records of every snapshot."""
    snapshots = [(end, epoch) for each in left for end, epoch in each.node.snapshots]

    def holds(node: NodeLog) -> bool:
        ends = {(batch.end, batch.epoch) for batch in node.batches}
        return all(id in ends or id[0] <= node.start for id in snapshots)

    return max((each.node for each in left if holds(each.node)), key=lambda node: node.rank)


def check_assessment(disaster: Disaster, assessment: Assessment, chosen: Left) -> None:
    committed = disaster.history.committed
    kept = chosen.node.batches
    assert chosen.node.rank == best(disaster.left).rank == tuple(assessment.chosen.end)
    # What is called committed is committed, and kept.
    proved = assessment.committed.offset
    assert proved <= (committed[-1].end if committed else 0)
    assert proved == max(
        (end for each in disaster.left for end, _ in each.node.snapshots), default=0
    )
    count = sum(each.end <= proved for each in committed)
    assert kept[:count] == committed[:count]
    for each in disaster.left:
        check_branch(assessment, each, chosen.node)
    known = max(epoch for each in disaster.left for epoch in (each.node.epoch, each.node.rank[0]))
    assert assessment.new_epoch == known + EPOCH_MARGIN
    # What was committed and is lost is declared as unknown; nothing else is promised.
    said = "\n".join(unknown(assessment))
    assert f"committed records after offset {assessment.chosen.end.offset}" in said
    if kept[-1].end > proved:
        assert f"from offset {proved} to {kept[-1].end} were committed" in said
    for each in disaster.left:
        if each.node.epoch > kept[-1].epoch:
            assert f"node {each.node.id} took part in epoch {each.node.epoch}" in said
    if chosen.node.is_open:
        assert "has no end in this log" in said


def check_branch(assessment: Assessment, each: Left, chosen: NodeLog) -> None:
    """A record that another directory has, and the kept log has not, is in a reported branch."""
    same = 0
    for mine, theirs in zip(each.node.batches, chosen.batches, strict=False):
        if mine != theirs:
            break
        same += 1
    found = [branch for branch in assessment.branches if branch.path == each.path]
    if same == len(each.node.batches):
        assert not found
        return
    offset = each.node.batches[same].base
    on_disk = min(len(chosen.batches), len(each.node.batches)) > max(
        chosen.first, each.node.first, same
    )
    is_replaced = any(
        survivor.is_log_replaced
        for survivor in assessment.survivors
        if survivor.path in (each.path, assessment.chosen.path)
    )
    if on_disk and same >= max(chosen.first, each.node.first) and not is_replaced:
        assert [branch.offset for branch in found] == [offset]


def check_quorum(
    disaster: Disaster, assessment: Assessment, founded: FoundedQuorum, chosen: NodeLog
) -> None:
    """The new log is the chosen one, byte for byte, and at kraft.version 1 one batch more."""
    log = b"".join(bytes(each.data) for each in MetadataSource(founded.path).slices())
    kept = b"".join(each.data for each in chosen.batches[chosen.first :])
    assert log[: len(kept)] == kept
    is_static = disaster.history.is_static
    assert (len(log) == len(kept)) == is_static
    replayed = MetadataState()
    replayed.apply(b"".join(each.data for each in chosen.batches))
    replayed.drop_open_transaction()
    found = kraft.diff(Metadata(replayed), kraft.open_metadata(founded.path))
    assert {each.kind for each in found} <= {"quorum"}

    store = MetadataStore.open(founded.path)
    try:
        assert store.election.epoch == assessment.new_epoch
        assert store.election.leader_id == -1
        assert store.election.voted is None
        if not is_static:
            voter = assessment.voter
            assert [(each.id, each.key.directory_id) for each in store.view.voters] == [
                (voter.node_id, founded.directory_id)
            ]
            assert store.view.last_epoch == assessment.new_epoch
        assert store.view.end_offset == founded.end.offset
    finally:
        store.close()
    made = document(assessment, founded)
    assert made["isDone"]
    assert made["newEndOffset"] == founded.end.offset
    assert (founded.path / METADATA_LOG).is_dir()


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_seeds_draw_every_kind_of_disaster(tmp_path: Path) -> None:
    """Without this, a change of the generator could leave a kind out unnoticed."""
    kinds: set[str | None] = set()
    for seed in range(1, 61):
        disaster = Disaster(seed, tmp_path / str(seed))
        reason = refusal(disaster)
        kinds.add(reason)
        if reason is None:
            assessment = assess([each.path for each in disaster.left])
            if assessment.branches:
                kinds.add("branch")
            if any(each.is_log_replaced for each in assessment.survivors):
                kinds.add("replaced")
            if assessment.chosen is not assessment.voter.base:
                kinds.add("log of another node")
            kinds.add("static" if disaster.history.is_static else "dynamic")
    assert kinds == {
        *(None, "kraft salvage", "different clusters", "no directory has a record", "majority"),
        *("-c FILE", "branch", "replaced", "log of another node", "static", "dynamic"),
    }
