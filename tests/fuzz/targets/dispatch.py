"""The bytes of one connection to the listener of a controller: framing, decoding, decisions.

A real node answers them (`tests.fuzz.served_node`), so that a request reaches the controller and
the log. A node is replaced after `_INPUTS_OF_A_NODE` inputs, because the state grows, and where
requests have taken its leadership for good.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.fuzz.scratch import scratch
from tests.fuzz.served_node import ServedNode
from tests.reference.frame_mutations import mutated_stream
from tests.reference.request_frames import ALL, FrameWriter

PREFIX = 0
HOLDS_BATCHES = False

_INPUTS_OF_A_NODE = 5000
_INPUTS_OF_A_CHECK = 500
_SEEDS_OF_A_VERSION = 2
# Sanitizers and coverage make a callback up to thirty times slower; releases may take a second.
_LONGEST_BLOCK_S = 10.0


class _Nodes:
    """The node that answers inputs; one at a time."""

    def __init__(self) -> None:
        self._node: ServedNode | None = None
        self._count = 0
        self._frames: list[bytes] = []

    def present(self) -> ServedNode:
        self._count += 1
        if self._node is not None:
            is_old = self._count > _INPUTS_OF_A_NODE
            is_checked = self._count % _INPUTS_OF_A_CHECK == 0
            if is_old or (is_checked and not self._node.is_healthy()):
                self.close()
        if self._node is None:
            self._node = ServedNode(scratch("node"), longest_block_s=_LONGEST_BLOCK_S)
            self._node.__enter__()
            self._count = 0
        return self._node

    def frames(self) -> list[bytes]:
        """Return valid requests, to be mixed into others."""
        if not self._frames:
            writer = FrameWriter(self.present().vocabulary, random.Random(1))
            self._frames = [writer.frame(key, version) for key, version in ALL]
        return self._frames

    def close(self) -> None:
        node, self._node = self._node, None
        if node is not None:
            node.__exit__(None, None, None)


_nodes = _Nodes()
close = _nodes.close


def run(data: bytes) -> None:
    _nodes.present().play([data])


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Return a mutation of a connection's bytes, or of a new request of the node's vocabulary."""
    if len(data) < 16 or chance.random() < 0.3:
        writer = FrameWriter(_nodes.present().vocabulary, chance)
        data = writer.frame(*chance.choice(ALL))
        if chance.random() < 0.3:
            return data
    return mutated_stream(data, chance, _nodes.frames())


def seeds() -> Iterator[bytes]:
    writer = FrameWriter(_nodes.present().vocabulary, random.Random(2))
    for key, version in ALL:
        for _ in range(_SEEDS_OF_A_VERSION):
            yield writer.frame(key, version)
