"""Heartbeats of a broker, from its registration to its shutdown."""

from __future__ import annotations

import random
from itertools import product

import pytest

from kraft import records
from kraft.controller.brokers.broker_lifecycle import (
    fence_stale_broker,
    register_broker,
    unregister_broker,
)
from kraft.controller.brokers.heartbeats import (
    BrokerHeartbeatReply,
    broker_heartbeat,
    broker_heartbeat_applied,
    broker_heartbeat_expired,
    unchanged_heartbeat,
)
from kraft.controller.brokers.leaderless_search import LeaderlessSearch
from kraft.controller.brokers.sessions import BrokerControlState, BrokerSessions, Heartbeat
from kraft.controller.decision import Decision, Records
from kraft.controller.topics.isr_changes import IsrChange, alter_partition
from kraft.errors import StaleBrokerEpochError
from kraft.image.replay import MetadataState
from kraft.records import Uuid
from tests.harness.decisions import Lab, directory, names, registration

STATES = BrokerControlState


class Beating(Lab):
    """A lab with broker sessions."""

    def __init__(self, brokers: int = 3, *, level: int = 30) -> None:
        super().__init__(brokers)
        if level != 30:
            self.write(records.FeatureLevel(name="metadata.version", feature_level=level))
        self.now_ms = 0.0
        self.sessions = BrokerSessions()
        self.sessions.activate(self.cluster, self.now_ms)

    def decide(self, broker: int, **said: object) -> Decision[BrokerHeartbeatReply]:
        return self.decide_heartbeat(self.heartbeat(broker, **said))

    def decide_heartbeat(self, heartbeat: Heartbeat) -> Decision[BrokerHeartbeatReply]:
        return broker_heartbeat(
            self.cluster, self.sessions, heartbeat, next_offset=self.cluster.next_offset
        )

    def heartbeat(self, broker: int, **said: object) -> Heartbeat:
        epoch = self.cluster.state.brokers[broker].epoch
        given: dict[str, object] = {"metadata_offset": self.cluster.next_offset - 1} | said
        return Heartbeat(broker, epoch, **given)  # type: ignore[arg-type]

    def beat(self, broker: int, **said: object) -> BrokerHeartbeatReply:
        heartbeat = self.heartbeat(broker, **said)
        self.sessions.touch(broker, heartbeat.broker_epoch, self.now_ms)
        decision = self.decide_heartbeat(heartbeat)
        answer = self.do(decision)
        end_offset = self.cluster.next_offset - 1
        broker_heartbeat_applied(self.cluster, self.sessions, heartbeat, answer, end_offset)
        return answer

    def restart(self, broker: int, incarnation: int = 2, **fields: object) -> None:
        request = registration(broker, incarnation, **fields)
        at = self.cluster.next_offset
        epoch = self.do(register_broker(self.cluster, request, next_offset=at))
        self.sessions.reset_broker(self.cluster, broker)
        self.sessions.leaderless_search.registered(epoch, self.cluster.next_offset)

    def alter_isrs(self, leader: int, chosen: random.Random) -> None:
        """Let a broker propose another ISR for each partition that it leads."""
        cluster, at = self.cluster, self.cluster.next_offset
        changes = []
        for row in cluster.table.live_rows():
            state = cluster.table.state_of(int(row))
            if state["leader"] == leader:
                isr = [leader, *(id for id in state["replicas"] if chosen.random() < 0.5)]
                topic = cluster.table.topic_id_of(int(cluster.table.column("topic")[row]))
                changes.append(
                    IsrChange(
                        Uuid(topic),
                        int(cluster.table.column("partition")[row]),
                        state["leader_epoch"],
                        state["partition_epoch"],
                        {id: cluster.state.brokers[id].epoch for id in isr},
                    )
                )
        epoch = cluster.state.brokers[leader].epoch
        self.do(alter_partition(cluster, leader, epoch, changes))
        self.sessions.leaderless_search.isrs_changed(at, cluster.next_offset)


def test_a_broker_is_unfenced_once_it_has_applied_its_registration() -> None:
    lab = Beating()
    lab.restart(0)
    at = lab.cluster.state.brokers[0].registration_offset
    answer = lab.beat(0, metadata_offset=at - 1)
    assert (answer.state, answer.is_caught_up) == (STATES.FENCED, False)
    answer = lab.beat(0, metadata_offset=at, wants_fence=True)
    assert (answer.state, answer.is_caught_up) == (STATES.FENCED, True), "it wants to stay fenced"
    answer = lab.beat(0, metadata_offset=at)
    assert (answer.state, answer.is_fenced) == (STATES.UNFENCED, False)
    assert not lab.cluster.state.brokers[0].fenced


