"""Damaged responses: fetched records with a flipped bit or a lost end, and failed requests.

`cluster` decides which responses are damaged. The checks recognise a `DamagedFetchResponse`; a node
cannot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from kraft.errors import UNKNOWN_SERVER_ERROR
from kraft.raft.rpc import FetchRequest, FetchResponse, Request

#: The position in a batch after base offset, length, epoch, magic and the CRC itself.
_CRC_COVERS_FROM = 21


class DamagedFetchResponse(FetchResponse):
    """A response whose last batch is damaged, to a fetch from ``asked_offset``."""

    asked_offset: int = -1


def damaged(
    response: FetchResponse, request: Request, draw: Callable[[], float], counts: Counter[str]
) -> FetchResponse:
    """Flip a bit that the last batch's CRC covers, or cut that batch, which TCP may not detect."""
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
        # At least one byte of the batch remains: without it the rest would be undamaged.
        del records[position + 1 + int(draw() * (end - position - 1)) :]
    damaged_response = DamagedFetchResponse(
        response.error,
        response.epoch,
        response.leader_id,
        response.leader_endpoints,
        response.high_watermark,
        response.log_start_offset,
        records=bytes(records),
    )
    damaged_response.asked_offset = request.offset
    return damaged_response


def failed(response: FetchResponse, counts: Counter[str]) -> FetchResponse:
    """Return the response of a node whose request handler failed (Kafka's unexpected errors)."""
    counts["failed_answers"] += 1
    return FetchResponse(
        UNKNOWN_SERVER_ERROR, response.epoch, response.leader_id, response.leader_endpoints
    )
