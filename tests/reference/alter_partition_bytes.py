"""Bodies of AlterPartition, written byte by byte."""

from __future__ import annotations

import struct

from kraft.controller.topics.isr_changes import (
    IsrChange,
)


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes((*out, value))


def encoded(
    broker: int, epoch: int, asked: list[IsrChange], version: int, tags: bytes = b"\0"
) -> bytes:
    """Return the body of a request with each change under a separate topic."""
    out = struct.pack(">iq", broker, epoch) + uvarint(len(asked) + 1)
    for change in asked:
        out += bytes(change.topic_id) + uvarint(2)
        out += struct.pack(">ii", change.partition, change.leader_epoch)
        out += uvarint(len(change.isr) + 1)
        for member, member_epoch in change.isr.items():
            out += struct.pack(">i", member)
            if version >= 3:
                out += struct.pack(">q", member_epoch) + tags
        out += struct.pack(">bi", change.is_recovering, change.partition_epoch)
        out += tags + tags
    return out + tags
