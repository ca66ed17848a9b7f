"""Events and answers as lines of text that are the same in every run.

Owns the form of a trace: bytes as their length and checksum, no address, no order of a set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from zlib import crc32

from kraft.raft.node import Node
from kraft.raft.ready import Event, Ready
from kraft.raft.voters import VoterSet


def value(thing: object) -> str:
    """Any part of a message."""
    if isinstance(thing, bytes | bytearray | memoryview):
        return f"{len(thing)}b:{crc32(thing):08x}" if len(thing) != 16 else bytes(thing).hex()[-4:]
    if isinstance(thing, VoterSet):
        return "{" + ",".join(value(voter.key) for voter in thing) + "}"
    if is_dataclass(thing) and not isinstance(thing, type):
        inner = ",".join(
            f"{field.name}={value(getattr(thing, field.name))}"
            for field in fields(thing)
            if field.name not in ("cluster_id", "leader_endpoints", "endpoint", "endpoints")
        )
        return f"{type(thing).__name__}({inner})"
    if isinstance(thing, tuple):
        return "(" + ",".join(value(part) for part in thing) + ")"
    if isinstance(thing, float):
        return f"{thing:.3f}"
    return repr(thing)


def event(told: Event) -> str:
    return "timer" if told is None else value(told)


def ready(answer: Ready, node: Node) -> str:
    """What a step brought forth, and the node behind it."""
    log = node.log
    parts = [
        f"{node.role.name.lower()}@{node.epoch} leader {node.leader_id} "
        f"log {log.start_offset}-{log.durable_end_offset}-{log.end_offset} hw {log.high_watermark}"
    ]
    told: tuple[tuple[str, Sequence[object]], ...] = (
        ("write", answer.to_write),
        ("send", answer.to_send),
        ("appended", answer.appended),
    )
    for name, things in told:
        parts += [f"{name} {value(thing)}" for thing in things]
    if answer.committed is not None:
        parts.append(f"committed {answer.committed}")
    parts.append(f"sequence {answer.write_sequence}")
    return " | ".join(parts)