def test_catching_up_means_the_registration_record_not_those_before_it() -> None:
    lab = Beating()
    lab.create("t", [0, 1], [0, 2])
    lab.restart(0)
    broker = lab.cluster.state.brokers[0]
    assert broker.registration_offset == broker.epoch + 2, (
        "two ISR changes precede the registration"
    )
    assert not lab.beat(0, metadata_offset=broker.epoch).is_caught_up


def test_for_a_registration_from_a_snapshot_the_snapshot_end_counts() -> None:
    lab = Beating(1)
    written = [
        records.FeatureLevel(name="metadata.version", feature_level=30),
        *lab.cluster.state.brokers.snapshot_records(30),
    ]
    cluster = MetadataState(journaling=True)
    cluster.apply_snapshot(Records.of(written, 30).batches, end_offset=500)
    assert cluster.state.brokers[0].registration_offset == 499


def test_most_heartbeats_write_nothing() -> None:
    lab = Beating()
    decision = lab.decide(1, cordoned_log_dirs=None)
    assert len(decision.records) == 0
    assert decision.response == BrokerHeartbeatReply(STATES.UNFENCED, True)


def test_a_broker_without_leaderships_is_fenced_and_shuts_down_at_once() -> None:
    lab = Beating()
    lab.create("t", [0, 1])
    answer = lab.beat(1, wants_shutdown=True)
    assert answer.should_shut_down
    assert answer.is_fenced
    assert lab.cluster.state.brokers[1].fenced
    assert lab.partition("t")["isr"] == [0]


def test_a_controlled_shutdown_waits_for_every_active_broker() -> None:
    lab = Beating()
    lab.create("t", [0, 1])
    answer = lab.beat(0, wants_shutdown=True)
    assert answer.state is STATES.CONTROLLED_SHUTDOWN
    assert (answer.is_fenced, answer.should_shut_down) == (False, False)
    assert lab.cluster.state.brokers[0].in_controlled_shutdown
    assert lab.partition("t")["leader"] == 1
    end = lab.cluster.next_offset - 1
    lab.beat(1, metadata_offset=end)
    lab.beat(2, metadata_offset=end - 1)
    assert lab.beat(0, wants_shutdown=True).state is STATES.CONTROLLED_SHUTDOWN
    lab.beat(2, metadata_offset=end)
    answer = lab.beat(0)
    assert answer.state is STATES.SHUTDOWN_NOW, "regardless of its later heartbeats"
    assert lab.cluster.state.brokers[0].fenced


def test_the_last_broker_may_shut_down_with_leaderships() -> None:
    lab = Beating(1)
    lab.create("t", [0])
    answer = lab.beat(0, wants_shutdown=True)
    assert answer.state is STATES.CONTROLLED_SHUTDOWN
    assert lab.partition("t")["leader"] == -1
    assert lab.beat(0, wants_shutdown=True).should_shut_down, (
        "no other active broker has to catch up"
    )


def test_a_broker_may_ask_to_be_fenced_and_to_shut_down() -> None:
    lab = Beating()
    lab.create("t", [0, 1])
    assert lab.beat(0, wants_fence=True).state is STATES.FENCED
    assert lab.partition("t")["leader"] == 1
    lab.create("u", [1, 2])
    assert lab.beat(1, wants_fence=True, wants_shutdown=True).state is STATES.SHUTDOWN_NOW
    assert lab.partition("u")["leader"] == 2


def test_a_fenced_broker_that_wants_to_shut_down_is_fenced_once_more() -> None:
    lab = Beating()
    lab.beat(0, wants_fence=True)
    assert names(lab.decide(0, wants_shutdown=True)) == ["BrokerRegistrationChange"]
    assert lab.beat(0, wants_shutdown=True).should_shut_down


def test_a_new_controller_completes_a_controlled_shutdown() -> None:
    lab = Beating()
    lab.create("t", [0, 1])
    lab.beat(0, wants_shutdown=True)
    lab.sessions.activate(lab.cluster, lab.now_ms)
    assert names(lab.decide(0, wants_shutdown=True)) == ["BrokerRegistrationChange"]
    assert lab.beat(0, wants_shutdown=True).state is STATES.SHUTDOWN_NOW


