"""The rules and the steps of ``kraft transplant`` on facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from kraft.image.nodes import VersionRange
from kraft.preflight.facts import BrokerFacts, ClusterFacts, ControllerFacts, ReplicaFacts
from kraft.preflight.findings import CommandWords, FindingSeverity, PreflightFinding
from kraft.raft.voters import ReplicaKey
from kraft.records import Uuid
from kraft.transplant.rules import plan_findings, step_findings
from kraft.transplant.steps import Replacement, TransplantPlan, steps_of

WORDS = CommandWords("c1:9093")
BLOCKS, WARNING, NOTE = FindingSeverity
SETTINGS = {
    "process.roles": "controller",
    "node.id": "1",
    "listeners": "CONTROLLER://c1:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "c1:9093",
    "log.dirs": "/var/lib/kafka/metadata",
}
NEW = [Replacement(f"c{id}.properties", id, f"c{id}:9093") for id in (11, 12, 13)]


def voter(id: int, settings: Mapping[str, str | None] | None = None) -> ControllerFacts:
    levels = {"metadata.version": VersionRange(7, 30), "kraft.version": VersionRange(0, 1)}
    return ControllerFacts(
        id,
        f"c{id}:9093",
        True,
        ReplicaFacts(ReplicaKey(id, Uuid(bytes([id] * 16)))),
        levels,
        levels,
        listeners=("CONTROLLER",),
        settings={},
        file_settings={**SETTINGS, "node.id": str(id), **(settings or {})},
    )


def behind(id: int, silent_ms: int) -> ControllerFacts:
    """Return a voter that was caught up a minute ago, and fetched this long ago."""
    made = voter(id)
    assert made.replica is not None
    return replace(
        made, replica=replace(made.replica, lag=9, silent_ms=silent_ms, behind_ms=60_000)
    )


def facts(*voters: ControllerFacts, **more: object) -> ClusterFacts:
    """Return a quorum of static voters, led by controller 1."""
    every = {each.id: each for each in voters or (voter(1), voter(2), voter(3))}
    made = ClusterFacts("cluster", 1, {"metadata.version": 27}, every)
    return replace(made, **more)  # type: ignore[arg-type]


def severities(findings: list[PreflightFinding]) -> dict[str, FindingSeverity]:
    by_rule = {each.rule: each.severity for each in findings}
    assert len(by_rule) == len(findings), findings
    return by_rule


def planned(state: ClusterFacts, **options: object) -> dict[str, FindingSeverity]:
    plan = TransplantPlan.of(state, **options)  # type: ignore[arg-type]
    return severities(plan_findings(state, plan, WORDS))


def typed(state: ClusterFacts, **options: object) -> list[str]:
    """Return the commands of the plan, kraft's where there are both, without --bootstrap…"""
    plan = TransplantPlan.of(state, **options)  # type: ignore[arg-type]
    every = [step.kraft or step.kafka for step in steps_of(plan, state, WORDS)]
    return [each.partition(" --bootstrap-controller")[0] for each in every]


def test_directories_are_taken_over_one_by_one_the_leader_last() -> None:
    assert planned(facts()) == {}
    assert typed(facts()) == [
        "kraft backup --to metadata-before-transplant",
        *(
            line
            for id in (2, 3, 1)
            for line in (
                f"kraft transplant check --controller-id {id} --wait 60",
                f"kafka-server-stop.sh --node-id={id}",
                "kraft server start FILE",
            )
        ),
        "kraft transplant check --wait 60",
    ]


def test_a_step_names_address_and_directory() -> None:
    plan = TransplantPlan.of(facts(), config="/etc/c.properties")
    (start,) = [step for step in steps_of(plan, facts(), WORDS) if "c2:9093" in step.text]
    assert "/var/lib/kafka/metadata" in start.text
    assert start.kraft == "kraft server start /etc/c.properties"


def test_the_commands_reach_the_quorum_when_the_given_controllers_are_gone() -> None:
    state = facts(finalized={"metadata.version": 27, "kraft.version": 1})
    plan = TransplantPlan.of(state, replacements=NEW)
    last = steps_of(plan, state, CommandWords("c1:9093", "client.properties"))[-1]
    assert last.kraft == (
        "kraft transplant check --wait 60 --bootstrap-controller "
        "c1:9093,c2:9093,c3:9093,c11:9093,c12:9093,c13:9093 --command-config client.properties"
    )


