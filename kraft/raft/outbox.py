"""Outbox of a raft node: the writes and messages of a step, and messages that wait for writes.

A message leaves the node only when the writes that it depends on are durable (`Needs`). A driver
can therefore send whatever it is given at once, and cannot get the order wrong (KAFKA-10533).

No message waits for a write of quorum-state that only adds the name of another node as leader:
votes decide who can lead an epoch, and those were durable before. Kafka's follower syncs the file
before its first fetch.

`NodeState` and the roles fill the outbox, `Node.step` returns its `RaftReady`.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

from kraft.raft.interface import (
    AppendBatches,
    RaftReady,
    Send,
    SendResponse,
    Write,
    WriteElectionState,
)
from kraft.raft.log_view import LogView
from kraft.raft.rpc import Response


class Needs(Enum):
    """What must be durable before a message is sent."""

    NOTHING = "nothing: all that it says was durable before"
    EPOCH = "the last write of quorum-state: it depends on epoch and vote, and not on the log"
    LOG = "all writes before it"


class Outbox:
    """What one node writes and sends. It advances the durable end of ``log``."""

    __slots__ = (
        "_awaited_sequence",
        "_held",
        "_log",
        "_state_sequence",
        "_write_sequence",
        "_written_sequence",
        "ready",
        "unwritten_ends",
    )

    def __init__(self, log: LogView) -> None:
        #: The result of the current step.
        self.ready = RaftReady()
        self._log = log
        self._write_sequence = 0
        self._written_sequence = 0
        #: The sequence of the last write of epoch or vote, and of the last one that messages wait
        #: for at all.
        self._state_sequence = 0
        self._awaited_sequence = 0
        #: Messages with the sequence that they wait for, ascending.
        self._held: deque[tuple[int, Send]] = deque()
        #: Appends that are not durable: their sequence and the log's end after them.
        self.unwritten_ends: deque[tuple[int, int]] = deque()

    # -- writes

    def write(self, write: Write) -> None:
        self.ready.to_write.append(write)
        self._awaited_sequence = self._write_sequence + 1

    def write_election_state(self, state: WriteElectionState, *, is_awaited: bool = True) -> None:
        """Write quorum-state; in place of a write of it that directly precedes in this step.

        ``is_awaited``: messages wait for it.
        """
        to_write = self.ready.to_write
        if to_write and isinstance(to_write[-1], WriteElectionState):
            to_write[-1] = state
        else:
            to_write.append(state)
        if is_awaited:
            self._state_sequence = self._awaited_sequence = self._write_sequence + 1

    def write_append(
        self, base_offset: int, end_offset: int, batches: memoryview | bytes | bytearray
    ) -> None:
        """Write batches that the log view already includes."""
        self.write(AppendBatches(base_offset, end_offset, batches))
        self.unwritten_ends.append((self._write_sequence + 1, end_offset))

    def note_truncated(self, end_offset: int) -> None:
        """Keep the durable end at or below the new end of the log."""
        self.unwritten_ends = deque(
            (sequence, min(end, end_offset)) for sequence, end in self.unwritten_ends
        )

    @property
    def unwritten_steps(self) -> int:
        """The number of steps, this one included, whose writes are not durable yet."""
        in_this_step = 1 if self.ready.to_write else 0
        return self._write_sequence + in_this_step - self._written_sequence

    def note_written(self, sequence: int) -> None:
        """Advance the durable end of the log and send the messages that waited."""
        self._written_sequence = max(self._written_sequence, sequence)
        ends, log = self.unwritten_ends, self._log
        while ends and ends[0][0] <= sequence:
            end_offset = ends.popleft()[1]
            if end_offset > log.durable_end_offset:
                log.durable_end_offset = min(end_offset, log.end_offset)
        held = self._held
        while held and held[0][0] <= sequence:
            self.ready.to_send.append(held.popleft()[1])

    # -- messages

    def send(self, send: Send, needs: Needs) -> None:
        """Send a message as soon as what it needs is durable."""
        sequence = 0
        if needs is Needs.EPOCH:
            sequence = self._state_sequence
        elif needs is Needs.LOG:
            sequence = self._awaited_sequence
        if sequence <= self._written_sequence:
            self.ready.to_send.append(send)
        elif not self._held or self._held[-1][0] <= sequence:
            self._held.append((sequence, send))
        else:
            self._held = deque(sorted([*self._held, (sequence, send)], key=lambda held: held[0]))

    def respond(self, reply_to: int, response: Response, *, needs: Needs = Needs.LOG) -> None:
        self.send(SendResponse(reply_to, response), needs)

    # -- the end of a step

    def take(self) -> RaftReady:
        """Return the result of the current step and begin the next one."""
        ready, self.ready = self.ready, RaftReady()
        if ready.to_write:
            self._write_sequence += 1
        ready.write_sequence = self._write_sequence
        return ready
