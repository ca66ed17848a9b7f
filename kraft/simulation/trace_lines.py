"""Trace lines: events and their results as text that is the same in every run.

Bytes appear as length and checksum; addresses and the order of sets never appear.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args
from zlib import crc32

from kraft.raft.interface import Appended, Event, RaftReady, Send, Write
from kraft.raft.node import Node
from kraft.raft.rpc import Request, Response
from kraft.raft.voters import VoterSet

#: Classes that appear with the names of their fields, whether tuples or dataclasses.
_NAMED = (*get_args(Event | Write | Send | Request | Response), Appended)
#: Fields that appear nowhere.
_HIDDEN = ("cluster_id", "leader_endpoints", "endpoint", "endpoints")


def value(thing: Any) -> str:
    """Format any part of a message."""
    if isinstance(thing, bytes | bytearray | memoryview):
        return f"{len(thing)}b:{crc32(thing):08x}" if len(thing) != 16 else bytes(thing).hex()[-4:]
    if isinstance(thing, VoterSet):
        return "{" + ",".join(value(voter.key) for voter in thing) + "}"
    if thing is not None and isinstance(thing, _NAMED):
        inner = ",".join(
            f"{name}={value(getattr(thing, name))}"
            for name in type(thing).__match_args__
            if name not in _HIDDEN
        )
        return f"{type(thing).__name__}({inner})"
    if isinstance(thing, tuple):
        return "(" + ",".join(value(part) for part in thing) + ")"
    if isinstance(thing, float):
        return f"{thing:.3f}"
    return repr(thing)


def event(event: Event) -> str:
    return "timer" if event is None else value(event)


def ready(answer: RaftReady, node: Node) -> str:
    """Format the result of a step and the state of the node after it."""
    log = node.log
    parts = [
        f"{node.role.name.lower()}@{node.epoch} leader {node.leader_id} "
        f"log {log.start_offset}-{log.durable_end_offset}-{log.end_offset} hw {log.high_watermark}"
    ]
    lists: tuple[tuple[str, Sequence[object]], ...] = (
        ("write", answer.to_write),
        ("send", answer.to_send),
        ("appended", answer.appended),
    )
    for name, things in lists:
        parts += [f"{name} {value(thing)}" for thing in things]
    if answer.committed is not None:
        parts.append(f"committed {answer.committed}")
    parts.append(f"sequence {answer.write_sequence}")
    return " | ".join(parts)