def test_the_way_back_stops_kraft_and_starts_kafka() -> None:
    assert planned(facts(), is_back=True) == {"release": NOTE}
    lines = typed(facts(), is_back=True, replaced=[2, 3])
    assert lines[2:4] == ["systemctl stop kraft", "kafka-server-start.sh -daemon FILE"]
    assert len(lines) == 5


def test_nothing_is_left_to_do() -> None:
    assert typed(facts(), replaced=[1, 2, 3]) == []


def test_new_controllers_are_added_before_old_ones_are_removed() -> None:
    state = facts(finalized={"metadata.version": 27, "kraft.version": 1})
    assert planned(state, replacements=NEW) == {}
    lines = typed(state, replacements=NEW)
    assert [line.split()[2] for line in lines if line.startswith("kraft quorum")] == [
        "add-controller",
        "remove-controller",
    ] * 3
    plan = TransplantPlan.of(state, replacements=NEW)
    assert "c1:9093,c2:9093,c3:9093,c11:9093,c12:9093,c13:9093" in "".join(
        step.text for step in steps_of(plan, state, WORDS)
    )


def test_a_plan_continues_half_way() -> None:
    state = facts(
        voter(1), voter(3), voter(11), finalized={"metadata.version": 27, "kraft.version": 1}
    )
    plan = TransplantPlan.of(state, replacements=NEW)
    assert (plan.order, [each.node_id for each in plan.replacements]) == ((3, 1), [12, 13])
    # 12 is added, and 3 not removed yet.
    state = replace(state, controllers={**state.controllers, 12: voter(12)})
    assert planned(state, replacements=NEW) == {"replacements": BLOCKS}


def test_static_voters_are_not_replaced_by_others() -> None:
    assert planned(facts(), replacements=NEW) == {"static-voters": BLOCKS}


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (facts(finalized={"metadata.version": 99}), {"level": BLOCKS}),
        (facts(finalized={"metadata.version": 27, "new.feature": 1}), {"level": BLOCKS}),
        (facts(brokers={2: BrokerFacts(2, {})}), {"combined-node": BLOCKS}),
        (facts(voter(1)), {"few-voters": WARNING}),
        (
            facts(voter(1), voter(2), replace(voter(3), file_settings=None)),
            {"settings-unknown": WARNING},
        ),
    ],
)
def test_clusters_that_do_not_fit(
    state: ClusterFacts, expected: dict[str, FindingSeverity]
) -> None:
    assert planned(state) == expected


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"authorizer.class.name": "com.example.Authorizer"}, {"settings": BLOCKS}),
        ({"controller.quorum.fetch.timeout.ms": "x"}, {"settings": BLOCKS}),
        ({"create.topic.policy.class.name": "com.example.Policy"}, {"java-plugin": BLOCKS}),
        ({"create.topic.policy.class.name": "example:Policy"}, {}),
        ({"principal.builder.class": "com.example.Builder"}, {"java-plugin": BLOCKS}),
        ({"log.retention.hours": "168", "num.io.threads": "8"}, {"no-effect": NOTE}),
        ({"ssl.keystore.password": None}, {"secrets": NOTE}),
    ],
)
def test_settings_of_a_running_controller(
    settings: dict[str, str | None], expected: dict[str, FindingSeverity]
) -> None:
    found = planned(facts(voter(1), voter(2), voter(3, settings)))
    assert {rule: found[rule] for rule in expected} == expected
    assert set(found) - set(expected) <= {"no-effect"}


@pytest.mark.parametrize(
    ("state", "next_id", "expected"),
    [
        (facts(), 2, {}),
        (facts(), None, {}),
        (facts(), 1, {"leader": NOTE}),
        (facts(), 9, {"not-a-voter": BLOCKS}),
        (facts(voter(1), voter(2), behind(3, 60_000)), 3, {"silent-voter": WARNING}),
        (
            facts(voter(1), voter(2), behind(3, 60_000)),
            2,
            {"silent-voter": BLOCKS, "majority": BLOCKS},
        ),
        (facts(voter(1), voter(2), behind(3, 0)), None, {"lagging-voter": BLOCKS}),
        (
            facts(brokers={7: BrokerFacts(7, {}, is_fenced=True)}),
            2,
            {"fenced-broker": BLOCKS},
        ),
        (facts(under_min_isr=2), 2, {"under-min-isr": WARNING}),
    ],
)
def test_the_next_step(
    state: ClusterFacts, next_id: int | None, expected: dict[str, FindingSeverity]
) -> None:
    assert severities(step_findings(state, WORDS, next_id)) == expected
