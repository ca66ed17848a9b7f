"""Rules for the quorum as it is: voters that do not fetch or lag, partitions, disks.

Sources: Kafka's ``LeaderState`` (what DescribeQuorum reports), KIP-853.
"""

from __future__ import annotations

from collections.abc import Iterator

from kraft.preflight.changes import remove_voter_step
from kraft.preflight.facts import ClusterFacts, ControllerFacts
from kraft.preflight.findings import (
    CommandWords,
    FindingSeverity,
    PreflightFinding,
    RemedyStep,
)

_MIB = 1 << 20


def quorum_findings(facts: ClusterFacts, words: CommandWords) -> Iterator[PreflightFinding]:
    """Yield the findings about voters, whatever the change."""
    voters = facts.voters
    current = current_voters(facts)
    majority = len(voters) // 2 + 1
    spare = len(current) - majority
    left = (
        f"{len(current)} of {len(voters)} voters have the log, and {majority} are a majority: "
        + (
            f"{spare} more may fail."
            if spare > 0
            else "if one more fails, nothing can be committed any more."
        )
    )
    for voter in voters:
        replica = voter.replica
        if voter in current or replica is None:
            continue
        if not replica.is_fetching:
            since = (
                "since the leader was elected"
                if replica.silent_ms is None
                else f"for {replica.silent_ms / 1000:.0f} s"
            )
            answers = (
                f", and does not answer ({voter.silence})"
                if voter.running is None
                else ", and its process answers"
            )
            yield PreflightFinding(
                FindingSeverity.WARNING,
                "silent-voter",
                f"controller {voter.id}",
                f"it has not fetched the log {since}{answers}",
                left,
                (
                    RemedyStep(f"Start controller {voter.id}, or look in its log why it fails."),
                    words.describe(),
                ),
            )
        else:
            yield PreflightFinding(
                FindingSeverity.WARNING,
                "lagging-voter",
                f"controller {voter.id}",
                f"it fetches, and is {replica.lag} records behind the leader",
                left,
                (RemedyStep("Wait until its lag is 0."), words.describe()),
            )
    yield from _other_directories(facts, words)
    yield from _pending_change(facts, words)


def current_voters(facts: ClusterFacts) -> list[ControllerFacts]:
    """Return the voters that fetch and are caught up, and the leader."""
    return [
        voter
        for voter in facts.voters
        if voter.id == facts.leader_id or (voter.replica is not None and voter.replica.is_current)
    ]


def _other_directories(facts: ClusterFacts, words: CommandWords) -> Iterator[PreflightFinding]:
    for replica in facts.other_directories:
        voter = facts.controllers.get(replica.key.id)
        if voter is None or voter.directory_id is None:
            continue
        yield PreflightFinding(
            FindingSeverity.WARNING,
            "replaced-directory",
            f"controller {voter.id}",
            f"it runs with the directory {replica.key.directory_id!s}, and the voter is of the "
            f"directory {voter.directory_id!s}",
            "A replica with another directory has no vote (KIP-853): the quorum has one voter "
            "fewer.",
            (
                remove_voter_step(voter.id, str(voter.directory_id), words),
                RemedyStep(
                    f"Add it again. FILE is the configuration of controller {voter.id}.",
                    CommandWords(words.controllers, "FILE").kafka(
                        "kafka-metadata-quorum", "add-controller"
                    ),
                    words.kraft("quorum", "add-controller", "-c", "FILE"),
                ),
            ),
        )


def _pending_change(facts: ClusterFacts, words: CommandWords) -> Iterator[PreflightFinding]:
    if not facts.committed_voters:
        return
    described = {voter.replica.key for voter in facts.voters if voter.replica is not None}
    committed = set(facts.committed_voters)
    if described == committed:
        return
    changed = ", ".join(map(repr, sorted(described ^ committed)))
    yield PreflightFinding(
        FindingSeverity.BLOCKS,
        "pending-change",
        "voters",
        f"a change of the voters is not committed yet: {changed}",
        "The leader changes one voter at a time (KIP-853), and rejects the next change until then.",
        (
            RemedyStep("Wait until it is committed. It needs a majority of the new voters."),
            words.describe(),
        ),
    )


def partition_findings(facts: ClusterFacts, words: CommandWords) -> Iterator[PreflightFinding]:
    """Yield the findings about partitions, which restarts of brokers make unavailable.

    A partition without a leader is counted by both.
    """
    why = "Every restart of a broker, such as for a new release, makes more partitions unavailable."
    if facts.without_leader:
        yield PreflightFinding(
            FindingSeverity.WARNING,
            "without-leader",
            "partitions",
            f"{facts.without_leader} have no leader",
            why,
            (
                _see_which("--unavailable-partitions", words),
                _start_brokers(
                    "A partition has a leader again once a replica of its ISR or ELR is live.",
                    words,
                ),
                RemedyStep(
                    "Only if such a broker is lost for good: let any live replica of the partition "
                    "lead it. The records that this replica lacks are lost.",
                    "kafka-leader-election.sh --bootstrap-server BROKER:PORT "
                    "--election-type unclean --topic TOPIC --partition PARTITION",
                    words.kraft(
                        *("elect", "--election-type", "unclean"),
                        *("--topic", "TOPIC", "--partition", "PARTITION"),
                    ),
                ),
            ),
        )
    if facts.under_min_isr:
        yield PreflightFinding(
            FindingSeverity.WARNING,
            "under-min-isr",
            "partitions",
            f"{facts.under_min_isr} have fewer replicas in sync than min.insync.replicas",
            why,
            (
                _see_which("--under-min-isr-partitions", words),
                _start_brokers("Then wait until their replicas are in sync.", words),
            ),
        )


def _see_which(option: str, words: CommandWords) -> RemedyStep:
    return RemedyStep(
        "See which.",
        f"kafka-topics.sh --bootstrap-server BROKER:PORT --describe {option}",
        words.kraft("topics", "describe", option),
    )


def _start_brokers(effect: str, words: CommandWords) -> RemedyStep:
    return RemedyStep(
        f"Start the brokers of their replicas that are fenced. {effect}",
        kraft=words.kraft("brokers", "list"),
    )


def disk_findings(facts: ClusterFacts, min_free_mib: int) -> Iterator[PreflightFinding]:
    """Yield the findings about the directories of this machine.

    A snapshot needs its size again before an old one is deleted.
    """
    for each in facts.directories:
        needed = max(min_free_mib * _MIB, 2 * each.snapshot_bytes)
        if each.free_bytes >= needed:
            continue
        is_full = each.free_bytes < each.snapshot_bytes + _MIB
        yield PreflightFinding(
            FindingSeverity.BLOCKS if is_full else FindingSeverity.WARNING,
            "disk-full",
            str(each.path),
            f"{each.free_bytes // _MIB} MiB are free; the metadata log has "
            f"{_mib(each.log_bytes)} MiB, its newest snapshot {_mib(each.snapshot_bytes)} MiB",
            "A controller that cannot write its log or a snapshot ends. At least "
            f"{_mib(needed)} MiB should be free.",
            (
                RemedyStep(
                    f"Free space on that disk, and check again. Never delete files in {each.path}."
                ),
            ),
        )


def _mib(size: int) -> int:
    return -(-size // _MIB)
