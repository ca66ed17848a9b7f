"""Answers that went wrong on their way, or at a node that is out of order.

Owns what a damaged answer looks like. `cluster` decides which answers are damaged, and the checks
know a `DamagedFetchResponse` from a good one; a node does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from kraft.raft.messages import UNKNOWN_SERVER_ERROR, FetchRequest, FetchResponse, Request

#: Of a batch: base offset, length, epoch, magic and the CRC itself lie before.
_CRC_COVERS_FROM = 21


class DamagedFetchResponse(FetchResponse):
    """A response whose last batch is not as its sender wrote it, to a fetch from this offset."""

    asked_offset: int = -1


def damaged(
    response: FetchResponse, request: Request, draw: Callable[[], float], counts: Counter[str]
) -> FetchResponse:
    """Flip a bit that the last batch's CRC covers, or cut that batch; TCP lets some through."""
    assert isinstance(response.records, (bytes, memoryview))
    assert type(request) is FetchRequest
    counts["damaged_records"] += 1
    records = bytearray(response.records)
    position, end = 0, 0
    while end < len(records):
        position = end
        end += 12 + int.from_bytes(records[position + 8 : position + 12], "big")
    if draw() < 0.5:
        covered = end - position - _CRC_COVERS_FROM
        records[position + _CRC_COVERS_FROM + int(draw() * covered)] ^= 1 << int(draw() * 8)
    else:
        # At least a byte is left of the batch: without any, nothing would be damaged.
        del records[position + 1 + int(draw() * (end - position - 1)) :]
    spoilt = DamagedFetchResponse(
        response.error,
        response.epoch,
        response.leader_id,
        response.leader_endpoints,
        response.high_watermark,
        response.log_start_offset,
        records=bytes(records),
    )
    spoilt.asked_offset = request.offset
    return spoilt


def failed(response: FetchResponse, counts: Counter[str]) -> FetchResponse:
    """Return what a node answers whose request handler has failed (Kafka's unexpected errors)."""
    counts["failed_answers"] += 1
    return FetchResponse(
        UNKNOWN_SERVER_ERROR, response.epoch, response.leader_id, response.leader_endpoints
    )
