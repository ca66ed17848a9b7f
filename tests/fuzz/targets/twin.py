"""``PartitionTable`` against the slow, obvious twin of the tests, with the same records.

Both accept the same records and then have the same state. Both ignore records of other types.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kraft import records
from kraft._core.bytes.batch_check import validate
from kraft._core.bytes.batch_records import iterate
from kraft._core.bytes.wire import Reader
from kraft._core.table.table import PartitionTable
from kraft.errors import CorruptRecordError, KraftError, UnsupportedVersionError
from kraft.records import Record, decode_value
from tests.fuzz import samples
from tests.reference.table_twin import RefusedError, State, TableTwin, plain

PREFIX = 1
HOLDS_BATCHES = True

# The longest list of a row of the table (``partition_codec.pxd``).
MAX_REPLICAS = 64

_TOPIC_TYPES = (records.Topic, records.RemoveTopic)
_PARTITION_TYPES = (records.Partition, records.PartitionChange)
_TABLE_KEYS = {made.schema.api_key for made in _TOPIC_TYPES + _PARTITION_TYPES}
# The table also decodes a NoOp, which changes nothing.
_NO_OP_KEY = records.NoOp.schema.api_key


def seeds() -> Iterator[bytes]:
    for number, log in enumerate(samples.small_logs()):
        yield bytes((number % 8,)) + log


def run(data: bytes) -> None:
    if not data:
        return
    buffer = data[1:]
    try:
        validate(buffer, verify_crc=False)
    except KraftError:
        return
    table = PartitionTable(stride=1 + data[0] % 8)
    try:
        table.apply(buffer, verify_crc=False)
        refusal = None
    except KraftError as error:
        refusal = error
    twin = TableTwin()
    reason = _replay(twin, buffer)
    if reason is not None:
        assert refusal is not None, f"the table accepts, the twin rejects: {reason!r}"
        return
    assert refusal is None, f"the twin accepts, the table rejects: {refusal!r}"
    said = plain(table)
    assert said["topics"] == twin.topics
    assert said["partitions"].keys() == twin.partitions.keys()
    for key, state in said["partitions"].items():
        assert state == _in_32_bits(twin.partitions[key]), key


def _replay(twin: TableTwin, buffer: bytes) -> Exception | None:
    """Return why the twin rejects the records, or None if it accepts them."""
    try:
        for record in _table_records(buffer):
            if any(isinstance(each, list) and len(each) > MAX_REPLICAS for each in _fields(record)):
                return UnsupportedVersionError("a list is longer than a row can be")
            twin.apply(record)
    except (KraftError, RefusedError) as reason:
        return reason
    return None


def _fields(record: Record) -> Iterable[object]:
    """Return the fields without the directories: their count must be that of the replicas."""
    return (value for name, value in record.to_dict().items() if name != "directories")


def _table_records(buffer: bytes) -> Iterator[Record]:
    """Return the records of the table's types; raise for a malformed one."""
    for batch in iterate(buffer, verify_crc=False):
        if batch.codec != "none":
            raise CorruptRecordError("metadata is not compressed")
        for raw in batch:
            if batch.is_control:
                if len(raw.key or b"") != 4 or raw.value is None:
                    raise CorruptRecordError("a control record breaks its layout")
                continue
            if raw.value is None:
                raise CorruptRecordError("a metadata record has no value")
            try:
                made = decode_value(raw.value)
            except KraftError as error:
                # A NoOp of a later version is passed on like any other record.
                key = _api_key(raw.value)
                if key in _TABLE_KEYS or (
                    key == _NO_OP_KEY and not isinstance(error, UnsupportedVersionError)
                ):
                    raise
                continue
            if isinstance(made, _TOPIC_TYPES + _PARTITION_TYPES):
                yield made


def _api_key(value: bytes) -> int:
    """Return the key in the frame of a rejected value; raise if the frame is malformed."""
    reader = Reader(value)
    if reader.read_uvarint() != 1:
        raise CorruptRecordError("an unknown version of the frame")
    key, version = reader.read_uvarint(), reader.read_uvarint()
    if version > 0x7FFF:
        raise CorruptRecordError("no version is as large")
    return key


def _in_32_bits(state: State) -> State:
    """Return the state with 32-bit epochs like Java's and the table's; the twin's are unbounded."""
    epochs = {
        name: (state[name] + (1 << 31)) % (1 << 32) - (1 << 31)
        for name in ("leader_epoch", "partition_epoch")
    }
    return {**state, **epochs}
