"""Found the quorum of one that an assessment has chosen: in a new directory, or in place.

The log is a copy, byte for byte, of the chosen one, opened by the recovery of a starting node. At
kraft.version 1 one batch is appended in the new epoch, the one with which a leader begins an epoch:
LeaderChange, KRaftVersion, and KRaftVoters with only the new voter. ``quorum-state`` names the new
epoch without leader and vote, so that the node elects itself when it starts. At kraft.version 0 the
log gets no record, because the configuration names the voters.

Invariants:

- No file of a given directory is removed. In place, all of its metadata files are copied aside and
  synced before the first change.
- A new directory gets its name after it is complete, synced, and read again.
- In place, the new epoch is durable before the voters change, so that a crash in between leaves a
  directory that can be rescued again.

Called by the command; calls ``kraft.server.disk.store``.
"""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from kraft._core.log.disk import OsDisk
from kraft.errors import StorageError
from kraft.metadata.directory import (
    BOOTSTRAP_CHECKPOINT,
    META_PROPERTIES,
    METADATA_LOG,
    MetaProperties,
)
from kraft.metadata.identifiers import random_uuid
from kraft.metadata.new_directory import new_directory, sync
from kraft.raft.interface import AppendBatches, WriteElectionState
from kraft.raft.voters import ReplicaKey, VoterNode, VoterSet
from kraft.records import Record, Uuid, control
from kraft.records.batches import encode_control_records
from kraft.server.disk.snapshots import is_unfinished
from kraft.server.disk.store import MetadataStore
from kraft.server.rescue.assessment import Assessment
from kraft.server.rescue.survivors import LogEnd, RescueRefusedError, lock, read_survivor
from kraft.server.storage.meta_properties import meta_properties_bytes

#: The name of the report in the directory of the new quorum, before the time of the rescue.
REPORT_PREFIX = "rescue-report-"


@dataclass(frozen=True, slots=True)
class FoundedQuorum:
    """The quorum of one that a rescue founded.

    ``path`` is its ``log.dir``; ``kept`` the copy of the files before the change (None: the given
    directories are unchanged). ``end`` is the end of the log, whose last record is the new voter's.
    """

    path: Path
    directory_id: Uuid | None
    end: LogEnd
    kept: Path | None


def found_in(assessment: Assessment, target: Path, *, timestamp_ms: int) -> FoundedQuorum:
    """Write the new quorum to the new directory ``target``; the given directories do not change.

    The node gets a new directory id, so that its other directories keep theirs.

    Raises RescueRefusedError where ``target`` exists and is not empty or a directory is in use,
    StorageError where a write fails.
    """
    directory_id = random_uuid()
    with new_directory(target, refusal=RescueRefusedError) as part:
        chosen = assessment.chosen
        assert chosen.source.directory.metadata_dir is not None
        _copy_tree(chosen.source.directory.metadata_dir, part / METADATA_LOG, with_unfinished=False)
        _copy_if_there(chosen.log_dir / BOOTSTRAP_CHECKPOINT, part / BOOTSTRAP_CHECKPOINT)
        properties = MetaProperties(
            1, assessment.cluster_id, assessment.voter.node_id, directory_id
        )
        (part / META_PROPERTIES).write_bytes(meta_properties_bytes(properties))
        sync(part / META_PROPERTIES)
        end = _begin_quorum(assessment, part, directory_id, timestamp_ms)
        _check(assessment, part, end)
    return FoundedQuorum(target, directory_id, end, None)


