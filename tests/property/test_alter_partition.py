"""AlterPartition as bytes against its typed form, with valid, late and invalid requests.

The clusters are in every state.
"""

from __future__ import annotations

import struct

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kraft import records
from kraft._core.bytes.batch import assign_offsets
from kraft.controller.decision import Records
from kraft.controller.state import DecisionSettings
from kraft.controller.topics.isr_changes import (
    EncodedAlterPartition,
    IsrChange,
    PartitionAnswer,
    alter_partition,
)
from kraft.errors import KraftError
from kraft.image.replay import MetadataState
from kraft.records import Record, Uuid
from tests.reference.alter_partition_bytes import encoded, uvarint

TOPICS = (Uuid(b"a" * 16), Uuid(b"b" * 16))
UNKNOWN = Uuid(b"c" * 16)
BROKERS = range(12)
DIRECTORIES = [Uuid(bytes((9, broker, 1, 1)) * 4) for broker in BROKERS]
LOST = Uuid(bytes(15) + b"\x02")
NO_TAGS, ONE_TAG = b"\0", b"\1\7\2xy"


def cluster_of(*written: Record) -> MetadataState:
    cluster = MetadataState(journaling=True)
    apply(cluster, Records.of(written, 30))
    return cluster


def apply(cluster: MetadataState, written: Records) -> None:
    if len(written):
        batches = memoryview(bytearray(written.batches))
        assign_offsets(batches, cluster.next_offset, 1)
        cluster.apply(batches)


@st.composite
def partitions(draw: st.DrawFn, topic: Uuid, id: int, level: int) -> records.Partition:
    replicas = draw(
        st.lists(st.sampled_from(BROKERS), min_size=1, max_size=10, unique=True)
        | st.lists(st.sampled_from(BROKERS), min_size=3, max_size=3, unique=True)
    )
    isr = draw(st.lists(st.sampled_from(replicas), min_size=1, unique=True))
    is_moving = draw(st.sampled_from((False, False, False, True)))
    removing = draw(st.lists(st.sampled_from(replicas), unique=True)) if is_moving else []
    adding = [broker for broker in replicas if is_moving and broker not in removing][-1:]
    outside = [broker for broker in replicas if broker not in isr]
    elr = draw(st.sampled_from(([], [], outside[:1])))
    # Before 3.7-IV2 no record has directories, so a record could not keep one for each replica.
    has_directories = level >= 17
    return records.Partition(
        partition_id=id,
        topic_id=topic,
        replicas=replicas,
        isr=isr,
        removing_replicas=removing,
        adding_replicas=adding,
        leader=draw(st.sampled_from((isr[0], isr[0], 0))),
        leader_recovery_state=draw(st.sampled_from((0, 0, 1))),
        leader_epoch=draw(st.sampled_from((3, 3, 4))),
        partition_epoch=draw(st.sampled_from((5, 5, 6))),
        directories=[
            draw(st.sampled_from((DIRECTORIES[broker],) * 5 + (LOST,))) for broker in replicas
        ]
        if has_directories
        else [],
        eligible_leader_replicas=elr or None,
        version=2 if has_directories else 0,
    )


@st.composite
def clusters(draw: st.DrawFn) -> MetadataState:
    level = draw(st.sampled_from((11, 17, 23, 30)))
    elr = level >= 23 and draw(st.booleans())
    written: list[Record] = [
        records.FeatureLevel(name="metadata.version", feature_level=level),
    ]
    if elr:
        written.append(
            records.FeatureLevel(name="eligible.leader.replicas.version", feature_level=1)
        )
    for broker in BROKERS:
        fate = draw(st.sampled_from((*("active",) * 6, "fenced", "stopping", "absent")))
        if fate != "absent":
            written.append(
                records.RegisterBroker(
                    broker_id=broker,
                    incarnation_id=Uuid(bytes((broker, 1)) * 8),
                    broker_epoch=100 + broker,
                    fenced=fate == "fenced",
                    in_controlled_shutdown=fate == "stopping",
                    log_dirs=[DIRECTORIES[broker]],
                )
            )
    for number, topic in enumerate(TOPICS):
        written.append(records.Topic(name=f"t{number}", topic_id=topic))
        written += [draw(partitions(topic, id, level)) for id in range(draw(st.integers(1, 4)))]
    written.append(
        records.Config(
            resource_type=2,
            resource_name="t0",
            name=draw(st.sampled_from(("min.insync.replicas", "unclean.leader.election.enable"))),
            value=draw(st.sampled_from(("1", "2"))),
        )
    )
    return cluster_of(*written)


