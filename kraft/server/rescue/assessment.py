"""Assess what a lost majority left: the log to continue, what is certain, what cannot be known.

The rules, in order:

1. Directories of several clusters, with contradicting logs, or whose nodes can elect a leader among
   themselves, are refused: nothing is lost then that a rescue could bring back.
2. Every record that a snapshot covers is committed, because nodes make snapshots of committed
   records only. A log without the records of every snapshot found is not continued.
3. Of the other logs the one with the highest last epoch is continued, then the longest: KRaft's
   rule for elections. It keeps every record that the directories show to be committed.
4. The new epoch is far above all epochs found, so that brokers that followed a later leader, which
   nobody here knows, accept the new one.

Sources: Kafka's ``KafkaRaftClient``, ``QuorumState``; KIP-595, KIP-630, KIP-853. Called by the
command; ``founding`` carries the result out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from kraft.metadata.node_comparison import Divergence, first_divergence
from kraft.raft.voters import Endpoint, KRaftVersionRange, ReplicaKey, VoterNode, VoterSet
from kraft.records import Uuid
from kraft.server.config.listeners import written_host
from kraft.server.config.loading import ServerConfig
from kraft.server.rescue.survivors import (
    CommittedEnd,
    LogEnd,
    RescueRefusedError,
    Survivor,
    read_survivor,
)

#: The distance of the new epoch from the highest one found.
EPOCH_MARGIN = 1000
_MAX_EPOCH = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Branch:
    """The end of a log that the rescue does not keep.

    ``offset`` is the first offset at which it differs from the log that is continued, up to ``end``
    (exclusive); ``epochs`` are the leader epochs there, of this log and of the continued one.
    """

    path: Path
    node_id: int
    offset: int
    end: LogEnd
    epochs: tuple[int, int]


@dataclass(frozen=True, slots=True)
class NewVoter:
    """The only voter of the new quorum.

    ``base`` is the directory whose ids it keeps; None for a node that the configuration names.
    """

    node_id: int
    directory_id: Uuid | None
    endpoints: tuple[Endpoint, ...]
    kraft_versions: KRaftVersionRange
    base: Survivor | None

    def as_voters(self, directory_id: Uuid) -> VoterSet:
        """Return the voter set with only this voter, in the directory of this id."""
        key = ReplicaKey(self.node_id, directory_id)
        return VoterSet([VoterNode(key, self.endpoints, self.kraft_versions)])


@dataclass(frozen=True, slots=True)
class Assessment:
    """What the directories hold, and the quorum that a rescue founds.

    ``survivors`` are in the order of their logs, the best first. Records below ``committed.offset``
    are committed for certain; ``committed_by`` has the snapshot that proves it (None: none does).
    ``later`` are the survivors whose election state names an epoch after that of the chosen log.
    """

    survivors: tuple[Survivor, ...]
    chosen: Survivor
    voter: NewVoter
    committed: CommittedEnd
    committed_by: Survivor | None
    branches: tuple[Branch, ...]
    later: tuple[Survivor, ...]
    new_epoch: int

    @property
    def cluster_id(self) -> str:
        return self.chosen.cluster_id

    @property
    def kraft_version(self) -> int:
        return self.chosen.kraft_version

    @property
    def voters(self) -> VoterSet:
        """The voters of the lost quorum, as the chosen log lists them."""
        return self.chosen.voters

    @property
    def voters_left(self) -> frozenset[int]:
        """The ids of the voters whose directories are given."""
        return frozenset(each.node_id for each in self.survivors if self.voters.is_voter(each.key))

    @property
    def lost_voters(self) -> tuple[int, ...]:
        """The ids of the voters whose directories are not given, ascending."""
        return tuple(sorted(self.voters.ids - self.voters_left))


def assess(
    paths: Sequence[Path],
    config: ServerConfig | None = None,
    *,
    advance: Callable[[int], object] | None = None,
) -> Assessment:
    """Read the directories and decide what a rescue would do; change nothing.

    ``config`` is the configuration of the controller that becomes the only voter. By default that
    is the one whose directory has the log to continue. ``advance`` is called with the number of
    directories read so far.

    Raises RescueRefusedError where a rescue is not possible or not right; the message says what is.
    """
    survivors = _read_all(paths, advance or (lambda done: None))
    _check_one_cluster(survivors)
    divergences = _check_logs(survivors)
    if all(each.end.offset == 0 for each in survivors):
        raise RescueRefusedError(
            "no directory has a record of the metadata log: the nodes were formatted and never "
            "joined a quorum. Name the directories of brokers too; their metadata log is a copy"
        )
    _check_no_majority(survivors)
    snapshots = {id: each for each in reversed(survivors) for id in each.snapshots if id.offset}
    chosen = _choose(survivors, snapshots)
    committed = max(snapshots, default=CommittedEnd(0, 0))
    epochs = [max(each.end.epoch, each.election_epoch) for each in survivors]
    new_epoch = max(epochs) + EPOCH_MARGIN
    if new_epoch >= _MAX_EPOCH:
        raise RescueRefusedError(
            f"the highest leader epoch found is {max(epochs)}: no epoch is left above it"
        )
    return Assessment(
        tuple(survivors),
        chosen,
        _new_voter(chosen, survivors, config),
        committed,
        snapshots.get(committed),
        _branches(chosen, survivors, divergences),
        tuple(each for each in survivors if each.election_epoch > chosen.end.epoch),
        new_epoch,
    )


def _read_all(paths: Sequence[Path], advance: Callable[[int], object]) -> list[Survivor]:
    """Return the survivors, the best log first. Raises an error that names every bad directory."""
    survivors: dict[Path, Survivor] = {}
    problems = []
    for number, path in enumerate(paths, 1):
        try:
            found = read_survivor(path)
            survivors.setdefault(found.log_dir.resolve(), found)
        except RescueRefusedError as error:
            problems.append(str(error))
        advance(number)
    if problems:
        raise RescueRefusedError("; ".join(problems))
    return sorted(survivors.values(), key=_rank, reverse=True)


def _rank(each: Survivor) -> tuple[LogEnd, bool, int, int]:
    return each.end, each.is_voter, each.election_epoch, -each.node_id


def _check_one_cluster(survivors: Sequence[Survivor]) -> None:
    by_cluster: dict[str, list[str]] = {}
    for each in survivors:
        by_cluster.setdefault(each.cluster_id, []).append(str(each.path))
    if len(by_cluster) > 1:
        listed = "; ".join(f"{id}: {', '.join(paths)}" for id, paths in by_cluster.items())
        raise RescueRefusedError(
            f"the directories belong to different clusters ({listed}): name those of one cluster"
        )


def _check_logs(survivors: Sequence[Survivor]) -> dict[tuple[Path, Path], Divergence]:
    """Return the first difference of each pair of logs; refuse logs that contradict each other."""
    found = {}
    for one, other in combinations(survivors, 2):
        if one.is_log_replaced or other.is_log_replaced:
            continue
        divergence = first_divergence(one.source, other.source, lambda done: None)
        if divergence is None:
            continue
        if divergence.epochs[0] == divergence.epochs[1]:
            raise RescueRefusedError(
                f"{one.path} and {other.path} have different records of leader epoch "
                f"{divergence.epochs[0]} at offset {divergence.offset}. One leader writes each "
                "epoch, so that one of them is damaged, or was formatted again under the same "
                "cluster id. Leave out the one that does not belong to this quorum; "
                f"kraft verify {one.path} {other.path} lists the differences"
            )
        found[one.path, other.path] = divergence
    return found


def _check_no_majority(survivors: Sequence[Survivor]) -> None:
    """Refuse directories whose nodes elect a leader when they are started.

    A node gets the votes of those whose log is not ahead of its own. Each has its own idea of the
    voters: those that its log lists, committed or not.
    """
    for candidate in survivors:
        voters = candidate.voters
        if not voters.is_voter(candidate.key):
            continue
        votes = {
            each.node_id
            for each in survivors
            if voters.is_voter(each.key) and each.end <= candidate.end
        }
        if len(votes) < voters.majority:
            continue
        listed = ", ".join(map(str, sorted(votes)))
        if len(voters) == 1:
            raise RescueRefusedError(
                f"node {candidate.node_id} is the only voter of its quorum and so a majority: "
                f"start it on {candidate.path}. Nothing needs a rescue"
            )
        raise RescueRefusedError(
            f"the directories of nodes {listed} are a majority of the voters "
            f"{', '.join(map(str, sorted(voters.ids)))}. Start these nodes on these directories: "
            "they elect a leader, and no committed record is lost, unless a directory is an older "
            "copy. Then replace the other voters one by one (remove-controller, format, "
            "add-controller)"
        )


def _choose(survivors: Sequence[Survivor], snapshots: dict[CommittedEnd, Survivor]) -> Survivor:
    """Return the survivor with the best log that has the records of every snapshot."""
    for each in survivors:
        if all(each.holds(id) for id in snapshots):
            return each
    newest = max(snapshots)
    raise RescueRefusedError(
        "the snapshots contradict each other: no log has the records of all of them. The newest is "
        f"of offset {newest.offset}, epoch {newest.epoch} in {snapshots[newest].path}. Leave out "
        "the directories that do not belong to this quorum"
    )


def _new_voter(
    chosen: Survivor, survivors: Sequence[Survivor], config: ServerConfig | None
) -> NewVoter:
    voters = chosen.voters
    if config is None:
        base = next((each for each in (chosen, *survivors) if voters.is_voter(each.key)), None)
        entry = None if base is None else voters.get(base.node_id)
        if base is None or entry is None:
            raise RescueRefusedError(
                f"the log to continue is that of {chosen.path} (node {chosen.node_id}), and no "
                "directory of a voter is left. Name the configuration of the controller that "
                "becomes the only voter: -c FILE"
            )
        return NewVoter(
            base.node_id, base.directory_id, entry.endpoints, entry.kraft_versions, base
        )
    if not config.is_controller:
        raise RescueRefusedError(f"{config.path}: process.roles has no controller")
    # Another directory of that node id was replaced or wiped: the new voter gets a new id then.
    base = next(
        (
            each
            for each in (chosen, *survivors)
            if each.node_id == config.node_id and (each is chosen or voters.is_voter(each.key))
        ),
        None,
    )
    endpoints = tuple(
        Endpoint(name, written_host(host or "localhost"), port)
        for name, host, port, _ in config.advertised_controller_listeners
    )
    return NewVoter(
        config.node_id,
        None if base is None else base.directory_id,
        endpoints,
        KRaftVersionRange(0, 1),
        base,
    )


def _branches(
    chosen: Survivor,
    survivors: Sequence[Survivor],
    divergences: dict[tuple[Path, Path], Divergence],
) -> tuple[Branch, ...]:
    branches = []
    for each in survivors:
        for pair, place in (((each.path, chosen.path), 0), ((chosen.path, each.path), 1)):
            found = divergences.get(pair)
            if found is not None:
                epochs = found.epochs[place], found.epochs[1 - place]
                branches.append(Branch(each.path, each.node_id, found.offset, each.end, epochs))
    return tuple(branches)
