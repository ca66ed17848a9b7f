"""Bodies of requests and responses of every API and version, by their schemas.

The first two bytes choose the body. Decoded bytes encode to a body that decodes to the same
message; in parts it has the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kraft._core.codec.metadata_codec import Message, Struct
from kraft.errors import KraftError
from kraft.protocol.apis import BROKER_RPCS, RPCS
from kraft.records import Uuid

PREFIX = 2
HOLDS_BATCHES = False

BODIES: list[tuple[type[Message], int]] = [
    (kind, version)
    for rpc in (*RPCS, *BROKER_RPCS)
    for kind in (rpc.request, rpc.response)
    if kind is not None
    for version in range(rpc.api.lowest, rpc.api.highest + 1)
]

_SAMPLES: dict[str, Any] = {
    "bool": True,
    "float64": 1.5,
    "uuid": Uuid(range(16)),
    "string": "text",
    "bytes": b"bytes",
    "records": b"records",
}


def seeds() -> Iterator[bytes]:
    for number, (kind, version) in enumerate(BODIES):
        for message in (kind(), _filled(kind, version)):
            yield number.to_bytes(2, "big") + message.encode(version)


def _filled(kind: type[Struct], version: int) -> Any:
    """Return a struct with a value in every field and one element in every array."""
    values: dict[str, Any] = {}
    for name, spec in kind.schema.specs.items():
        if spec.since <= version <= spec.until:
            one = _SAMPLES.get(spec.kind, 7) if spec.of is None else _filled(spec.of, version)
            values[name] = [one] if spec.is_array else one
    return kind(**values)


def run(data: bytes) -> None:
    if len(data) < PREFIX:
        return
    kind, version = BODIES[int.from_bytes(data[:PREFIX], "big") % len(BODIES)]
    try:
        message = kind.decode(data, version, PREFIX)
    except KraftError:
        return
    body = message.encode(version)
    again = kind.decode(body, version)
    # NaN differs from itself; its bytes do not.
    assert again.encode(version) == body
    parts, size = again.encode_segments(version)
    assert b"".join(parts) == body  # type: ignore[arg-type]
    assert size == len(body)
    repr(message)