def test_an_amended_registration_does_not_repeat_the_shutdown() -> None:
    lab = Beating()
    lab.create("t", [0, 1])
    lab.beat(0, wants_shutdown=True)
    lab.restart(0, incarnation=1)
    assert lab.cluster.state.brokers[0].in_controlled_shutdown
    back = records.PartitionChange(topic_id=lab.create("u", [1, 0]), partition_id=0, leader=0)
    back.isr = [1, 0]
    lab.write(back)
    answer = lab.decide(0, wants_shutdown=True)
    assert answer.response.state is STATES.CONTROLLED_SHUTDOWN
    assert not answer.response.changes_registration
    assert names(answer) == ["PartitionChange"]


def test_a_stale_heartbeat_is_rejected_and_keeps_the_session() -> None:
    lab = Beating()
    with pytest.raises(StaleBrokerEpochError):
        lab.decide_heartbeat(Heartbeat(0, -1, 9))
    with pytest.raises(StaleBrokerEpochError):
        lab.decide_heartbeat(Heartbeat(77, 0, 9))
    with pytest.raises(StaleBrokerEpochError):
        broker_heartbeat_expired(lab.cluster, lab.sessions, Heartbeat(0, -1, 9))


def test_an_expired_heartbeat_updates_only_the_offset() -> None:
    lab = Beating()
    late = lab.heartbeat(0, metadata_offset=3, wants_shutdown=True)
    broker_heartbeat_expired(lab.cluster, lab.sessions, late)
    assert lab.sessions.metadata_offset(0) == 3
    assert not lab.cluster.state.brokers[0].fenced


def test_silent_brokers_are_fenced_one_by_one() -> None:
    lab = Beating()
    lab.create("t", [0, 1, 2])
    gone = []
    for _ in range(3):
        lab.now_ms = 5_000.0
        lab.beat(2)
        decision = fence_stale_broker(lab.cluster, lab.sessions, 9_001.0)
        gone.append(decision.response)
        lab.do(decision)
    assert gone == [True, True, False]
    assert lab.partition("t")["isr"] == [2]
    fenced = [lab.cluster.state.brokers[broker].fenced for broker in range(3)]
    assert fenced == [True, True, False]
    assert lab.beat(0).state is STATES.UNFENCED, "its session is alive again"


def test_the_session_of_an_unregistered_or_restarted_broker_is_only_removed() -> None:
    lab = Beating(2)
    lab.do(unregister_broker(lab.cluster, 0))
    lab.sessions.reset_broker(lab.cluster, 0)
    lab.restart(1)
    for _ in range(2):
        decision = fence_stale_broker(lab.cluster, lab.sessions, 9_001.0)
        assert decision.response
        assert len(decision.records) == 0
    assert not fence_stale_broker(lab.cluster, lab.sessions, 9_001.0).response


def test_a_heartbeat_reports_a_failed_directory() -> None:
    lab = Beating(2)
    lab.restart(0, log_dirs=[directory(0, 0), directory(0, 1)])
    lab.beat(0)
    topic = lab.create("t", [0, 1])
    homes = [directory(0, 1), directory(1)]
    lab.write(records.PartitionChange(partition_id=0, topic_id=topic, directories=homes))
    decision = lab.decide(0, offline_log_dirs=[directory(0, 1), directory(9)])
    assert names(decision) == ["PartitionChange", "BrokerRegistrationChange"]
    lab.beat(0, offline_log_dirs=[directory(0, 1)])
    assert lab.partition("t")["leader"] == 1
    assert lab.cluster.state.brokers[0].log_dirs == (directory(0, 0),)
    assert names(lab.decide(0, offline_log_dirs=[directory(0, 1)])) == []


def test_the_failure_of_the_last_directory_leaves_the_registration() -> None:
    lab = Beating(2)
    decision = lab.decide(0, offline_log_dirs=[directory(0)])
    assert names(decision) == ["BrokerRegistrationChange"]
    lab.beat(0, offline_log_dirs=[directory(0)])
    assert lab.cluster.state.brokers[0].log_dirs == (directory(0),)
    assert lab.sessions.metadata_offset(0) == -1


def test_changed_cordoned_directories_are_recorded() -> None:
    lab = Beating(2)
    assert names(lab.decide(0, cordoned_log_dirs=[])) == ["BrokerRegistrationChange"]
    lab.beat(0, cordoned_log_dirs=[])
    assert not lab.cluster.state.brokers[0].cordoned_log_dirs
    assert names(lab.decide(0, cordoned_log_dirs=[])) == []
    lab.beat(0, cordoned_log_dirs=[directory(0)])
    assert lab.cluster.state.brokers[0].cordoned_log_dirs == (directory(0),)
    lab.restart(0, incarnation=1)
    assert lab.cluster.state.brokers[0].cordoned_log_dirs is None, (
        "the broker has to report them again"
    )


