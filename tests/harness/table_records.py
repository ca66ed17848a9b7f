"""Random logs of topics and partitions, dense enough that records refer to earlier ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hypothesis import strategies as st

from kraft import records
from kraft._core.bytes.batch import BatchBuilder
from kraft._core.table.table import PartitionTable
from kraft.records import Record, Uuid, decode_value
from kraft.records.values import encode_value

BROKERS = st.integers(0, 9)
TOPIC_IDS = st.sampled_from([Uuid(bytes([n]) * 16) for n in (1, 2, 3, 4)])
NAMES = st.sampled_from(["a", "b", "orders-é"])
# In order, with gaps, and far apart.
PARTITION_IDS = st.integers(0, 5) | st.sampled_from([17, 1000, 2**31 - 1])
DIRECTORIES = st.sampled_from([Uuid(n.to_bytes(16, "big")) for n in (0, 1, 2, 77, 78, 2**100)])
UNKNOWN_TAGS = st.sampled_from([None, None, None, {100: b"later"}, {50: b"", 51: b"x" * 9}])
EPOCHS = st.integers(-1, 1000)
RECOVERY = st.sampled_from([0, 0, 1])
FEW = st.lists(BROKERS, max_size=4)
MANY = st.integers(5, 32).map(lambda count: list(range(100, 100 + count)))
REPLICAS = st.one_of(st.lists(BROKERS, min_size=1, max_size=4, unique=True), FEW, MANY)


@st.composite
def members(draw: st.DrawFn, replicas: list[int]) -> list[int]:
    """Return some of the replicas in some order, and sometimes another broker."""
    chosen = list(draw(st.permutations(replicas)))[: draw(st.integers(0, len(replicas)))]
    if draw(st.integers(0, 7)) == 7:
        chosen.append(draw(BROKERS))
    return chosen


@st.composite
def directories_of(draw: st.DrawFn, replicas: list[int]) -> list[Uuid]:
    count = len(replicas) if draw(st.booleans()) else 0
    return draw(st.lists(DIRECTORIES, min_size=count, max_size=count))


@st.composite
def partitions(draw: st.DrawFn) -> Record:
    version = draw(st.integers(0, 2))
    replicas = draw(REPLICAS)
    moving = draw(st.integers(0, 4)) == 4
    with_elr = version == 2 and draw(st.booleans())
    return records.Partition(
        partition_id=draw(PARTITION_IDS),
        topic_id=draw(TOPIC_IDS),
        replicas=replicas,
        isr=draw(members(replicas)),
        removing_replicas=draw(FEW) if moving else [],
        adding_replicas=draw(FEW) if moving else [],
        leader=draw(st.integers(-1, 9)),
        leader_recovery_state=draw(RECOVERY),
        leader_epoch=draw(EPOCHS),
        partition_epoch=draw(EPOCHS),
        directories=draw(directories_of(replicas)) if version >= 1 else [],
        eligible_leader_replicas=draw(members(replicas)) if with_elr else None,
        last_known_elr=draw(members(replicas)) if with_elr else None,
        unknown_tagged_fields=draw(UNKNOWN_TAGS),
        version=version,
    )


def maybe(values: st.SearchStrategy[list[int]]) -> st.SearchStrategy[list[int] | None]:
    return st.none() | values


@st.composite
def changes(draw: st.DrawFn) -> Record:
    version = draw(st.integers(0, 2))
    replicas = draw(st.one_of(st.none(), st.none(), st.none(), REPLICAS))
    directories = None
    if version >= 1 and draw(st.integers(0, 3)) == 3:
        directories = draw(
            st.lists(DIRECTORIES, max_size=4) if replicas is None else directories_of(replicas)
        )
    moving = draw(st.integers(0, 4)) == 4
    with_elr = version == 2 and draw(st.booleans())
    return records.PartitionChange(
        partition_id=draw(PARTITION_IDS),
        topic_id=draw(TOPIC_IDS),
        isr=draw(maybe(FEW)),
        leader=draw(st.integers(-2, 9)),
        replicas=replicas,
        removing_replicas=draw(maybe(FEW)) if moving else None,
        adding_replicas=draw(maybe(FEW)) if moving else None,
        leader_recovery_state=draw(st.sampled_from([-1, -1, 0, 1])),
        directories=directories,
        eligible_leader_replicas=draw(maybe(FEW)) if with_elr else None,
        last_known_elr=draw(maybe(FEW)) if with_elr else None,
        unknown_tagged_fields=draw(UNKNOWN_TAGS),
        version=version,
    )


TOPICS = st.builds(records.Topic, name=NAMES, topic_id=TOPIC_IDS)
RECORDS: st.SearchStrategy[Record] = st.one_of(
    partitions(),
    partitions(),
    partitions(),
    changes(),
    changes(),
    changes(),
    TOPICS,
    st.builds(records.RemoveTopic, topic_id=TOPIC_IDS),
    st.builds(records.ClearElr, topic_name=NAMES | st.just("")),
    st.just(records.NoOp()),
)
# Two topics at first, so that most records find one.
LOGS: st.SearchStrategy[list[Record]] = st.lists(RECORDS, max_size=40).map(
    lambda log: [
        records.Topic(name="a", topic_id=Uuid(b"\1" * 16)),
        records.Topic(name="b", topic_id=Uuid(b"\2" * 16)),
        *log,
    ]
)


def batch_of(log: Iterable[Record], base_offset: int = 0) -> memoryview:
    """Return the records in one batch, at consecutive offsets."""
    builder = BatchBuilder(base_offset, 1)
    for record in log:
        builder.append(encode_value(record))
    return builder.finish()


def batches_of(log: list[Record], sizes: Iterable[int]) -> Iterator[tuple[int, memoryview]]:
    """Yield the log in batches of these sizes (the rest in one batch): next offset and bytes."""
    first = 0
    for size in [*sizes, len(log)]:
        if first < len(log):
            some = log[first : first + size]
            yield first + len(some), batch_of(some, first)
            first += len(some)


def apply(table: PartitionTable, batches: memoryview | bytes, *, start_offset: int = 0) -> int:
    """Apply batches whose only records of other types are ClearElr."""

    def clear_elr(offset: int, value: bytes) -> None:
        record = decode_value(value)
        assert isinstance(record, records.ClearElr)
        table.clear_elr(record.topic_name or None, offset)

    return table.apply(batches, on_record=clear_elr, start_offset=start_offset)
