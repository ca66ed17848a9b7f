"""Batch tree: every batch that any node of a simulated cluster wrote, and which are committed.

The tree holds each batch once. A node's log is a list of references into the tree: two logs with
the same batch share all batches before it, and "the logs match" is an identity test. One branch of
the tree is committed. The invariants over both are checked for each new batch alone, so that the
cost does not grow with the log.

`storage` adds a batch that reaches a disk; `invariants` commits batches when a high watermark
moves.
"""

from __future__ import annotations

from collections import Counter
from struct import Struct

from kraft._core.bytes.batch_records import iterate
from kraft.raft.voters import VoterSet
from kraft.records import ZERO_UUID, control

#: base offset, batch length, epoch, magic, CRC, attributes, last offset delta.
_HEADER = Struct(">qiibIhi")
_CONTROL = 0x20
_LENGTH_END = 12


class Violation(Exception):  # noqa: N818 - a finding about the code under test, not an error
    """An invariant, by name, did not hold."""

    def __init__(self, invariant: str, detail: str) -> None:
        self.invariant = invariant
        self.detail = detail
        super().__init__(f"{invariant}: {detail}")

    def __reduce__(self) -> tuple[type[Violation], tuple[str, str]]:
        """Pickle the constructor arguments: worker processes return violations."""
        return Violation, (self.invariant, self.detail)


class Entry:
    """A batch, its predecessor, and the voters and kraft.version at its end."""

    __slots__ = (
        "base_offset",
        "committed_epoch",
        "data",
        "end_offset",
        "epoch",
        "era",
        "is_committed",
        "is_control",
        "level",
        "previous",
        "voters",
        "voters_entry",
    )

    def __init__(
        self,
        previous: Entry | None,
        base_offset: int,
        end_offset: int,
        epoch: int,
        data: bytes,
        is_control: bool,
    ) -> None:
        self.previous = previous
        self.base_offset = base_offset
        self.end_offset = end_offset
        self.epoch = epoch
        self.data = data
        self.is_control = is_control
        self.is_committed = False
        #: The epoch of the leader that committed it first.
        self.committed_epoch = 0
        #: The number of calm phases that had begun when it was first written.
        self.era = 0
        self.voters: VoterSet | None = None if previous is None else previous.voters
        self.level: int = 0 if previous is None else previous.level
        #: The last batch at or before this one that added or removed a voter.
        self.voters_entry: Entry | None = None if previous is None else previous.voters_entry

    def __repr__(self) -> str:
        return f"[{self.base_offset},{self.end_offset})@{self.epoch}"


class BatchTree:
    """The batches of one cluster; ``root`` is the empty predecessor of every log, at offset 0."""

    def __init__(self, voters: VoterSet | None, level: int) -> None:
        self.root = Entry(None, 0, 0, 0, b"", False)
        self.root.voters, self.root.level = voters, level
        self.root.is_committed = True
        self.committed = self.root
        self._entries: dict[tuple[int, int], Entry] = {}
        self._epoch_starts: dict[int, int] = {}
        #: The committed batches by their end offset.
        self.committed_at: dict[int, Entry] = {0: self.root}
        self.era = 0
        #: The numbers of changes of the voters and their endpoints.
        self.counts: Counter[str] = Counter()

    # -- a batch is written

    def append(self, last: Entry, data: bytes | bytearray | memoryview) -> list[Entry]:
        """Return the entries of batches that a node appended after ``last``."""
        entries = []
        position, size = 0, len(data)
        unpack, known = _HEADER.unpack_from, self._entries
        while position < size:
            base, length, epoch, _, _, attributes, delta = unpack(data, position)
            end = position + length + _LENGTH_END
            batch = bytes(data[position:end]) if position or end < size else bytes(data)
            entry = known.get((base, epoch))
            if entry is None:
                entry = Entry(
                    last, base, base + delta + 1, epoch, batch, bool(attributes & _CONTROL)
                )
                self._check_new(last, entry)
                known[base, epoch] = entry
            elif entry.previous is not last:
                raise Violation(
                    "logs_match", f"{entry} follows {entry.previous} here and {last} there"
                )
            elif entry.data != batch:
                raise Violation("logs_match", f"{entry} has different bytes on two nodes")
            entries.append(entry)
            last = entry
            position = end
        return entries

    def _check_new(self, last: Entry, entry: Entry) -> None:
        base, epoch = entry.base_offset, entry.epoch
        entry.era = self.era
        if base != last.end_offset or epoch < last.epoch or entry.end_offset <= base:
            raise Violation("logs_match", f"{entry} was appended after {last}")
        if epoch > last.epoch:
            start = self._epoch_starts.setdefault(epoch, base)
            if start != base:
                raise Violation("logs_match", f"epoch {epoch} begins at {start} and at {base}")
        if entry.is_control:
            self._read_control(entry)

    def _read_control(self, entry: Entry) -> None:
        for batch in iterate(entry.data):
            for record in batch:
                type = record.control_type
                if type not in (5, 6):
                    continue
                value = record.value
                assert value is not None
                decoded = control.decode_control(type, value)
                if isinstance(decoded, control.KRaftVersion):
                    entry.level = decoded.kraft_version
                elif isinstance(decoded, control.KRaftVoters):
                    self._change_voters(entry, VoterSet.from_record(decoded))

    def _change_voters(self, entry: Entry, voters: VoterSet) -> None:
        """Check that one voter changes, and that the change before is committed (KIP-853)."""
        for voter in voters:
            is_complete = voter.key.directory_id not in (None, ZERO_UUID)
            if entry.level not in voter.kraft_versions or not is_complete:
                raise Violation(
                    "voters_support_the_kraft_version",
                    f"{voter!r} in {entry} of level {entry.level}",
                )
        before = entry.voters
        entry.voters = voters
        if before is None:
            self.counts["upgrades"] += 1
            return
        old = {voter.key for voter in before}
        new = {voter.key for voter in voters}
        if old == new:
            self.counts["moved_voters"] += before != voters
            return
        if len(old - new) + len(new - old) > 1:
            raise Violation("one_voter_change_at_a_time", f"{before} became {voters} in {entry}")
        changed = entry.voters_entry
        if changed is not None and not changed.is_committed:
            raise Violation(
                "one_voter_change_at_a_time", f"{entry} follows the uncommitted change {changed}"
            )
        entry.voters_entry = entry
        self.counts["reconfigurations"] += 1
        self.counts["added_voters" if new - old else "removed_voters"] += 1

    # -- a batch is committed

    def commit(self, entry: Entry, epoch: int) -> None:
        """Commit ``entry``: the high watermark of this epoch's leader is the first to pass it."""
        committed = self.committed
        if entry.previous is not committed:
            raise Violation(
                "committed_never_lost_or_changed",
                f"{entry} after {entry.previous} was committed; committed before was {committed}",
            )
        entry.is_committed, entry.committed_epoch = True, epoch
        self.committed = entry
        self.committed_at[entry.end_offset] = entry

    def committed_before(self, epoch: int) -> Entry:
        """Return the last batch that a leader of an earlier epoch committed.

        The leader of ``epoch`` must have it. A candidate that wins late need not have what a later
        epoch has committed since.
        """
        entry = self.committed
        while entry.committed_epoch >= epoch and entry.previous is not None:
            entry = entry.previous
        return entry