def test_directories_in_heartbeats_are_ignored_below_3_7() -> None:
    lab = Beating(2, level=29)
    assert names(lab.decide(0, cordoned_log_dirs=[directory(0)])) == []
    lab = Beating(2, level=16)
    assert names(lab.decide(0, offline_log_dirs=[directory(0)])) == []


def test_an_unfenced_broker_without_an_offset_delays_shutdowns() -> None:
    lab = Beating(2)
    lab.restart(1)
    lab.beat(1)
    assert not lab.cluster.state.brokers[1].fenced
    assert lab.sessions.lowest_active_offset() == -1
    lab.beat(1, metadata_offset=20)
    lab.beat(0, metadata_offset=30)
    assert lab.sessions.lowest_active_offset() == 20


@pytest.mark.parametrize("level", [22, 30])
def test_a_heartbeat_without_records_is_recognised_beforehand(level: int) -> None:
    """`unchanged_heartbeat` may miss one, and says the same as the decision where it does not."""
    lab = Beating(5, level=level)
    lab.create("t", [4, 0, 1, 2, 3])
    lab.restart(1)
    lab.beat(2, wants_fence=True)
    lab.beat(3, cordoned_log_dirs=[directory(3, 0)])
    lab.beat(4, wants_shutdown=True)
    recognised = 0
    for broker, offset, fence, shutdown, offline, cordoned in product(
        lab.cluster.state.brokers,
        (-1, 0, lab.cluster.next_offset - 1),
        (False, True),
        (False, True),
        ((), (directory(0, 0),), (directory(9, 9),)),
        (None, (), (directory(3, 0),)),
    ):
        said = lab.heartbeat(
            broker,
            metadata_offset=offset,
            wants_fence=fence,
            wants_shutdown=shutdown,
            offline_log_dirs=offline,
            cordoned_log_dirs=cordoned,
        )
        answer = unchanged_heartbeat(lab.cluster, lab.sessions, said)
        decision = lab.decide_heartbeat(said)
        if answer is not None:
            recognised += 1
            assert not len(decision.records)
            assert answer == decision.response
        elif not (fence or shutdown or offline or cordoned or broker == 4):
            # The usual heartbeats of brokers that are neither about to change nor shutting down.
            assert len(decision.records) or cordoned == ()
    assert recognised >= 16


def test_a_stale_heartbeat_is_never_recognised_as_unchanged() -> None:
    lab = Beating()
    assert unchanged_heartbeat(lab.cluster, lab.sessions, Heartbeat(0, -1, 9)) is None
    assert unchanged_heartbeat(lab.cluster, lab.sessions, Heartbeat(77, 0, 9)) is None


# -- the elections of brokers that return


def rows_of_next_return(lab: Beating, broker: int) -> list[int] | None:
    """Return the rows that the broker's return would look at; None for all."""
    rows = lab.sessions.leaderless_search.rows(lab.cluster, broker, lab.cluster.next_offset)
    return None if rows is None else [int(row) for row in rows]


def test_brokers_that_return_one_after_the_other_look_at_their_own_partitions() -> None:
    lab = Beating(4)
    lab.create("t", [0, 1], [1, 2], [2, 3], [3, 0])
    for broker in range(4):
        lab.beat(broker, wants_fence=True)
    assert (lab.cluster.table.column("leader") == -1).all()
    assert rows_of_next_return(lab, 0) is None, "brokers were fenced since"
    lab.beat(0)
    assert rows_of_next_return(lab, 2) == [1, 2]
    lab.beat(2)
    assert rows_of_next_return(lab, 3) == [2, 3]
    lab.restart(1)
    assert rows_of_next_return(lab, 3) == [2, 3], "a registration of a fenced broker opens none"
    lab.write(records.NoOp())
    assert rows_of_next_return(lab, 3) is None, "other records may open other partitions"
    lab.restart(1, 5)
    assert rows_of_next_return(lab, 3) is None
    lab.beat(3)
    assert rows_of_next_return(lab, 1) == [0, 1]
    lab.sessions.activate(lab.cluster, lab.now_ms)
    assert rows_of_next_return(lab, 1) is None, "another controller may have led meanwhile"