@st.composite
def changes(draw: st.DrawFn, cluster: MetadataState, broker: int, with_epochs: bool) -> IsrChange:
    topic = draw(st.sampled_from((*TOPICS * 4, UNKNOWN)))
    partition = draw(st.integers(0, 4))
    number = cluster.table.topic_number_by_id(topic)
    row = cluster.table.row_of(number, partition) if number >= 0 else -1
    state = cluster.table.state_of(max(row, 0))
    replicas = state["replicas"]
    whole = [member for member in replicas if member in cluster.state.brokers]
    isr = draw(
        st.permutations(replicas)
        | st.just(state["isr"])
        | st.just(whole)
        | st.lists(st.sampled_from([*replicas, 99]), unique=True)
    )
    epochs = {}
    for member in isr:
        registration = cluster.state.brokers.get(member)
        known = registration.epoch if registration is not None else 7
        epochs[member] = draw(st.sampled_from((known, known, -1, 8))) if with_epochs else -1
    return IsrChange(
        topic,
        partition,
        state["leader_epoch"] + draw(st.sampled_from((0,) * 8 + (-1, 1))),
        state["partition_epoch"] + draw(st.sampled_from((0,) * 8 + (-1, 1))),
        epochs,
        is_recovering=draw(st.sampled_from((False,) * 5 + (True,))),
    )


def expected(asked: list[IsrChange], answers: list[PartitionAnswer | KraftError]) -> bytes:
    out = struct.pack(">ih", 0, 0) + uvarint(len(asked) + 1)
    for change, answer in zip(asked, answers, strict=True):
        out += bytes(change.topic_id) + uvarint(2)
        if isinstance(answer, KraftError):
            out += struct.pack(">ihii", change.partition, answer.kafka_code, 0, 0)
            out += uvarint(1) + struct.pack(">bi", 0, 0)
        else:
            out += struct.pack(">ihii", change.partition, 0, answer.leader, answer.leader_epoch)
            out += uvarint(len(answer.isr) + 1)
            out += b"".join(struct.pack(">i", member) for member in answer.isr)
            out += struct.pack(">bi", answer.leader_recovery_state, answer.partition_epoch)
        out += b"\0\0"
    return out + b"\0"


@settings(max_examples=400)
@given(data=st.data(), version=st.sampled_from((2, 3)), tags=st.sampled_from((NO_TAGS, ONE_TAG)))
def test_the_bytes_equal_those_of_the_typed_form(
    data: st.DataObject, version: int, tags: bytes
) -> None:
    cluster = data.draw(clusters())
    leaders = [int(leader) for leader in cluster.table.column("leader")]
    registered = [leader for leader in leaders if leader in cluster.state.brokers]
    assume(registered)
    broker = data.draw(st.sampled_from(registered))
    epoch = cluster.state.brokers[broker].epoch
    asked = data.draw(
        st.lists(
            changes(cluster, broker, version >= 3),
            min_size=1,
            max_size=6,
            unique_by=lambda change: (change.topic_id, change.partition),
        )
    )
    minimum = DecisionSettings(min_insync_replicas=data.draw(st.integers(1, 3)))
    typed = alter_partition(cluster, broker, epoch, asked, minimum)
    decision = EncodedAlterPartition(encoded(broker, epoch, asked, version, tags), version).decide(
        cluster, minimum
    )
    assert decision.response == expected(asked, list(typed.response.values()))
    assert bytes(decision.records.batches) == bytes(typed.records.batches)
    apply(cluster, decision.records)
