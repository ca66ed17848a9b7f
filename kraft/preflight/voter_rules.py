"""Rules for changes of the voters: static voters become dynamic, a controller is replaced.

Sources: KIP-853, KAFKA-16538 (kraft.version 0 to 1, Kafka 4.1), KAFKA-18979, KAFKA-19850, Kafka's
``AddVoterHandler``, ``RemoveVoterHandler``, ``KRaftVersionUpgrade`` (4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterator

from kraft.preflight.changes import ControllerReplacement, DynamicQuorumChange, remove_voter_step
from kraft.preflight.facts import ClusterFacts, ControllerFacts, release_of
from kraft.preflight.feature_rules import FIRST_WITH_KRAFT_VERSION_UPGRADE, feature_findings
from kraft.preflight.findings import (
    CommandWords,
    FindingSeverity,
    PreflightFinding,
    RemedyStep,
)
from kraft.preflight.quorum_rules import current_voters

_BLOCKS, _WARNING, _NOTE = FindingSeverity
BOOTSTRAP_SERVERS = "controller.quorum.bootstrap.servers"
STATIC_VOTERS = "controller.quorum.voters"
AUTO_JOIN = "controller.quorum.auto.join.enable"
LISTENER_NAMES = "controller.listener.names"


# -- static to dynamic


def dynamic_findings(
    facts: ClusterFacts, change: DynamicQuorumChange, words: CommandWords
) -> Iterator[PreflightFinding]:
    """Yield the findings about the change of kraft.version from 0 to 1."""
    if facts.kraft_version == 0:
        yield from kraft_version_findings(facts, words)
    yield from feature_findings(facts, change.as_levels(), words)
    yield from _settings_findings(facts)


def kraft_version_findings(facts: ClusterFacts, words: CommandWords) -> Iterator[PreflightFinding]:
    """Yield why the leader cannot set kraft.version 1: old releases, voters it has not heard."""
    leader = facts.leader
    listener = None
    if leader is not None and leader.settings is not None:
        listener = leader.settings.get(LISTENER_NAMES, "").partition(",")[0].strip()
    current = current_voters(facts)
    for voter in facts.voters:
        subject = f"controller {voter.id}"
        highest = voter.metadata_version_max
        if highest is not None and highest < FIRST_WITH_KRAFT_VERSION_UPGRADE:
            yield PreflightFinding(
                _BLOCKS,
                "release-too-old",
                subject,
                f"it has the levels of {release_of(highest)}",
                "Kafka 4.1 is the first release that sets kraft.version 1 correctly. A leader of "
                "3.9 or 4.0 writes the level without the voters (KAFKA-18979).",
                (
                    RemedyStep(
                        f"Install Kafka 4.1 or newer on controller {voter.id} and restart it. One "
                        "controller after the other, the leader last.",
                    ),
                ),
            )
        if voter not in current:
            yield PreflightFinding(
                _BLOCKS,
                "voter-not-current",
                subject,
                "it does not fetch the log, or lags",
                "At the upgrade the leader writes the directory id and the endpoints of every "
                "voter into the log. It learns them from the voter itself.",
                (
                    RemedyStep(f"Start controller {voter.id}, and wait until its lag is 0."),
                    words.describe(),
                ),
            )
        if listener and voter.listeners and listener not in voter.listeners:
            yield PreflightFinding(
                _BLOCKS,
                "listener",
                subject,
                f"its listeners are {', '.join(voter.listeners)}, without {listener}, the first "
                f"{LISTENER_NAMES} of the leader",
                "The leader takes a voter's endpoint from the listener of this name.",
                (
                    RemedyStep(
                        f"Set {LISTENER_NAMES} on controller {voter.id} to begin with {listener}, "
                        "with a listener of that name, and restart it."
                    ),
                ),
            )


def _settings_findings(facts: ClusterFacts) -> Iterator[PreflightFinding]:
    is_dynamic = facts.kraft_version > 0
    endpoints = ",".join(voter.address for voter in facts.voters if voter.address is not None)
    setting = f"{BOOTSTRAP_SERVERS}={endpoints}"
    for _, controller in sorted(facts.controllers.items()):
        if controller.settings is None:
            continue
        if not controller.settings.get(BOOTSTRAP_SERVERS):
            yield PreflightFinding(
                _WARNING,
                "bootstrap-servers",
                f"controller {controller.id}",
                f"{BOOTSTRAP_SERVERS} is not set",
                f"A node that only has {STATIC_VOTERS} finds the quorum by the first voters alone. "
                "It finds no leader once these are replaced.",
                (
                    RemedyStep(
                        f"Add to its configuration, and restart it: {setting}\n"
                        f"Remove {STATIC_VOTERS} when kraft.version is 1."
                    ),
                ),
            )
        elif is_dynamic and controller.settings.get(STATIC_VOTERS):
            yield PreflightFinding(
                _WARNING,
                "voters-setting",
                f"controller {controller.id}",
                f"{STATIC_VOTERS} is still set",
                "kraft.version is 1: the log names the voters. The setting has no effect, and says "
                "something else after the first change of the voters.",
                (RemedyStep(f"Remove {STATIC_VOTERS} from its configuration, and restart it."),),
            )
    unknown = [
        str(each.id)
        for _, each in sorted(facts.controllers.items())
        if each.settings is None and not each.is_gone
    ]
    nodes = "every broker" + (f" and on controller {', '.join(unknown)}" if unknown else "")
    yield PreflightFinding(
        _NOTE,
        "bootstrap-servers",
        "brokers",
        f"a controller cannot show the files of brokers{'; ' if facts.settings_error else ''}"
        f"{facts.settings_error}",
        f"A node that only has {STATIC_VOTERS} finds the quorum by the first voters alone.",
        (RemedyStep(f"See that {BOOTSTRAP_SERVERS} is set on {nodes}: {setting}"),),
    )


# -- replacing a controller


def replacement_findings(
    facts: ClusterFacts, change: ControllerReplacement, words: CommandWords
) -> Iterator[PreflightFinding]:
    """Yield the findings about replacing one voter."""
    old = facts.controllers.get(change.old_id)
    if facts.kraft_version == 0:
        yield PreflightFinding(
            _BLOCKS,
            "static-voters",
            "voters",
            "kraft.version is 0: the voters are static",
            "Static voters cannot be removed or added. A replaced disk needs no change of the "
            "voters: format it, and start the same node.id.",
            (
                RemedyStep(
                    "Check whether the voters can become dynamic.",
                    kraft=words.kraft("preflight", "dynamic-quorum"),
                ),
            ),
        )
        return
    if old is None or not old.is_voter:
        listed = ", ".join(_voter_text(voter) for voter in facts.voters)
        yield PreflightFinding(
            _BLOCKS,
            "not-a-voter",
            f"controller {change.old_id}",
            "it is not a voter",
            f"The voters are {listed}.",
            (words.describe(),),
        )
        return
    yield from _majority(facts, old, change, words)
    yield from _new_voter(facts, old, change, words)
    if old.id == facts.leader_id:
        yield PreflightFinding(
            _NOTE,
            "leader",
            f"controller {old.id}",
            "it leads the quorum",
            "A leader that is removed resigns once the removal is committed; the next leader needs "
            "an election, some seconds.",
        )
    if (
        old.settings is not None
        and old.settings.get(AUTO_JOIN) == "true"
        and (change.new is None or change.new.id != old.id)
    ):
        yield PreflightFinding(
            _WARNING,
            "auto-join",
            f"controller {old.id}",
            f"{AUTO_JOIN} is true",
            "A removed controller that still runs adds itself again (KAFKA-19850).",
            (
                RemedyStep(
                    f"Before the removal: set {AUTO_JOIN}=false on controller {old.id}, restart "
                    "it, and check again."
                ),
            ),
        )


def _majority(
    facts: ClusterFacts, old: ControllerFacts, change: ControllerReplacement, words: CommandWords
) -> Iterator[PreflightFinding]:
    voters, subject = facts.voters, f"controller {old.id}"
    others = [voter for voter in current_voters(facts) if voter.id != old.id]
    is_added_first = change.new is not None and change.new.id != old.id
    if len(voters) == 1:
        if not is_added_first:
            yield PreflightFinding(
                _BLOCKS,
                "last-voter",
                subject,
                "it is the only voter",
                "The last voter cannot be removed: its log is the only one.",
                (
                    RemedyStep(
                        "Format and start a controller with another node.id, and check its "
                        "addition: it has to be added first.",
                        kraft=words.kraft(
                            *("preflight", "replace-controller", "--controller-id", old.id),
                            *("-c", "FILE"),
                        ),
                    ),
                ),
            )
        return
    left = len(voters) - 1
    needed = left // 2 + 1
    behind = [voter.id for voter in voters if voter.id != old.id and voter not in others]
    if len(others) < needed:
        yield PreflightFinding(
            _BLOCKS,
            "majority",
            subject,
            f"without it {len(others)} of {left} voters have the log, and {needed} are a majority",
            "Once it is removed, nothing can be committed, not even the addition of another voter.",
            (
                RemedyStep(
                    f"First bring back the voters that do not fetch, or lag: controller "
                    f"{', '.join(map(str, behind))}."
                ),
                words.describe(),
            ),
        )
        return
    if len(others) < len(voters) // 2 + 1:
        yield PreflightFinding(
            _WARNING,
            "keep-running",
            subject,
            f"it must run until its removal is committed: {len(voters)} voters need "
            f"{len(voters) // 2 + 1} for a majority",
            "If it is stopped first, its own removal cannot be committed.",
            (RemedyStep("Remove it while it runs, and stop it afterwards."),),
        )
    if len(others) == needed and not is_added_first:
        yield PreflightFinding(
            _NOTE,
            "majority",
            subject,
            f"while it is out, {left} voters are left, and {needed} of them must run",
            "If one more fails in this time, nothing can be committed. A replacement with another "
            "node.id can be added first.",
        )


def _new_voter(
    facts: ClusterFacts, old: ControllerFacts, change: ControllerReplacement, words: CommandWords
) -> Iterator[PreflightFinding]:
    new = change.new
    if new is None:
        yield PreflightFinding(
            _NOTE,
            "replacement-unknown",
            "replacement",
            "the replacement was not checked",
            "Its directory id, its lag and its features decide whether it can be added.",
            (
                RemedyStep(
                    "Format it, start it, and name its configuration.",
                    f"kafka-storage.sh format -t {facts.cluster_id} -c FILE "
                    "--no-initial-controllers",
                    words.kraft(
                        *("preflight", "replace-controller", "--controller-id", old.id),
                        *("-c", "FILE"),
                    ),
                ),
            ),
        )
        return
    subject = f"controller {new!r}"
    voter = facts.controllers.get(new.id)
    if voter is not None and voter.is_voter and voter.directory_id == new.directory_id:
        yield PreflightFinding(
            _BLOCKS,
            "same-directory",
            subject,
            "it is a voter already, with this directory",
            "There is nothing to add: the replacement is the voter itself.",
            (
                RemedyStep(
                    "To replace a lost disk, format the new one: it gets a directory id of its "
                    "own. To replace the node, give the configuration of another one."
                ),
            ),
        )
        return
    if voter is not None and voter.is_voter and voter.id != old.id:
        yield PreflightFinding(
            _BLOCKS,
            "duplicate-voter",
            subject,
            f"controller {new.id} is a voter, with the directory {voter.directory_id!s}",
            "The leader rejects a second voter of the same node.id (DUPLICATE_VOTER).",
            (remove_voter_step(voter.id, str(voter.directory_id), words),),
        )
    observer = next((each for each in facts.observers if each.key == new), None)
    if observer is None or not observer.is_fetching:
        yield PreflightFinding(
            _BLOCKS,
            "replacement-not-running",
            subject,
            "the leader does not see it among the observers",
            "The leader adds a controller that runs and has caught up, and no other.",
            (
                RemedyStep(
                    "Start it, and check again.",
                    f"kafka-server-start.sh {change.config}",
                    f"kraft server start {change.config}",
                ),
            ),
        )
    elif not observer.is_current:
        yield PreflightFinding(
            _BLOCKS,
            "replacement-lags",
            subject,
            f"it is {observer.lag} records behind the leader",
            "The leader adds a controller that has caught up, and no other.",
            (RemedyStep("Wait until its lag is 0, and check again."), words.describe()),
        )


def _voter_text(voter: ControllerFacts) -> str:
    return str(voter.id) if voter.replica is None else repr(voter.replica.key)
