"""Describe an assessment and a founded quorum: text for people, a document for programs.

Every statement is one of three kinds: certain, unknown (no file can tell), or something to do.
Called by the command, which prints both, and writes the text beside the new metadata.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from kraft.raft.voters import Endpoint
from kraft.server.rescue.assessment import EPOCH_MARGIN, Assessment, Branch
from kraft.server.rescue.founding import FoundedQuorum
from kraft.server.rescue.survivors import Survivor

COLUMNS = ("DIRECTORY", "NODE", "VOTER", "LASTEPOCH", "LOG", "LASTRECORD", "ELECTIONEPOCH", "USE")


def rows(assessment: Assessment) -> list[tuple[object, ...]]:
    """Return a row of `COLUMNS` for each directory, the best log first."""
    return [
        (
            str(each.path),
            each.node_id,
            assessment.voters.is_voter(each.key),
            each.end.epoch,
            f"{each.start_offset} to {each.end.offset}",
            _time(each.last_record_ms),
            max(each.election_epoch, 0),
            _use(assessment, each),
        )
        for each in assessment.survivors
    ]


def certain(assessment: Assessment) -> Iterator[str]:
    """Yield what the directories prove."""
    chosen, committed = assessment.chosen, assessment.committed
    if assessment.committed_by is not None:
        yield (
            f"The records below offset {committed.offset} are committed: "
            f"{assessment.committed_by.path} has a snapshot that ends there, and the log to "
            "continue has all of them."
        )
    else:
        yield "No directory has a snapshot: none proves that a record was committed."
    yield (
        f"The log to continue, in {chosen.path}, ends at offset {chosen.end.offset} in epoch "
        f"{chosen.end.epoch}; its last record was appended at {_time(chosen.last_record_ms)}."
    )
    for each in assessment.survivors:
        if each.torn_bytes:
            yield (
                f"{each.path} ends with {each.torn_bytes} bytes of an interrupted write, which a "
                "restart removes: no node has acknowledged them."
            )
        if each.is_log_replaced:
            yield (
                f"{each.path} has a snapshot of offset {each.end.offset} that is ahead of its log: "
                "a restart continues from the snapshot, and so does this assessment."
            )


def unknown(assessment: Assessment) -> Iterator[str]:
    """Yield what no directory can tell, and the consequence of not knowing."""
    chosen, committed = assessment.chosen, assessment.committed
    if chosen.end.offset > committed.offset:
        yield (
            f"Whether the records from offset {committed.offset} to {chosen.end.offset} were "
            "committed: some of the last ones may have been on a minority only, and their clients "
            "may have got an error or no answer. The rescue commits all of them."
        )
    lost = ", ".join(map(str, assessment.lost_voters)) or "none named by this log"
    yield (
        f"Whether the lost voters ({lost}) committed records after offset {chosen.end.offset}. If "
        f"they did, these changes are lost: everything after {_time(chosen.last_record_ms)} is in "
        "doubt."
    )
    for each in assessment.later:
        led = (
            f"which node {each.election_leader} led: its first record at least is lost"
            if each.election_leader >= 0
            else "in which it knew no leader"
        )
        yield (
            f"What was committed after epoch {chosen.end.epoch}: node {each.node_id} took part in "
            f"epoch {each.election_epoch}, {led}."
        )
    for branch in assessment.branches:
        yield _branch_text(assessment, branch)
    if chosen.open_transaction is not None:
        yield (
            f"The metadata transaction of offset {chosen.open_transaction} has no end in this log. "
            "The new leader aborts it; if the lost voters committed its end, its changes are lost."
        )


def what_to_do(assessment: Assessment, founded: FoundedQuorum | None) -> Iterator[str]:
    """Yield the steps after the rescue, each with what to type; before it, how to carry it out."""
    voter, cluster_id = assessment.voter, assessment.cluster_id
    directory = "DIR" if founded is None else str(founded.path)
    at = _address(voter.endpoints)
    if founded is None:
        yield (
            "Copy every directory to another disk, if you can. Then found the new quorum: repeat "
            "this command with --to DIR (a new directory; nothing given changes), or with "
            "--in-place (the old files are copied aside first)."
        )
    if founded is None or founded.kept is None:
        yield (
            f"In the configuration of node {voter.node_id} set metadata.log.dir={directory} (or "
            f"log.dirs, if that is its only directory). The directory and its files must belong "
            "to the user that runs the node."
        )
    if assessment.kraft_version == 0:
        yield (
            f"Set controller.quorum.voters={voter.node_id}@{at} on every controller and broker: "
            "kraft.version is 0, so that the configuration names the voters."
        )
    yield f"Start node {voter.node_id} alone, and wait until it leads: " + _describe(at)
    yield (
        "Restart every broker, so that it reads the metadata again. A broker may have seen changes "
        "that are lost. Partitions of topics whose creation is lost are renamed to *-stray by the "
        "broker, not deleted. Before Kafka 3.8 a broker with static voters refuses a changed "
        "controller.quorum.voters until its __cluster_metadata-0/quorum-state is moved away."
    )
    others = sorted(assessment.voters.ids - {voter.node_id})
    if others and assessment.kraft_version == 0:
        yield (
            f"Bring back {_nodes(others)} only as voters that can change: with Kafka 4.1 or newer "
            "on every node, kafka-features --bootstrap-controller "
            f"{at} upgrade --feature kraft.version=1, and "
            "controller.quorum.bootstrap.servers in place of controller.quorum.voters. Never add "
            "two empty voters to controller.quorum.voters at once: they are a majority without "
            "the metadata."
        )
    for node in others:
        yield (
            f"Bring back node {node}: stop it, move its metadata directory away (keep it), then "
            f"kraft storage format -t {cluster_id} -c FILE --no-initial-controllers (or "
            f"kafka-storage format with the same options); start it; wait until its lag is 0; "
            f"kraft quorum add-controller -c FILE --bootstrap-controller {at} (or "
            f"kafka-metadata-quorum --bootstrap-controller {at} --command-config FILE "
            "add-controller). FILE is the configuration of that node."
        )
    yield (
        "Never start a node on an old directory of a controller beside the new quorum, and keep "
        "the old directories until the cluster is checked."
    )


def text(assessment: Assessment, founded: FoundedQuorum | None, time_ms: int) -> str:
    """Return the whole report as text."""
    lines = [
        f"Report of kraft rescue, {_time(time_ms)}",
        f"cluster {assessment.cluster_id}, kraft.version {assessment.kraft_version}, voters "
        f"{', '.join(map(str, sorted(assessment.voters.ids)))}",
        "",
        *("  ".join(map(str, row)) for row in (COLUMNS, *rows(assessment))),
    ]
    for title, sentences in sections(assessment, founded):
        lines += ["", title, *(f"- {sentence}" for sentence in sentences)]
    return "\n".join(lines) + "\n"


def sections(
    assessment: Assessment, founded: FoundedQuorum | None
) -> Iterator[tuple[str, list[str]]]:
    """Yield the parts of the report: a title and its sentences."""
    yield "Certain", list(certain(assessment))
    yield "Not known, and not in any file", list(unknown(assessment))
    if founded is None:
        yield "What a rescue would do", list(_plan(assessment))
    else:
        yield "Done", list(_done(assessment, founded))
    yield "What to do", list(what_to_do(assessment, founded))


def document(assessment: Assessment, founded: FoundedQuorum | None) -> dict[str, Any]:
    """Return the report as a document with stable keys; offsets are exclusive ends."""
    chosen, voter = assessment.chosen, assessment.voter
    made: dict[str, Any] = {
        "clusterId": assessment.cluster_id,
        "kraftVersion": assessment.kraft_version,
        "voters": sorted(assessment.voters.ids),
        "lostVoters": list(assessment.lost_voters),
        "directories": [_survivor_document(assessment, each) for each in assessment.survivors],
        "log": str(chosen.path),
        "endOffset": chosen.end.offset,
        "lastEpoch": chosen.end.epoch,
        "committedOffset": assessment.committed.offset,
        "newVoter": voter.node_id,
        "newEpoch": assessment.new_epoch,
        "droppedBranches": [
            {
                "path": str(each.path),
                "nodeId": each.node_id,
                "offset": each.offset,
                "endOffset": each.end.offset,
                "epochs": list(each.epochs),
            }
            for each in assessment.branches
        ],
        "isDone": founded is not None,
    }
    if founded is not None:
        made["path"] = str(founded.path)
        made["kept"] = None if founded.kept is None else str(founded.kept)
        made["newEndOffset"] = founded.end.offset
    for key, title in zip(
        ("certain", "unknown", "actions", "toDo"), sections(assessment, founded), strict=True
    ):
        made[key] = title[1]
    return made


def _survivor_document(assessment: Assessment, each: Survivor) -> dict[str, Any]:
    return {
        "path": str(each.path),
        "nodeId": each.node_id,
        "directoryId": None if each.directory_id is None else str(each.directory_id),
        "isVoter": assessment.voters.is_voter(each.key),
        "logStartOffset": each.start_offset,
        "logEndOffset": each.end.offset,
        "lastEpoch": each.end.epoch,
        "lastRecordMs": each.last_record_ms,
        "electionEpoch": each.election_epoch,
        "electionLeader": each.election_leader,
        "tornBytes": each.torn_bytes,
    }


def _plan(assessment: Assessment) -> Iterator[str]:
    voter = assessment.voter
    yield (
        f"Copy the log of {assessment.chosen.path} and make node {voter.node_id} the only voter, "
        f"in epoch {assessment.new_epoch}. The epoch is {EPOCH_MARGIN} above all epochs found, so "
        "that brokers that know a later one than these directories accept it."
    )


def _done(assessment: Assessment, founded: FoundedQuorum) -> Iterator[str]:
    voter = assessment.voter
    yield (
        f"{founded.path} has the log of {assessment.chosen.path}, and node {voter.node_id} as the "
        f"only voter, in epoch {assessment.new_epoch}. Its log ends at offset {founded.end.offset}."
    )
    if founded.kept is not None:
        yield (
            f"The files before the change are in {founded.kept}. To undo the rescue, put them back."
        )
    else:
        yield "The given directories were not changed."


def _branch_text(assessment: Assessment, branch: Branch) -> str:
    mine, theirs = branch.epochs
    known = branch.offset < assessment.committed.offset
    why = (
        "a snapshot shows that the records of the log to continue were committed there"
        if known
        else "KRaft's elections prefer the higher epoch. If the lost voters had committed this "
        "branch, its changes are lost; to continue it, leave out the other directories"
    )
    return (
        f"Node {branch.node_id} has other records from offset {branch.offset} to "
        f"{branch.end.offset}, of epoch {mine} on; the log to continue has epoch {theirs} there. "
        f"They are dropped: {why}."
    )


def _use(assessment: Assessment, each: Survivor) -> str:
    if each is assessment.chosen:
        return "log to continue"
    if each is assessment.voter.base:
        return "new voter"
    if any(branch.path == each.path for branch in assessment.branches):
        return "other branch"
    return "behind" if each.end < assessment.chosen.end else "same log"


def _describe(at: str) -> str:
    return (
        f"kraft quorum describe --status --bootstrap-controller {at} (or kafka-metadata-quorum "
        f"--bootstrap-controller {at} describe --status)."
    )


def _address(endpoints: tuple[Endpoint, ...]) -> str:
    if not endpoints:
        # Static voters: the log has no addresses.
        return "HOST:PORT"
    host = endpoints[0].host
    return f"{f'[{host}]' if ':' in host else host}:{endpoints[0].port}"


def _nodes(ids: list[int]) -> str:
    return f"node{'s' if len(ids) > 1 else ''} {', '.join(map(str, ids))}"


def _time(time_ms: int) -> str:
    if time_ms < 0:
        return "an unknown time"
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
