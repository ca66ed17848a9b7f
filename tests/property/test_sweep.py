"""A sweep over outages against the controller itself.

The test fences every broker of an outage, applies one decision after another, and counts the
resulting state with its own lists. The clusters are in every state, impossible ones included:
members of an ISR or ELR that are no replica, leaders out of sync, reassignments of all kinds,
brokers fenced and shutting down, directories offline.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraft import Metadata, records
from kraft.lab.outage_report import Outage
from kraft.lab.outages import plan_outages, sweep_outages
from kraft.metadata.health import Health
from kraft.records import Record, Uuid

pytest.importorskip("numba")

BROKERS = (0, 1, 2, 3, 4, 5, 7, 65538)
# Named by partitions, but not registered.
GONE = 99
MIN_ISR, UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"
ELR = "eligible.leader.replicas.version"


def directory(broker: int, number: int) -> Uuid:
    return Uuid(bytes((200, broker % 251, number, 1)) * 4)


@dataclass
class Cluster:
    """Records that make a cluster; ``log`` has them in order."""

    log: list[Record]

    def metadata(self) -> Metadata:
        metadata = Metadata()
        metadata.apply(self.log)
        return metadata


@st.composite
def partition(
    draw: st.DrawFn, topic: Uuid, number: int, level: int, is_elr_enabled: bool
) -> Record:
    # Most partitions are usual, some have more than 8 brokers or unregistered ones.
    everybody = (*BROKERS, GONE)
    replicas = draw(st.permutations(everybody))[: draw(st.sampled_from((1, 2, 3, 3, 3, 4, 5, 9)))]
    some = st.lists(st.sampled_from(replicas), unique=True).map(list)
    strangers = st.lists(st.sampled_from(everybody), unique=True, max_size=3)
    isr = draw(st.one_of(st.just(list(replicas)), some, some, strangers))
    is_moving = draw(st.sampled_from((False, False, False, True)))
    if is_elr_enabled and number == 0:
        # ELRs depend on the replication factor of the topic's first partition, which a sweep does
        # not change: fencing changes it only for a reassignment that should have ended before.
        is_moving = False
    has_elr = level >= 23 and draw(st.sampled_from((True, True, False)))
    return records.Partition(
        partition_id=number,
        topic_id=topic,
        replicas=list(replicas),
        isr=isr,
        removing_replicas=draw(some) if is_moving else [],
        adding_replicas=draw(some) if is_moving else [],
        leader=draw(st.sampled_from((-1, replicas[0], *isr, *isr, *isr, everybody[2]))),
        leader_recovery_state=0,
        leader_epoch=0,
        partition_epoch=0,
        directories=[
            draw(
                st.sampled_from(
                    (*(directory(broker, n) for n in (0, 0, 0, 1, 2)), Uuid(bytes(15) + b"\x02"))
                )
            )
            for broker in replicas
        ]
        if level >= 17
        else [Uuid(bytes(16)) for _ in replicas],
        eligible_leader_replicas=(draw(some) or None) if has_elr else None,
        last_known_elr=draw(st.lists(st.sampled_from(everybody), max_size=2)) or None
        if has_elr
        else None,
        version=2,
    )


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    level = draw(st.sampled_from((7, 17, 23, 30, 30)))
    log: list[Record] = [records.FeatureLevel(name="metadata.version", feature_level=level)]
    is_elr_enabled = level >= 23 and draw(st.booleans())
    if is_elr_enabled:
        log.append(records.FeatureLevel(name=ELR, feature_level=1))
    for broker in BROKERS:
        state = draw(st.sampled_from(("alive",) * 5 + ("fenced", "leaving")))
        log.append(
            records.RegisterBroker(
                broker_id=broker,
                incarnation_id=Uuid(bytes([broker % 251 + 1]) * 16),
                broker_epoch=broker,
                rack=f"rack-{broker % 3}" if broker != 7 else None,
                fenced=state == "fenced",
                in_controlled_shutdown=state == "leaving",
                log_dirs=[directory(broker, n) for n in range(draw(st.sampled_from((0, 2, 2))))]
                if level >= 17
                else [],
            )
        )
    switch = st.sampled_from(("true", "false"))
    least = st.sampled_from(("1", "2", "3"))
    if draw(st.booleans()):
        log.append(records.Config(4, "", MIN_ISR, draw(least)))
    if draw(st.booleans()):
        log.append(records.Config(4, "", UNCLEAN, draw(switch)))
    for number in range(draw(st.integers(1, 3))):
        topic_id = Uuid(bytes([number + 1]) * 16)
        log.append(records.Topic(name=f"topic-{number}", topic_id=topic_id))
        if draw(st.booleans()):
            log.append(records.Config(2, f"topic-{number}", MIN_ISR, draw(least)))
        if draw(st.booleans()):
            log.append(records.Config(2, f"topic-{number}", UNCLEAN, draw(switch)))
        for each in range(draw(st.integers(1, 4))):
            log.append(draw(partition(topic_id, each, level, is_elr_enabled)))
    if len(log) % 2:
        log.append(records.RemoveTopic(topic_id=Uuid(bytes([1]) * 16)))
    return Cluster(log)


@dataclass(frozen=True)
class Partition:
    leader: int
    isr: int
    wanted_isr: int
    recovering: bool

    @property
    def is_under_min_isr(self) -> bool:
        return self.leader < 0 or self.isr < self.wanted_isr

    @property
    def is_at_min_isr(self) -> bool:
        return self.leader >= 0 and self.isr == self.wanted_isr


def partitions_of(metadata: Metadata) -> dict[tuple[str, int], Partition]:
    wanted = Health(metadata).min_isr
    rows = np.flatnonzero(metadata.partitions.live)
    found = {}
    for row in rows:
        info = metadata.partitions.row(int(row))
        found[info.topic, info.partition] = Partition(
            info.leader, len(info.isr), int(wanted[row]), info.leader_recovery_state == 1
        )
    return found


def slow_outage(cluster: Cluster, brokers: tuple[int, ...]) -> dict[str, Any]:
    """Return the outage's figures as in `Outage`, from the controller's own decisions."""
    metadata = cluster.metadata()
    before = partitions_of(metadata)
    for broker in brokers:
        metadata.apply(metadata.fence_broker(broker))
    after = partitions_of(metadata)
    pairs = [(before[name], after[name]) for name in before]
    alive = [
        each.id
        for each in metadata.brokers.values()
        if not each.fenced and not each.in_controlled_shutdown
    ]
    led = {broker: sum(new.leader == broker for _, new in pairs) for broker in sorted(alive)}
    most = max(led.values(), default=0)
    return {
        "unavailable": sum(old.leader >= 0 > new.leader for old, new in pairs),
        "unclean": sum(new.recovering and new.leader >= 0 for _, new in pairs),
        "under_min_isr": sum(
            new.is_under_min_isr and not old.is_under_min_isr for old, new in pairs
        ),
        "at_min_isr": sum(new.is_at_min_isr and not old.is_at_min_isr for old, new in pairs),
        "moved": sum(old.leader >= 0 <= new.leader != old.leader for old, new in pairs),
        "max_leaders": most,
        "most_loaded": next((broker for broker in led if led[broker] == most), None),
        "leader_skew": most * len(led) / sum(led.values()) if sum(led.values()) else None,
        "living": len(led),
    }


def said(outage: Outage) -> dict[str, Any]:
    return {name: getattr(outage, name) for name in slow_names()}


def slow_names() -> tuple[str, ...]:
    return (
        *("unavailable", "unclean", "under_min_isr", "at_min_isr", "moved"),
        *("max_leaders", "most_loaded", "leader_skew", "living"),
    )


@settings(max_examples=100, deadline=None)
@given(clusters(), st.permutations(BROKERS), st.integers(2, 8))
def test_a_sweep_counts_the_controllers_result(
    cluster: Cluster, order: list[int], lost: int
) -> None:
    metadata = cluster.metadata()
    next_offset = metadata.next_offset
    plan = plan_outages(metadata, groups=[order[:lost]])
    report = sweep_outages(metadata, plan, threads=1)
    assert metadata.next_offset == next_offset
    for place in range(len(report)):
        outage = report.outage(place)
        assert said(outage) == slow_outage(cluster, outage.brokers), outage.brokers


def corner(level: int, is_elr_enabled: bool, min_isr: str, **lists: list[int]) -> Cluster:
    """Return a cluster of one partition on brokers 0 to 3, led by the first in-sync replica.

    With another ``leader``, unclean elections are allowed.
    """
    log: list[Record] = [records.FeatureLevel(name="metadata.version", feature_level=level)]
    if is_elr_enabled:
        log.append(records.FeatureLevel(name=ELR, feature_level=1))
    log += [
        records.RegisterBroker(
            broker_id=broker,
            incarnation_id=Uuid(bytes([broker + 1]) * 16),
            broker_epoch=broker,
            fenced=False,
        )
        for broker in range(4)
    ]
    topic_id = Uuid(b"t" * 16)
    log += [
        records.Topic(name="topic", topic_id=topic_id),
        records.Config(2, "topic", MIN_ISR, min_isr),
        records.Config(2, "topic", UNCLEAN, "true" if "leader" in lists else "false"),
        records.Partition(
            partition_id=0,
            topic_id=topic_id,
            replicas=lists["replicas"],
            isr=lists["isr"],
            removing_replicas=lists.get("removing", []),
            adding_replicas=lists.get("adding", []),
            leader=lists.get("leader", lists["isr"])[0],
            leader_epoch=0,
            partition_epoch=0,
            directories=[Uuid(bytes(16)) for _ in lists["replicas"]],
            eligible_leader_replicas=lists.get("elr"),
            last_known_elr=lists.get("last_known"),
            version=2,
        ),
    ]
    return Cluster(log)


CORNERS = {
    "a member of the ELR takes over": corner(30, True, "2", replicas=[0, 1, 2], isr=[0], elr=[2]),
    "the ELR is full of the gone": corner(30, True, "2", replicas=[0, 1, 2], isr=[0, 1]),
    "enough in sync, and the ELR ends": corner(
        30, True, "1", replicas=[0, 1, 2], isr=[0, 1], elr=[2]
    ),
    "the last known leader": corner(30, True, "0", replicas=[0, 1, 2], isr=[0], last_known=[2]),
    "the last known leader, while the ELR names one that is gone": corner(
        30, True, "1", replicas=[0, 1, 2], isr=[0], last_known=[2]
    ),
    "a leader that is not the first replica": corner(
        30, False, "1", replicas=[0, 1, 2], isr=[2, 1, 0]
    ),
    "a last known leader that is forgotten once somebody leads": corner(
        30, True, "0", replicas=[0, 1, 2], isr=[0, 1], last_known=[2]
    ),
    "several last known leaders": corner(
        30, True, "0", replicas=[0, 1, 2], isr=[0], last_known=[1, 2]
    ),
    "an ELR that no record has": corner(17, False, "1", replicas=[0, 1, 2], isr=[0], elr=[2]),
    "such an ELR after another loss": corner(
        17, False, "1", replicas=[0, 1, 2], isr=[0, 1], elr=[2]
    ),
    "an ELR that is off": corner(30, False, "1", replicas=[0, 1, 2], isr=[0, 1], elr=[2]),
    "an unclean election of the leader that there is": corner(
        30, False, "1", replicas=[2, 3], isr=[0], leader=[2]
    ),
    "a reassignment that can end": corner(
        30, False, "1", replicas=[0, 1, 2], isr=[0, 1, 2], adding=[2], removing=[0]
    ),
    "a reassignment that waits for what it adds": corner(
        30, False, "1", replicas=[0, 1, 2], isr=[0, 1], adding=[2], removing=[0]
    ),
    "a reassignment that waits for all that stay": corner(
        30, False, "1", replicas=[0, 1, 2, 3], isr=[0, 1, 2], removing=[0]
    ),
    "a reassignment that would leave nobody": corner(
        30, False, "1", replicas=[0, 1], isr=[0, 1], removing=[0, 1]
    ),
}


@pytest.mark.parametrize("name", CORNERS)
def test_a_sweep_counts_the_controllers_result_in_rare_cases(name: str) -> None:
    cluster = CORNERS[name]
    metadata = cluster.metadata()
    groups = [[1, 0], [2, 1, 0], [1, 2], [0, 1, 2]]
    report = sweep_outages(metadata, plan_outages(metadata, groups=groups), threads=1)
    for outage in report:
        assert said(outage) == slow_outage(cluster, outage.brokers), outage.brokers