def test_a_changed_isr_opens_no_partition_without_a_leader() -> None:
    lab = Beating(4)
    lab.create("t", [0, 1], [1, 2], [2, 3], [3, 0])
    for broker in (3, 2, 1, 0):
        lab.beat(broker, wants_fence=True)
    lab.beat(0)
    lab.beat(1)
    at = lab.cluster.next_offset
    lab.alter_isrs(0, random.Random(4))
    assert lab.cluster.next_offset > at
    assert lab.partition("t")["isr"] == [0, 1]
    assert rows_of_next_return(lab, 2) == [1, 2]
    lab.write(records.NoOp())
    lab.alter_isrs(0, random.Random(1))
    assert lab.partition("t")["isr"] == [0]
    assert rows_of_next_return(lab, 2) is None, "what came between them is not known"


def test_registrations_with_other_records_end_what_is_known_of_partitions() -> None:
    lab = Beating(3)
    lab.create("t", [0, 1], [1, 2])
    for broker in (2, 1, 0):
        lab.beat(broker, wants_fence=True)
    lab.beat(0)
    lab.restart(0, 3)
    assert rows_of_next_return(lab, 1) is None, "it led a partition"
    lab.beat(0)
    assert rows_of_next_return(lab, 1) is not None
    lab.restart(0, 3, log_dirs=[directory(0, 1)])
    assert rows_of_next_return(lab, 1) is None, "it amended its registration, and is active"


def test_a_return_that_names_a_failed_directory_tells_nothing_of_the_next_ones() -> None:
    lab = Beating(3)
    lab.create("t", [0, 1], [1, 2])
    for broker in range(3):
        lab.beat(broker, wants_fence=True)
    assert not lab.beat(0, offline_log_dirs=[directory(0)]).is_fenced
    assert rows_of_next_return(lab, 1) is None


def test_a_return_that_is_decided_and_not_applied_tells_nothing_of_the_next_ones() -> None:
    lab = Beating(3)
    lab.create("t", [0, 1], [1, 2])
    for broker in range(3):
        lab.beat(broker, wants_fence=True)
    lab.decide(0)
    lab.beat(0, wants_fence=True, offline_log_dirs=[directory(0)])
    assert rows_of_next_return(lab, 1) is None


@pytest.mark.parametrize("is_elr_enabled", [False, True])
def test_a_return_writes_the_records_of_an_election_over_all_partitions(
    is_elr_enabled: bool,
) -> None:
    """Among changes of ISRs, fencings, restarts, controlled shutdowns, failed directories and
    unclean elections that topics allow.
    """
    narrow = 0
    for seed in range(25):
        chosen = random.Random(seed)
        lab = Beating(6)
        if is_elr_enabled:
            name = "eligible.leader.replicas.version"
            lab.write(records.FeatureLevel(name=name, feature_level=1))
        for number in range(6):
            lab.create(f"t{number}", *(chosen.sample(range(6), 3) for _ in range(2)))
        for broker in chosen.sample(range(6), 6):
            lab.beat(broker, wants_fence=True)
        for _ in range(30):
            broker, topic = chosen.randrange(6), f"t{chosen.randrange(6)}"
            is_fenced = lab.cluster.state.brokers[broker].fenced
            kinds = ("return", "isr", "fence", "restart", "leave", "fail", "unclean")
            kind = chosen.choices(kinds, (12, 8, 2, 1, 1, 1, 1))[0]
            if kind == "return" and is_fenced:
                kept = lab.sessions.leaderless_search
                narrow += rows_of_next_return(lab, broker) is not None
                mine = bytes(lab.decide(broker).records.batches)
                lab.sessions.leaderless_search = LeaderlessSearch()
                assert mine == bytes(lab.decide(broker).records.batches), (seed, kind)
                lab.sessions.leaderless_search = kept
                lab.beat(broker)
            elif kind == "isr" and not is_fenced:
                lab.alter_isrs(broker, chosen)
            elif kind == "fence":
                lab.beat(broker, wants_fence=True)
            elif kind == "leave" and not is_fenced:
                lab.beat(broker, wants_shutdown=True)
            elif kind == "restart" and is_fenced:
                lab.restart(broker, chosen.randrange(2, 200))
            elif kind == "fail":
                lab.beat(broker, offline_log_dirs=[directory(broker)])
            elif kind == "unclean":
                value = chosen.choice(("true", "false"))
                key = "unclean.leader.election.enable"
                lab.write(
                    records.Config(resource_type=2, resource_name=topic, name=key, value=value)
                )
    assert narrow > 60
