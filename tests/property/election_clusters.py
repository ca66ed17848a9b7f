"""Generated clusters for elections, beside the slow twin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from hypothesis import settings
from hypothesis import strategies as st

from kraft import records
from kraft._core.bytes.batch import BatchBuilder, assign_offsets
from kraft._core.bytes.batch_records import iterate
from kraft._core.decide.election import ElectionContext
from kraft._core.table.table import PartitionTable
from kraft.records import Uuid
from kraft.records.batches import encode_records
from tests.reference import election_twin as twin
from tests.reference.election_twin import Broker, Partition, Rules

# Some ids share buckets of a hash set: 0 with 16, 1 with 17, 2 with 65538.
BROKER_IDS = (0, 1, 2, 3, 4, 5, 16, 17, 65538)
UNREGISTERED = 99
DIRECTORIES = {
    id: [Uuid(bytes((id % 251, 7, n)) * 5 + b"d") for n in range(3)] for id in BROKER_IDS
}
TOPIC_IDS = (Uuid(b"a" * 16), Uuid(b"b" * 16))


@st.composite
def brokers(draw: st.DrawFn) -> Broker:
    id = draw(st.sampled_from(BROKER_IDS))
    return Broker(
        id,
        fenced=draw(st.sampled_from((False, False, False, True))),
        in_controlled_shutdown=draw(st.sampled_from((False, False, False, True))),
        log_dirs=tuple(DIRECTORIES[id][: draw(st.sampled_from((0, 1, 1, 2)))]),
    )


@st.composite
def partitions(draw: st.DrawFn) -> Partition:
    replicas = tuple(
        draw(
            st.lists(
                st.sampled_from((*BROKER_IDS, UNREGISTERED)), min_size=1, max_size=6, unique=True
            )
        )
    )
    subset = st.lists(st.sampled_from(replicas), unique=True, max_size=len(replicas)).map(tuple)
    isr = draw(st.one_of(st.just(replicas), subset))
    moving = draw(st.sampled_from((False, False, True)))
    removing = draw(subset) if moving else ()
    adding = tuple(r for r in draw(subset) if r not in removing) if moving else ()
    elr = tuple(r for r in draw(subset) if r not in isr)
    members = st.sampled_from((*BROKER_IDS, UNREGISTERED))
    return Partition(
        replicas=replicas,
        isr=isr,
        leader=draw(st.sampled_from((-1, *(isr or (-1,)), replicas[0]))),
        directories=tuple(
            draw(
                st.sampled_from(
                    (twin.MIGRATING, twin.UNASSIGNED, twin.LOST, *DIRECTORIES.get(r, ())[:2])
                )
            )
            for r in replicas
        ),
        removing=removing,
        adding=adding,
        elr=elr,
        last_known_elr=tuple(draw(st.lists(members, max_size=2, unique=True))),
        leader_epoch=draw(st.integers(0, 9)),
        partition_epoch=draw(st.integers(0, 9)),
        recovering=draw(st.booleans()),
    )


@dataclass
class Cluster:
    rules: Rules
    partitions: list[Partition]
    min_isr: int
    topic_min_isr: dict[int, int]
    topic_unclean: dict[int, bool]

    def __post_init__(self) -> None:
        counts = [0, 0]
        placed = []
        for index, partition in enumerate(self.partitions):
            topic = index % 2
            placed.append(replace(partition, topic_id=TOPIC_IDS[topic], partition_id=counts[topic]))
            counts[topic] += 1
        self.partitions = placed

    def allows_unclean(self, partition: Partition) -> bool:
        return self.topic_unclean.get(TOPIC_IDS.index(partition.topic_id), False)

    def effective_min_isr(self, partition: Partition) -> int:
        topic = TOPIC_IDS.index(partition.topic_id)
        first = next(p for p in self.partitions if p.topic_id == partition.topic_id)
        return min(self.topic_min_isr.get(topic, self.min_isr), len(first.replicas))

    def switches(self, partition: Partition) -> dict[str, int]:
        return {
            "allows_unclean": self.allows_unclean(partition),
            "min_isr": self.effective_min_isr(partition),
        }

    def table(self) -> PartitionTable:
        rows: list[records.Record] = [
            records.Topic(name=f"topic-{number}", topic_id=id)
            for number, id in enumerate(TOPIC_IDS)
        ]
        for partition in self.partitions:
            rows.append(
                records.Partition(
                    partition_id=partition.partition_id,
                    topic_id=partition.topic_id,
                    replicas=list(partition.replicas),
                    isr=list(partition.isr),
                    removing_replicas=list(partition.removing),
                    adding_replicas=list(partition.adding),
                    leader=partition.leader,
                    leader_recovery_state=int(partition.recovering),
                    leader_epoch=partition.leader_epoch,
                    partition_epoch=partition.partition_epoch,
                    directories=list(partition.directories),
                    eligible_leader_replicas=list(partition.elr) or None,
                    last_known_elr=list(partition.last_known_elr) or None,
                    version=2,
                )
            )
        table = PartitionTable()
        table.apply(encode_records(rows))
        return table

    def context(self, table: PartitionTable) -> ElectionContext:
        return ElectionContext(
            table,
            self.rules.brokers.values(),
            metadata_version=self.rules.metadata_version,
            is_elr_enabled=self.rules.is_elr_enabled,
            min_isr=self.min_isr,
            topic_min_isr=self.topic_min_isr,
            topic_unclean=self.topic_unclean,
        )


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    registered = draw(st.lists(brokers(), max_size=9, unique_by=lambda broker: broker.id))
    is_elr_enabled = draw(st.booleans())
    level = (
        draw(st.sampled_from((23, 30)))
        if is_elr_enabled
        else draw(st.sampled_from((7, 11, 12, 17, 30)))
    )
    drawn = draw(st.lists(partitions(), min_size=1, max_size=6))
    if level < 23:
        # No record of such a level can have an ELR.
        drawn = [replace(partition, elr=(), last_known_elr=()) for partition in drawn]
    if level < 17:
        drawn = [
            replace(partition, directories=(twin.MIGRATING,) * len(partition.replicas))
            for partition in drawn
        ]
        registered = [replace(broker, log_dirs=()) for broker in registered]
    return Cluster(
        Rules({broker.id: broker for broker in registered}, level, is_elr_enabled),
        drawn,
        draw(st.integers(1, 4)),
        draw(st.dictionaries(st.integers(0, 1), st.integers(1, 4), max_size=1)),
        draw(st.dictionaries(st.integers(0, 1), st.booleans(), max_size=2)),
    )


def decoded(batches: memoryview) -> list[records.Record]:
    return [records.decode_value(record.value) for batch in iterate(batches) for record in batch]


def check(
    cluster: Cluster,
    decide: Callable[[ElectionContext, BatchBuilder], object],
    expect: Callable[[Partition], records.PartitionChange | None],
) -> None:
    """Check that the kernel's records and the state after them are the twin's."""
    table = cluster.table()
    builder = BatchBuilder()
    decide(cluster.context(table), builder)
    batches = builder.finish()
    assert_states(table, cluster.partitions)
    expected = {
        (partition.topic_id, partition.partition_id): change
        for partition in cluster.partitions
        if (change := expect(partition)) is not None
    }
    written = decoded(batches)
    assert {(r.topic_id, r.partition_id): r for r in written} == expected
    assert len(written) == len(expected)
    if len(batches):
        assign_offsets(batches, 1_000, 1)
        table.apply(batches)
    after = [
        partition.after(expected[key])
        if (key := (partition.topic_id, partition.partition_id)) in expected
        else partition
        for partition in cluster.partitions
    ]
    assert_states(table, after)


def assert_states(table: PartitionTable, partitions: list[Partition]) -> None:
    for partition in partitions:
        topic = TOPIC_IDS.index(partition.topic_id)
        state = table.state_of(table.row_of(topic, partition.partition_id))
        state["directories"] = [table.directory_id(number) for number in state["directories"]]
        assert state == {
            "leader": partition.leader,
            "leader_epoch": partition.leader_epoch,
            "partition_epoch": partition.partition_epoch,
            "leader_recovery_state": int(partition.recovering),
            "replicas": list(partition.replicas),
            "directories": list(partition.directories),
            "isr": list(partition.isr),
            "elr": list(partition.elr),
            "last_known_elr": list(partition.last_known_elr),
            "removing_replicas": list(partition.removing),
            "adding_replicas": list(partition.adding),
        }


EXAMPLES = settings(max_examples=40, deadline=None)
ANY_BROKER = st.sampled_from((*BROKER_IDS, UNREGISTERED))
