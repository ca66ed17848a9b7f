"""The quorum's leader, epoch, voters and kraft.version, from the control records of the log.

Holds the rules of LeaderChange, KRaftVersion, KRaftVoters, SnapshotHeader and SnapshotFooter.
``kraft.image.cluster`` calls it with each control record and the leader epoch of its batch.
Sources: Kafka's ``KRaftControlRecordStateMachine``, ``VoterSet``, ``LeaderState``.

Invariants: the epoch never descends. While kraft.version is 0 the log holds no voter set, and the
voters are those that the leader named in its LeaderChange.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

from kraft.errors import ReplayError, UnsupportedVersionError
from kraft.image.journal import JournaledMap
from kraft.image.nodes import VersionRange
from kraft.records import Record, Uuid, control

_HIGHEST_KRAFT_VERSION = 1


class QuorumVoterEndpoint(NamedTuple):
    """Where a voter listens, by listener name."""

    name: str
    host: str
    port: int

    def __repr__(self) -> str:
        return f"{self.name}://{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class QuorumVoter:
    """One voter of the quorum (KIP-853): a node id and the id of the directory with its log."""

    id: int
    directory_id: Uuid
    endpoints: tuple[QuorumVoterEndpoint, ...]
    kraft_version: VersionRange


@dataclass(frozen=True, slots=True)
class Quorum:
    """The quorum as of the last control record.

    ``leader_id`` is -1 while no leader is known. ``voters`` is the voter set of the log, empty
    while kraft.version is 0; ``leader_change_voter_ids`` are the ids that the leader named when its
    epoch began. ``last_contained_log_timestamp_ms`` comes from the snapshot's header; -1 without a
    snapshot.
    """

    leader_id: int = -1
    leader_epoch: int = 0
    kraft_version: int = 0
    voters: tuple[QuorumVoter, ...] = ()
    leader_change_voter_ids: tuple[int, ...] = ()
    last_contained_log_timestamp_ms: int = -1

    @property
    def voter_ids(self) -> tuple[int, ...]:
        """Return the ids of the voters, from the voter set or else from the LeaderChange."""
        if self.voters:
            return tuple(voter.id for voter in self.voters)
        return self.leader_change_voter_ids

    def snapshot_records(self) -> Iterator[Record]:
        """Return the records after a SnapshotHeader: KRaftVersion and KRaftVoters; none at
        kraft.version 0.
        """
        if self.kraft_version == 0:
            return
        yield control.KRaftVersion(kraft_version=self.kraft_version)
        if self.voters:
            yield control.KRaftVoters(voters=[_voter_struct(voter) for voter in self.voters])


class QuorumCell(JournaledMap[str, Quorum]):
    """The one :class:`Quorum` of a state; the journal records its changes."""

    __slots__ = ()
    kind: ClassVar[str] = "quorum"
    KEY: ClassVar[str] = "quorum"

    @property
    def quorum(self) -> Quorum:
        return self._entries.get(self.KEY, _NO_QUORUM)

    def replay(self, record: Record, offset: int, epoch: int) -> None:
        """Apply a control record; raise ReplayError if the epoch descends or it is invalid."""
        before = self.quorum
        if epoch < before.leader_epoch:
            raise ReplayError(
                f"{record} has epoch {epoch}, after epoch {before.leader_epoch} (offset {offset})"
            )
        if epoch > before.leader_epoch:
            # A new epoch has no leader until its LeaderChange; a snapshot holds no LeaderChange.
            before = replace(before, leader_id=-1, leader_epoch=epoch)
        after = _after(before, record)
        self.keep(after, offset)

    def snapshot_records_of(self, key: str, metadata_version: int) -> Iterator[Record]:
        """Return no record: `Quorum.snapshot_records` returns the snapshot's control records."""
        yield from ()

    def keep(self, quorum: Quorum, offset: int) -> None:
        """Set the quorum from ``offset`` on."""
        if quorum != self.quorum:
            self._put(self.KEY, quorum, offset)


def _after(before: Quorum, record: Record) -> Quorum:
    if isinstance(record, control.LeaderChange):
        return replace(
            before,
            leader_id=record.leader_id,
            leader_change_voter_ids=tuple(voter.voter_id for voter in record.voters),
        )
    if isinstance(record, control.KRaftVersion):
        level = record.kraft_version
        if not 0 <= level <= _HIGHEST_KRAFT_VERSION:
            raise UnsupportedVersionError(
                f"kraft.version {level} is not one of 0-{_HIGHEST_KRAFT_VERSION}"
            )
        return replace(before, kraft_version=level)
    if isinstance(record, control.KRaftVoters):
        return replace(before, voters=_voter_set(record))
    if isinstance(record, control.SnapshotHeader):
        return replace(before, last_contained_log_timestamp_ms=record.last_contained_log_timestamp)
    if isinstance(record, control.SnapshotFooter):
        return before
    raise UnsupportedVersionError(f"unknown type of control record: {type(record).__name__}")


def _voter_set(record: control.KRaftVoters) -> tuple[QuorumVoter, ...]:
    voters = tuple(
        QuorumVoter(
            voter.voter_id,
            voter.voter_directory_id,
            tuple(
                QuorumVoterEndpoint(point.name, point.host, point.port) for point in voter.endpoints
            ),
            VersionRange(
                voter.kraft_version_feature.min_supported_version,
                voter.kraft_version_feature.max_supported_version,
            ),
        )
        for voter in record.voters
    )
    if not voters or len({voter.id for voter in voters}) < len(voters):
        raise ReplayError(f"{record} is not a valid voter set: it is empty or lists a voter twice")
    return tuple(sorted(voters, key=lambda voter: voter.id))


def _voter_struct(voter: QuorumVoter) -> control.KRaftVoter:
    return control.KRaftVoter(
        voter_id=voter.id,
        voter_directory_id=voter.directory_id,
        endpoints=[
            control.VoterEndpoint(name=point.name, host=point.host, port=point.port)
            for point in voter.endpoints
        ],
        kraft_version_feature=control.KRaftVersionFeature(
            min_supported_version=voter.kraft_version.min,
            max_supported_version=voter.kraft_version.max,
        ),
    )


_NO_QUORUM = Quorum()
