"""Each rule of ``kraft preflight`` on facts that break it, and the same facts after its remedy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from kraft.controller.features import UpgradeType
from kraft.image.nodes import VersionRange
from kraft.preflight.changes import (
    ControllerReplacement,
    DynamicQuorumChange,
    FeatureLevelChange,
    PlannedChange,
    commands_of,
)
from kraft.preflight.facts import (
    BrokerFacts,
    ClusterFacts,
    ControllerFacts,
    DirectoryFacts,
    ReplicaFacts,
)
from kraft.preflight.findings import CommandWords, FindingSeverity, PreflightFinding
from kraft.preflight.rules import check
from kraft.raft.voters import ReplicaKey
from kraft.records import Uuid

WORDS = CommandWords("c1:9093,c2:9093", "client.properties")
BLOCKS, WARNING, NOTE = FindingSeverity
AT = "--bootstrap-controller c1:9093,c2:9093 --command-config client.properties"
MIB = 1 << 20


def features(metadata_max: int = 30, kraft_max: int = 1, **more: int) -> dict[str, VersionRange]:
    """Return the ranges of a node; names of features with ``_`` for ``.``."""
    others = {name.replace("_", "."): VersionRange(0, level) for name, level in more.items()}
    return {
        "metadata.version": VersionRange(7, metadata_max),
        "kraft.version": VersionRange(0, kraft_max),
        **others,
    }


def directory(id: int) -> Uuid:
    return Uuid(bytes([id] * 16))


def voter(id: int, metadata_max: int = 30, **changes: object) -> ControllerFacts:
    key = ReplicaKey(id, directory(id))
    made = ControllerFacts(
        id,
        f"c{id}:9093",
        True,
        ReplicaFacts(key),
        features(metadata_max),
        features(metadata_max),
        listeners=("CONTROLLER",),
        settings={
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": "c1:9093",
        },
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def down(id: int, metadata_max: int = 30, **changes: object) -> ControllerFacts:
    """Return a voter whose process has ended."""
    silent = ReplicaFacts(ReplicaKey(id, directory(id)), 40, 60_000, 60_000)
    return voter(
        id, metadata_max, replica=silent, running=None, silence="refused", settings=None, **changes
    )


def gone(id: int, metadata_max: int = 25) -> ControllerFacts:
    """Return a controller that has left, and its registration not."""
    return ControllerFacts(id, f"c{id}:9093", registered=features(metadata_max), silence="refused")


def facts(
    *controllers: ControllerFacts,
    levels: Mapping[str, int] | None = None,
    **more: object,
) -> ClusterFacts:
    """Return a quorum led by controller 1; kraft.version 1 and metadata.version 27 (4.1)."""
    every = {each.id: each for each in controllers or (voter(1), voter(2), voter(3))}
    made = ClusterFacts(
        "cluster",
        1,
        {"metadata.version": 27, "kraft.version": 1, **(levels or {})},
        every,
        committed_voters=tuple(
            each.replica.key for each in every.values() if each.is_voter and each.replica
        ),
    )
    return replace(made, **more)  # type: ignore[arg-type]


def found(state: ClusterFacts, change: PlannedChange = None) -> dict[str, PreflightFinding]:
    """Return the findings by rule; each rule may be broken once."""
    findings = check(state, change, WORDS)
    by_rule = {each.rule: each for each in findings}
    assert len(by_rule) == len(findings), findings
    return by_rule


def severities(state: ClusterFacts, change: PlannedChange = None) -> dict[str, FindingSeverity]:
    return {rule: each.severity for rule, each in found(state, change).items()}


def upgrade(release: str | None = None, **levels: int) -> FeatureLevelChange:
    named = {name.replace("_", "."): level for name, level in levels.items()}
    return FeatureLevelChange(named, release=release)


def downgrade(kind: UpgradeType = UpgradeType.SAFE_DOWNGRADE, **levels: int) -> FeatureLevelChange:
    return FeatureLevelChange({k.replace("_", "."): v for k, v in levels.items()}, kind)


TO_4_3 = upgrade(metadata_version=30)


def test_a_sound_quorum_has_no_findings_and_the_change_its_commands() -> None:
    assert severities(facts()) == {}
    assert severities(facts(), TO_4_3) == {"no-way-back": NOTE}
    (step,) = commands_of(TO_4_3, facts(), WORDS)
    assert step.kafka == f"kafka-features.sh {AT} upgrade --feature metadata.version=30"
    assert step.kraft == f"kraft features upgrade --feature metadata.version=30 {AT}"


# -- levels of features


def test_an_older_controller_blocks_until_it_is_upgraded() -> None:
    old = facts(voter(1), voter(2), voter(3, 27))
    finding = found(old, TO_4_3)["controller-level"]
    assert (finding.severity, finding.subject) == (BLOCKS, "controller 3")
    assert finding.found == (
        "its process has the levels of Kafka 4.1, and supports metadata.version up to 27 "
        "(4.1-IV1), not 30 (4.3-IV0)"
    )
    is_down = facts(voter(1), voter(2), down(3, 27))
    assert found(is_down, TO_4_3)["controller-level"].found.startswith("it is down (refused)")
    # Restarted with the new release, and not registered anew yet.
    restarted = voter(3, 27, running=features(30))
    assert severities(facts(voter(1), voter(2), restarted), TO_4_3) == {
        "old-registration": BLOCKS,
        "no-way-back": NOTE,
    }


def test_a_controller_that_is_gone_blocks_with_its_old_registration() -> None:
    state = facts(voter(1), voter(2), gone(9))
    finding = found(state, TO_4_3)["stale-controller"]
    assert (finding.severity, finding.subject) == (BLOCKS, "controller 9")
    assert "no command removes the registration" in finding.steps[0].text
    assert "node.id=9" in finding.steps[0].text
    assert finding.steps[0].kafka.startswith(
        "kafka-storage.sh format -t cluster -c FILE --no-initial-controllers"
    )
    # A controller of the new release has registered the id again.
    assert "stale-controller" not in found(facts(voter(1), voter(2), gone(9, 30)), TO_4_3)
    # It lives, as an observer.
    alive = replace(gone(9), replica=ReplicaFacts(ReplicaKey(9, directory(9))))
    assert "controller-level" in found(facts(voter(1), voter(2), alive), TO_4_3)


def test_a_controller_that_is_gone_can_be_unregistered_from_4_4_on() -> None:
    state = facts(voter(1, 33), voter(2, 33), gone(9))
    assert severities(state) == {"gone-controller": NOTE}
    finding = found(replace(state, finalized={"metadata.version": 33, "kraft.version": 1}))
    assert finding["gone-controller"].severity is WARNING
    (step,) = finding["gone-controller"].steps
    assert step.kraft == f"kraft quorum unregister-controller --controller-id 9 {AT}"
    assert step.kafka == (
        "kafka-cluster.sh unregister-controller --bootstrap-controller c1:9093,c2:9093 "
        "--config client.properties --id 9"
    )


def test_an_older_broker_blocks_and_one_that_is_gone_can_be_unregistered() -> None:
    old = BrokerFacts(7, features(27))
    finding = found(facts(brokers={7: old}), TO_4_3)["broker-level"]
    assert (finding.severity, finding.subject) == (BLOCKS, "broker 7")
    left = replace(old, is_fenced=True, is_fetching=False, replicas=3, sole_replicas=1)
    findings = found(facts(brokers={7: left}), TO_4_3)
    # The same registration is not reported a second time, as a general finding.
    assert findings.keys() == {"stale-broker", "no-way-back"}
    remove = findings["stale-broker"].steps[1]
    assert "3 partitions keep it among their replicas" in remove.text
    assert "only replica of 1" in remove.text
    assert remove.kraft == f"kraft brokers unregister --id 7 {AT}"
    assert remove.kafka == (
        "kafka-cluster.sh unregister --bootstrap-controller c1:9093,c2:9093 "
        "--config client.properties --id 7"
    )
    assert severities(facts(brokers={7: left})) == {"gone-broker": WARNING}
    assert severities(facts(brokers={7: replace(left, is_fetching=True)})) == {}


def test_a_voter_without_registration_blocks() -> None:
    state = facts(voter(1), voter(2), down(3, registered=None))
    assert severities(state, TO_4_3) == {
        "unregistered-voter": BLOCKS,
        "silent-voter": WARNING,
        "no-way-back": NOTE,
    }


def test_an_unknown_feature_blocks() -> None:
    finding = found(facts(), upgrade(my_feature=1))["unknown-feature"]
    assert "metadata.version" in finding.why
    newer = features(30, my_feature=1)
    known = facts(voter(1, registered=newer), voter(2, registered=newer))
    assert severities(known, upgrade(my_feature=1)) == {}


def test_the_direction_and_the_present_level_are_checked() -> None:
    assert severities(facts(), upgrade(metadata_version=26)) == {"wrong-direction": BLOCKS}
    assert severities(facts(), downgrade(metadata_version=28)) == {"wrong-direction": BLOCKS}
    assert severities(facts(), upgrade(metadata_version=27)) == {"level-is-set": NOTE}


def test_a_downgrade_that_loses_metadata_blocks_and_names_the_lowest_level() -> None:
    state = facts(levels={"metadata.version": 28})
    assert severities(state, downgrade(metadata_version=24)) == {}
    finding = found(state, downgrade(metadata_version=20))["metadata-lost"]
    assert finding.severity is BLOCKS
    assert finding.found.startswith("23 (4.0-IV1) brought records")
    assert finding.steps[0].text == "Go back to 4.0-IV1 at the lowest."
    # An unsafe downgrade is rejected as well.
    unsafe = downgrade(UpgradeType.UNSAFE_DOWNGRADE, metadata_version=20)
    assert "metadata-lost" in found(state, unsafe)
    at_4_3 = facts(levels={"metadata.version": 30})
    text = found(at_4_3, downgrade(metadata_version=29))["metadata-lost"].steps[0].text
    assert text == "Stay at 4.3-IV0: no lower level keeps the metadata."


def test_levels_depend_on_others() -> None:
    nodes = [
        voter(id, registered=features(30, eligible_leader_replicas_version=1)) for id in (1, 2)
    ]
    state = facts(*nodes, levels={"metadata.version": 22})
    change = upgrade(eligible_leader_replicas_version=1)
    finding = found(state, change)["dependency"]
    assert finding.severity is BLOCKS
    assert finding.steps[0].text == "Change both together: add --feature metadata.version=23."
    together = upgrade(eligible_leader_replicas_version=1, metadata_version=23)
    assert severities(state, together) == {"no-way-back": NOTE}


def test_kraft_version_has_no_way_back() -> None:
    finding = found(facts(), downgrade(kraft_version=0))["no-way-back"]
    assert finding.severity is BLOCKS


def test_the_controllers_own_rejection_blocks() -> None:
    state = facts(dry_run={"metadata.version": "not today"})
    finding = found(state, TO_4_3)["controller-rejects"]
    assert finding.found == "the controller rejects the change: not today"
    # Where a rule has said why, the controller's words say nothing new.
    old = replace(state, brokers={7: BrokerFacts(7, features(27))})
    assert "controller-rejects" not in found(old, TO_4_3)
    no_listener = replace(voter(3), listeners=("INTERNAL",))
    odd = replace(static(voter(1), voter(2), no_listener), dry_run={"kraft.version": "voter 3"})
    assert "controller-rejects" not in found(odd, DynamicQuorumChange())


def test_a_release_would_turn_static_voters_into_dynamic_ones() -> None:
    static = facts(levels={"kraft.version": 0}, committed_voters=())
    change = upgrade("4.3", metadata_version=30, kraft_version=1)
    findings = found(static, replace_levels(change, metadata_version=30))
    assert "release-changes-quorum" not in findings
    warning = next(
        each for each in check(static, change, WORDS) if each.rule == "release-changes-quorum"
    )
    assert warning.severity is WARNING
    assert warning.steps[0].kafka == (
        f"kafka-features.sh {AT} upgrade --feature metadata.version=30"
    )
    old = facts(
        voter(1, 25),
        voter(2, 25),
        levels={"kraft.version": 0, "metadata.version": 21},
        committed_voters=(),
    )
    rules = {each.rule for each in check(old, upgrade("4.0", kraft_version=1), WORDS)}
    assert "release-too-old" in rules


def replace_levels(change: FeatureLevelChange, **levels: int) -> FeatureLevelChange:
    return replace(change, levels={k.replace("_", "."): v for k, v in levels.items()})


# -- voters, partitions, disks


def test_voters_that_fail_or_lag_are_reported() -> None:
    finding = found(facts(voter(1), voter(2), down(3)))["silent-voter"]
    assert finding.found == ("it has not fetched the log for 60 s, and does not answer (refused)")
    assert "if one more fails, nothing can be committed" in finding.why
    never = voter(3, replica=ReplicaFacts(ReplicaKey(3, directory(3)), 9, None, None))
    assert (
        "since the leader was elected"
        in found(facts(voter(1), voter(2), never))["silent-voter"].found
    )
    behind = voter(3, replica=ReplicaFacts(ReplicaKey(3, directory(3)), 900, 100, 90_000))
    five = [voter(id) for id in (1, 2, 4, 5)]
    lagging = found(facts(*five, behind))["lagging-voter"]
    assert (lagging.severity, lagging.found) == (
        WARNING,
        "it fetches, and is 900 records behind the leader",
    )
    assert lagging.why.endswith("1 more may fail.")


def test_a_voter_with_a_new_directory_is_removed_and_added() -> None:
    new = ReplicaFacts(ReplicaKey(3, directory(33)))
    state = facts(voter(1), voter(2), down(3), observers=(new,))
    finding = found(state)["replaced-directory"]
    assert finding.steps[0].kraft == (
        "kraft quorum remove-controller --controller-id 3 --controller-directory-id "
        f"{directory(3)!s} {AT}"
    )
    assert "add-controller" in finding.steps[1].kafka
    # The other way round: the observer is the old directory, which fetched a moment ago.
    old = ReplicaFacts(ReplicaKey(3, directory(33)), 0, 900)
    assert found(facts(observers=(old,))) == {}


def test_one_change_of_the_voters_at_a_time() -> None:
    state = facts(committed_voters=(ReplicaKey(1, directory(1)), ReplicaKey(2, directory(2))))
    finding = found(state)["pending-change"]
    assert finding.severity is BLOCKS
    assert f"3/{directory(3)!s}" in finding.found


def test_partitions_that_restarts_would_hurt_are_counted() -> None:
    assert severities(facts(without_leader=2, under_min_isr=3)) == {
        "without-leader": WARNING,
        "under-min-isr": WARNING,
    }


@pytest.mark.parametrize(
    ("free_mib", "snapshot_mib", "severity"),
    [(2000, 100, None), (2000, 1500, WARNING), (500, 100, WARNING), (90, 100, BLOCKS)],
)
def test_a_disk_needs_room_for_a_snapshot(
    free_mib: int, snapshot_mib: int, severity: FindingSeverity | None
) -> None:
    at = DirectoryFacts(Path("/d"), free_mib * MIB, 200 * MIB, snapshot_mib * MIB)
    expected = {} if severity is None else {"disk-full": severity}
    assert severities(facts(directories=(at,))) == expected


# -- static to dynamic


def static(*controllers: ControllerFacts) -> ClusterFacts:
    return facts(*controllers, levels={"kraft.version": 0}, committed_voters=())


def test_static_voters_become_dynamic() -> None:
    change = DynamicQuorumChange()
    state = static(voter(1), voter(2), voter(3))
    assert severities(state, change) == {"no-way-back": NOTE, "bootstrap-servers": NOTE}
    (step,) = commands_of(change, state, WORDS)
    assert step.kraft == f"kraft features upgrade --feature kraft.version=1 {AT}"
    # And afterwards.
    after = facts(voter(1), voter(2), voter(3))
    assert severities(after, change) == {"level-is-set": NOTE, "bootstrap-servers": NOTE}
    assert commands_of(change, after, WORDS) == []


@pytest.mark.parametrize(
    ("node", "rule"),
    [
        (voter(3, 25), "release-too-old"),
        (down(3), "voter-not-current"),
        (voter(3, listeners=("INTERNAL",)), "listener"),
        (voter(3, registered=features(kraft_max=0)), "old-registration"),
    ],
)
def test_each_voter_must_be_ready_to_become_dynamic(node: ControllerFacts, rule: str) -> None:
    findings = found(static(voter(1), voter(2), node), DynamicQuorumChange())
    assert findings[rule].severity is BLOCKS
    assert findings[rule].subject == "controller 3"


def test_settings_of_static_voters_are_to_be_changed() -> None:
    only_voters = {"controller.quorum.voters": "1@c1:9093", "controller.listener.names": "X"}
    state = static(voter(1), voter(2), voter(3, settings=only_voters))
    checked = [
        each
        for each in check(state, DynamicQuorumChange(), WORDS)
        if each.rule == "bootstrap-servers" and each.severity is WARNING
    ]
    assert [each.subject for each in checked] == ["controller 3"]
    text = checked[0].steps[0].text
    assert "controller.quorum.bootstrap.servers=c1:9093,c2:9093,c3:9093" in text
    both = {**only_voters, "controller.quorum.bootstrap.servers": "c1:9093"}
    after = facts(voter(1), voter(2), voter(3, settings=both))
    assert severities(after, DynamicQuorumChange())["voters-setting"] is WARNING


# -- replacing a controller


def ready(id: int, place: int) -> ReplicaFacts:
    """Return an observer that has caught up."""
    return ReplicaFacts(ReplicaKey(id, directory(place)))


def test_a_voter_is_replaced_by_another_controller() -> None:
    change = ControllerReplacement(3, ReplicaKey(4, directory(4)), config="four.properties")
    state = facts(voter(1), voter(2), voter(3), observers=(ready(4, 4),))
    assert severities(state, change) == {}
    add, remove = commands_of(change, state, WORDS)
    assert add.kafka == (
        "kafka-metadata-quorum.sh --bootstrap-controller c1:9093,c2:9093 "
        "--command-config four.properties add-controller"
    )
    assert add.kraft == (
        "kraft quorum add-controller -c four.properties --bootstrap-controller c1:9093,c2:9093 "
        "--command-config client.properties"
    )
    assert "append them to four.properties" in add.text
    assert "remove-controller --controller-id 3" in remove.kraft
    plain, _ = commands_of(change, state, replace(WORDS, client_config=None))
    assert plain.kraft.endswith("-c four.properties --bootstrap-controller c1:9093,c2:9093")
    assert "append" not in plain.text
    assert severities(facts(), change) == {"replacement-not-running": BLOCKS}
    behind = ReplicaFacts(ReplicaKey(4, directory(4)), 900, 100, 90_000)
    assert severities(facts(observers=(behind,)), change) == {"replacement-lags": BLOCKS}
    joins = voter(3, settings={"controller.quorum.auto.join.enable": "true"})
    auto = facts(voter(1), voter(2), joins, observers=(ready(4, 4),))
    assert severities(auto, change) == {"auto-join": WARNING}


def test_a_voter_gets_a_new_disk() -> None:
    """The old directory is removed first: an id can be a voter once."""
    change = ControllerReplacement(3, ReplicaKey(3, directory(33)), config="three.properties")
    state = facts(voter(1), voter(2), down(3), observers=(ready(3, 33),))
    assert severities(state, change) == {"majority": NOTE}
    remove, add = commands_of(change, state, WORDS)
    assert "remove-controller" in remove.kafka
    assert "add-controller" in add.kafka
    same = ControllerReplacement(3, ReplicaKey(3, directory(3)))
    assert severities(facts(), same)["same-directory"] is BLOCKS
    other = ControllerReplacement(3, ReplicaKey(2, directory(22)))
    assert severities(facts(observers=(ready(2, 22),)), other)["duplicate-voter"] is BLOCKS


def test_a_majority_must_be_left_without_the_old_voter() -> None:
    change = ControllerReplacement(3, ReplicaKey(3, directory(33)))
    alone = facts(voter(1), down(2), voter(3), observers=(ready(3, 33),))
    finding = found(alone, change)["majority"]
    assert finding.severity is BLOCKS
    assert finding.found == ("without it 1 of 2 voters have the log, and 2 are a majority")
    assert "controller 2" in finding.steps[0].text
    two = facts(voter(1), voter(3), observers=(ready(3, 33),))
    assert severities(two, change)["keep-running"] is WARNING
    one = facts(voter(1))
    assert severities(one, ControllerReplacement(1))["last-voter"] is BLOCKS


def test_what_cannot_be_replaced_is_named() -> None:
    change = ControllerReplacement(8)
    finding = found(facts(), change)["not-a-voter"]
    assert f"2/{directory(2)!s}" in finding.why
    assert severities(static(voter(1), voter(2)), change) == {"static-voters": BLOCKS}
    leads = found(facts(), ControllerReplacement(1))
    assert leads["leader"].severity is NOTE
    assert leads["replacement-unknown"].severity is NOTE


def test_the_most_severe_findings_come_first() -> None:
    state = facts(voter(1), voter(2), down(3), brokers={7: BrokerFacts(7, features(27))})
    order = [each.severity for each in check(state, TO_4_3, WORDS)]
    assert order == [BLOCKS, WARNING, NOTE]
