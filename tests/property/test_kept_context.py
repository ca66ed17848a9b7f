"""The context that a cluster keeps for its decisions decides like a new one after any changes.

The changes are to brokers, settings, features and topics, and reverts and compactions.
"""

from __future__ import annotations

from collections.abc import Callable

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kraft import records
from kraft._core.bytes.batch import BatchBuilder, assign_offsets
from kraft.controller.decision import Records
from kraft.controller.state import DecisionSettings, election_context, usable_brokers
from kraft.image.replay import MetadataState
from kraft.records import Record, Uuid

BROKERS = range(5)
NAMES = ("a", "b", "c")
MIN_ISR, UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"


def directory(broker: int, number: int) -> Uuid:
    return Uuid(bytes((7, broker, number, 1)) * 4)


class KeptContext(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.cluster = MetadataState(journaling=True)
        self.offsets = [0]
        self.made = 0
        self.write(records.FeatureLevel(name="metadata.version", feature_level=30))
        for broker in BROKERS:
            self.write(self.registration(broker, 1, False))

    def registration(self, broker: int, directories: int, fenced: bool) -> Record:
        self.made += 1
        return records.RegisterBroker(
            broker_id=broker,
            incarnation_id=Uuid(bytes((broker, 1)) * 8),
            broker_epoch=self.made,
            fenced=fenced,
            log_dirs=[directory(broker, number) for number in range(directories)],
        )

    def write(self, *written: Record) -> None:
        batches = Records.of(written, 30).batches
        assign_offsets(batches, self.cluster.next_offset, 1)
        self.cluster.apply(batches)
        self.offsets.append(self.cluster.next_offset)

    @rule(broker=st.sampled_from(BROKERS), directories=st.integers(0, 2), fenced=st.booleans())
    def register(self, broker: int, directories: int, fenced: bool) -> None:
        self.write(self.registration(broker, directories, fenced))

    @rule(broker=st.sampled_from(BROKERS), fenced=st.sampled_from((-1, 0, 1)), stops=st.booleans())
    def change(self, broker: int, fenced: int, stops: bool) -> None:
        registration = self.cluster.state.brokers.get(broker)
        if registration is not None:
            self.write(
                records.BrokerRegistrationChange(
                    broker_id=broker,
                    broker_epoch=registration.epoch,
                    fenced=fenced,
                    in_controlled_shutdown=int(stops),
                )
            )

    @rule(broker=st.sampled_from(BROKERS))
    def unregister(self, broker: int) -> None:
        registration = self.cluster.state.brokers.get(broker)
        if registration is not None:
            self.write(records.UnregisterBroker(broker_id=broker, broker_epoch=registration.epoch))

    @rule(
        resource=st.sampled_from([(2, name) for name in NAMES] + [(4, ""), (4, "0"), (4, "1")]),
        setting=st.sampled_from(((MIN_ISR, "2"), (MIN_ISR, "3"), (UNCLEAN, "true"), ("x", "y"))),
        is_set=st.booleans(),
    )
    def configure(self, resource: tuple[int, str], setting: tuple[str, str], is_set: bool) -> None:
        # Also for topics that do not exist, as in old logs.
        self.write(
            records.Config(
                resource_type=resource[0],
                resource_name=resource[1],
                name=setting[0],
                value=setting[1] if is_set else None,
            )
        )

    @rule(level=st.integers(0, 1))
    def switch_elr(self, level: int) -> None:
        self.write(
            records.FeatureLevel(name="eligible.leader.replicas.version", feature_level=level)
        )

    @rule(
        name=st.sampled_from(NAMES),
        replicas=st.permutations(BROKERS).map(lambda all: all[:3]),
        isr=st.integers(0, 3),
        own=st.sampled_from((None, MIN_ISR, UNCLEAN)),
        directories=st.integers(0, 1),
    )
    def create(
        self, name: str, replicas: list[int], isr: int, own: str | None, directories: int
    ) -> None:
        if self.cluster.table.topic_number(name) >= 0:
            return
        self.made += 1
        topic_id = Uuid(self.made.to_bytes(16, "big"))
        written: list[Record] = [records.Topic(name=name, topic_id=topic_id)]
        if own is not None:
            value = "2" if own == MIN_ISR else "true"
            written.append(
                records.Config(resource_type=2, resource_name=name, name=own, value=value)
            )
        written.append(
            records.Partition(
                partition_id=0,
                topic_id=topic_id,
                replicas=replicas,
                isr=replicas[:isr],
                leader=replicas[0] if isr else -1,
                leader_epoch=0,
                partition_epoch=0,
                directories=[directory(broker, directories) for broker in replicas],
            )
        )
        self.write(*written)

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        number = self.cluster.table.topic_number(name)
        if number >= 0:
            self.write(records.RemoveTopic(topic_id=Uuid(self.cluster.table.topic_id_of(number))))

    @rule(back=st.integers(1, 6))
    def revert(self, back: int) -> None:
        reachable = [
            offset for offset in self.offsets if offset >= self.cluster.table.journal_start_offset
        ]
        offset = reachable[-min(back, len(reachable))]
        self.cluster.revert(offset)
        self.offsets = [known for known in self.offsets if known <= offset]

    @rule()
    def compact(self) -> None:
        self.cluster.forget(self.cluster.next_offset)
        if not self.cluster.table.journal_length:
            self.cluster.table.compact()

    @rule()
    def look(self) -> None:
        """Do nothing."""

    @invariant()
    def decisions_equal_those_of_a_new_context(self) -> None:
        if self.made % 3 == 0:
            return
        mine = self.decided()
        state = self.cluster.state
        kept, state.derived = state.derived, None
        assert mine == self.decided()
        state.derived = kept

    def decided(self) -> list[object]:
        settings = DecisionSettings(node_id=1)
        context = election_context(self.cluster, settings)
        found: list[object] = [
            tuple(usable_brokers(self.cluster)),
            context.metadata_version,
            context.is_elr_enabled,
        ]
        for broker in BROKERS:
            builder = BatchBuilder()
            context.remove_from_isr(builder, [broker])
            context.elect_leaderless(builder, broker)
            context.elect_unclean(builder)
            context.elect_preferred(builder)
            found.append(bytes(builder.finish()))
        builder = BatchBuilder()
        context.expand_isrs(builder)
        found.append(bytes(builder.finish()))
        return found


KeptContext.TestCase.settings = settings(max_examples=120, stateful_step_count=30, deadline=None)
test_the_kept_context = KeptContext.TestCase


def test_a_kept_context_knows_settings_that_are_older_than_their_topic() -> None:
    machine = KeptContext()
    machine.configure((2, "a"), (UNCLEAN, "true"), True)
    machine.decisions_equal_those_of_a_new_context()
    machine.create("a", [0, 1, 2], 0, None, 0)
    before = machine.cluster.next_offset
    decided = machine.decided()
    machine.decisions_equal_those_of_a_new_context()
    machine.revert(2)
    assert machine.cluster.next_offset < before
    machine.create("b", [0, 1, 2], 3, None, 0)
    machine.create("a", [0, 1, 2], 0, None, 0)
    machine.decisions_equal_those_of_a_new_context()
    assert machine.decided() != decided


def test_a_kept_context_is_updated_after_a_revert() -> None:
    machine = KeptContext()
    machine.create("a", [0, 1, 2], 0, None, 0)
    machine.decisions_equal_those_of_a_new_context()
    before = machine.decided()
    steps: list[Callable[[], None]] = [
        lambda: machine.configure((2, "a"), (UNCLEAN, "true"), True),
        lambda: machine.configure((4, ""), (UNCLEAN, "true"), True),
        lambda: machine.change(1, 1, False),
        lambda: machine.register(2, 2, True),
        lambda: machine.unregister(2),
        lambda: machine.switch_elr(1),
    ]
    for step in steps:
        step()
        assert machine.decided() != before
        machine.decisions_equal_those_of_a_new_context()
        machine.revert(2)
        assert machine.decided() == before