def found_in_place(assessment: Assessment, keep: Path, *, timestamp_ms: int) -> FoundedQuorum:
    """Change the directory of the new voter, after copying its metadata files to ``keep``.

    Raises RescueRefusedError where that directory does not have the log to continue, is in use, or
    ``keep`` exists; StorageError where a write fails. The copy in ``keep`` remains then.
    """
    chosen, base = assessment.chosen, assessment.voter.base
    if base is not chosen:
        where = "no directory yet" if base is None else str(base.path)
        raise RescueRefusedError(
            f"the log to continue is in {chosen.path}, and node {assessment.voter.node_id} has "
            f"{where}: a rescue in place is not possible. Write a new directory: --to DIR"
        )
    if keep.exists():
        raise RescueRefusedError(f"{keep} already exists")
    log_dir, metadata_dir = chosen.log_dir, chosen.source.directory.metadata_dir
    assert metadata_dir is not None
    if metadata_dir != log_dir / METADATA_LOG:
        raise RescueRefusedError(
            f"{metadata_dir} is not the {METADATA_LOG} of a log.dir. Write a new directory: --to "
            "DIR"
        )
    directory_id = chosen.directory_id or random_uuid()
    with ExitStack() as stack:
        stack.enter_context(lock(log_dir))
        try:
            keep.mkdir(parents=True)
            _copy_tree(metadata_dir, keep / METADATA_LOG, with_unfinished=True)
            for name in (META_PROPERTIES, BOOTSTRAP_CHECKPOINT):
                _copy_if_there(log_dir / name, keep / name)
            sync(keep)
            sync(keep.absolute().parent)
        except OSError as error:
            raise StorageError(
                f"cannot copy {log_dir} to {error.filename or keep}: {error.strerror}; nothing was "
                "changed. A new directory on another disk: --to DIR"
            ) from error
        end = _begin_quorum(assessment, log_dir, directory_id, timestamp_ms)
    _check(assessment, log_dir, end)
    return FoundedQuorum(log_dir, chosen.directory_id, end, keep)


def write_report(directory: Path, text: str, name: str) -> Path:
    """Write the report into the directory of the new quorum, durably; return its path."""
    path = directory / f"{REPORT_PREFIX}{name}.txt"
    path.write_text(text, encoding="utf-8")
    sync(path)
    sync(directory)
    return path


def _begin_quorum(
    assessment: Assessment, log_dir: Path, directory_id: Uuid, timestamp_ms: int
) -> LogEnd:
    """Recover the log in ``log_dir``, write the new epoch and, at kraft.version 1, the new voter.

    The caller holds the lock of the directory, or has just created it.
    """
    voter, epoch = assessment.voter, assessment.new_epoch
    static = VoterSet([VoterNode(ReplicaKey(voter.node_id))])
    store = MetadataStore.open(log_dir, static_voters=static, disk=OsDisk())
    try:
        end = store.view.end_offset
        if end != assessment.chosen.end.offset:
            raise StorageError(
                f"{log_dir}: the log ends at offset {end}, and ended at "
                f"{assessment.chosen.end.offset} when it was assessed"
            )
        store.perform(WriteElectionState(epoch, -1, -1, None, assessment.kraft_version))
        if assessment.kraft_version == 0:
            return assessment.chosen.end
        records: list[Record] = [
            control.LeaderChange(
                leader_id=voter.node_id,
                voters=[control.Voter(voter_id=voter.node_id)],
                granting_voters=[control.Voter(voter_id=voter.node_id)],
            ),
            control.KRaftVersion(kraft_version=assessment.kraft_version),
            voter.as_voters(directory_id).to_record(),
        ]
        batch = encode_control_records(
            records, base_offset=end, epoch=epoch, timestamp_ms=timestamp_ms
        )
        store.perform(AppendBatches(end, end + len(records), batch))
        store.sync()
        store.write_epochs()
        return LogEnd(epoch, end + len(records))
    finally:
        store.close()


def _check(assessment: Assessment, log_dir: Path, end: LogEnd) -> None:
    """Read the directory again, as its node will."""
    written = read_survivor(log_dir)
    is_alone = assessment.kraft_version == 0 or [each.key for each in written.voters] == [
        written.key
    ]
    if written.end != end or not is_alone or written.election_epoch != assessment.new_epoch:
        raise StorageError(
            f"{log_dir} does not hold what was written to it: its log ends at offset "
            f"{written.end.offset}, epoch {written.end.epoch}"
        )


def _copy_tree(source: Path, target: Path, *, with_unfinished: bool) -> None:
    """Copy the files of a metadata log's directory, and sync them.

    Unfinished files are of interrupted downloads and deletions: a starting node removes them.
    """
    target.mkdir(parents=True)
    for entry in sorted(source.iterdir()):
        if entry.is_file() and (with_unfinished or not is_unfinished(entry.name)):
            _copy_if_there(entry, target / entry.name)
    sync(target)


def _copy_if_there(source: Path, target: Path) -> None:
    if source.is_file():
        shutil.copyfile(source, target)
        sync(target)
