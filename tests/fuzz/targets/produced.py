"""Produced batches: validated by the rules of a topic, and read again.

The first byte chooses the rules. What is accepted must be one valid batch with dense offsets and as
many records as promised; a rejected buffer must be unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator

from kraft._core.bytes.batch import assign_offsets, deflate
from kraft._core.bytes.batch_check import validate
from kraft._core.bytes.produced_batch import check_produced
from kraft.errors import KraftError, RejectedBatchError
from tests.fuzz import samples

PREFIX = 1
HOLDS_BATCHES = True

# The inflated size of a compressed batch: far below the fuzzer's memory limit.
BUDGET = 1 << 20
NOW_MS = 1_750_000_000_000

_APPEND_TIME = 1
_KEYS_REQUIRED = 2
_ANY_TIME = 4


def seeds() -> Iterator[bytes]:
    for number, whole in enumerate(samples.log_runs()):
        size = int.from_bytes(whole[8:12], "big") + 12
        batch = bytes(8) + whole[8:size]
        yield bytes((_ANY_TIME | number % 4 | number % 6 << 3,)) + batch
        yield bytes((_ANY_TIME,)) + bytes(deflate(batch, 1 + number % 4))


def run(data: bytes) -> None:
    if not data:
        return
    flags, sent = data[0], data[1:]
    buffer = bytearray(sent)
    try:
        batch = check_produced(
            buffer,
            append_time=bool(flags & _APPEND_TIME),
            now_ms=NOW_MS,
            before_max_ms=2**63 - 1 if flags & _ANY_TIME else 3_600_000,
            after_max_ms=2**63 - 1 if flags & _ANY_TIME else 3_600_000,
            max_size=1 << 20,
            keys_required=bool(flags & _KEYS_REQUIRED),
            codec=(flags >> 3) % 6 - 1,
            budget=BUDGET,
        )
    except RejectedBatchError:
        assert buffer == sent, "a rejected buffer was changed"
        return
    except KraftError as error:
        raise AssertionError("the response needs a RejectedBatchError") from error
    end = assign_offsets(batch.data, 1000, 3)
    assert end == 1000 + batch.record_count
    # A batch that was built again may be larger than what it was inflated from.
    table = validate(batch.data, dense=True, budget=2 * BUDGET)
    assert len(table) == 1
    assert table.record_counts.tolist() == [batch.record_count]
    assert table.attributes[0] & 7 == batch.codec
    assert bool(table.attributes[0] & 8) == bool(flags & _APPEND_TIME)
    if not sent[22] & 0x08 or batch.is_rebuilt:
        assert table.max_timestamps.tolist() == [batch.max_timestamp] or batch.max_timestamp < 0
