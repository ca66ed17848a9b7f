"""Event traces of long scenarios: what happened, when, how long it took, to how many.

Owns the file format, its writer and its reader. Written by ``kraft lab million --trace`` and by
benchmarks; read by ``kraft lab trace`` and, through ``kraft.spark``, by Spark.

A trace is a stream of msgpack objects, each an ``ext 32``, so that any msgpack reader can walk it::

    file     header block*
    frame    0xC9 | length u32 | type i8 | CRC-32 u32 | body        integers big-endian; the length
                                                                    is that of CRC and body, the
                                                                    CRC is that of type and body
    header   type 1, body: msgpack map
               format 1, scenario, run_id, machine, commit, started_ns (Unix), settings
    block    type 2, body: msgpack array of the columns of N events
               names    array of str     the kinds of events in this block
               what     bin, N x u16 LE  which of the names
               began    bin, N x i64 LE  nanoseconds since started_ns
               duration bin, N x i64 LE  nanoseconds
               count    bin, N x i64 LE  of how many: records, partitions

Each block can be read without the others, so that several readers share a file.

Invariants: a file only grows, by whole frames; a block once written never changes. A process that
is killed leaves at most one torn frame at the end, which readers pass over and report. Damage that
whole frames follow is never passed over.
"""

from __future__ import annotations

import os
import platform
import secrets
import struct
import subprocess
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from os import PathLike, fspath
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple, Self

import msgpack
import numpy as np
from numpy.typing import ArrayLike, NDArray

from kraft.errors import CorruptRecordError, DamagedLogError, InvalidRequestError, StorageError

FORMAT = 1

#: A block is written when it holds so many events, or when its first one is so old.
BLOCK_EVENTS = 4096
BLOCK_AGE_NS = 1_000_000_000

_EXT_32 = 0xC9
_HEADER, _BLOCK = 1, 2
_PREFIX = struct.Struct(">BIbI")
_CRC_SIZE = 4
#: The names of a block are numbered with 16 bits.
_MOST_BLOCK_EVENTS = 1 << 16
#: No writer makes a larger frame, and no reader allocates one on the word of a length.
_MAX_FRAME_SIZE = 64 << 20


@dataclass(frozen=True, slots=True)
class TraceHeader:
    """Whose events these are. ``started_ns`` is Unix time; ``settings`` is a JSON object.

    ``commit`` is None where the program is in no checkout.
    """

    scenario: str
    run_id: str
    machine: str
    commit: str | None
    started_ns: int
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, scenario: str, settings: Mapping[str, Any] | None = None) -> TraceHeader:
        """That of a run of ``scenario`` that begins now, on this machine, at this commit."""
        return cls(
            scenario=scenario,
            run_id=secrets.token_hex(8),
            machine=machine_description(),
            commit=checked_out_commit(),
            started_ns=time.time_ns(),
            settings=dict(settings or {}),
        )


class UnfinishedTraceError(CorruptRecordError):
    """A file that ends before its header does: its writer has just begun, or never went on."""


class TraceBlock(NamedTuple):
    """The events of one frame as columns, N long; ``position`` is the frame's first byte.

    ``what`` (u16) numbers ``names``; ``began_ns`` (i64) counts from the header's ``started_ns``,
    ``duration_ns`` and ``counts`` are i64.
    """

    position: int
    names: tuple[str, ...]
    what: NDArray[np.uint16]
    began_ns: NDArray[np.int64]
    duration_ns: NDArray[np.int64]
    counts: NDArray[np.int64]


class TornFrame(NamedTuple):
    """What an interrupted write left at the end: ``size`` bytes from ``position`` on."""

    path: str
    position: int
    size: int
    reason: str


class _CutShort(str):
    """The reason why there is no frame: the file ends before it does."""


_Event = tuple[str, int, int, int]


class _State(NamedTuple):
    """What a writer has to remember. It is replaced as a whole, so that Ctrl-C finds it whole."""

    end: int
    events: list[_Event]
    #: Written at ``end``, or about to be.
    frame: bytes | None


class TraceWriter:
    """Writes a trace; to be used by one thread, best as a context manager.

    Events wait in memory until there are ``block_events`` of them or the first of them is a second
    old. Ctrl-C may come at any point: what was given to :meth:`event` is written once, by
    :meth:`close`.

    Raises :class:`StorageError` where the file exists or cannot be written.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        header: TraceHeader,
        *,
        block_events: int = BLOCK_EVENTS,
        block_age_ns: int = BLOCK_AGE_NS,
    ) -> None:
        if not 1 <= block_events <= _MOST_BLOCK_EVENTS:
            raise InvalidRequestError(f"a block holds 1 to {_MOST_BLOCK_EVENTS} events")
        self.path = fspath(path)
        self.header = header
        self._block_events = block_events
        self._block_age_ns = block_age_ns
        # Events are timed by the clock that never goes back; the header says what its zero is.
        self._origin_ns = time.perf_counter_ns() - (time.time_ns() - header.started_ns)
        self._fd = -1
        try:
            self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            raise StorageError(f"{self.path} is there already: name a new file") from None
        except OSError as error:
            raise StorageError(f"cannot create {self.path}: {error.strerror}") from error
        body = msgpack.packb({"format": FORMAT, **asdict(header)})
        self._state = _State(0, [], _frame(_HEADER, body))
        self._due_ns = 0
        self.flush()

    def event(self, what: str, began_ns: int, duration_ns: int, count: int = 1) -> None:
        """One event: ``began_ns`` as ``time.perf_counter_ns()`` told it, of ``count`` things."""
        events, ended_ns = self._state.events, began_ns + duration_ns
        events.append((what, began_ns, duration_ns, count))
        if len(events) >= self._block_events or ended_ns >= self._due_ns:
            self.flush()

    def events(
        self, what: str, began_ns: ArrayLike, duration_ns: ArrayLike, count: ArrayLike = 1
    ) -> None:
        """Many events of one kind, from columns of one length; ``count`` may be one number.

        Raises :class:`InvalidRequestError` for columns that do not go together.
        """
        try:
            columns = np.broadcast_arrays(
                *(np.asarray(each, np.int64) for each in (began_ns, duration_ns, count))
            )
        except ValueError as error:
            raise InvalidRequestError(f"no columns of events: {error}") from None
        for began, duration, many in np.stack(columns, axis=-1).reshape(-1, 3):
            self.event(what, int(began), int(duration), int(many))

    @contextmanager
    def timed(self, what: str, count: int = 1) -> Iterator[None]:
        """The block as an event, also where it raises."""
        began_ns = time.perf_counter_ns()
        try:
            yield
        finally:
            self.event(what, began_ns, time.perf_counter_ns() - began_ns, count)

    def flush(self) -> None:
        """Hands what waits to the operating system. Raises :class:`StorageError`, and may then be
        called again.
        """
        # A signal may interrupt between any two steps: events leave the list in the moment in
        # which they are a frame, and the frame stays until the end has moved behind it. Written
        # twice it is the same bytes in the same place.
        while True:
            end, events, frame = self._state
            if frame is None:
                if not events:
                    break
                block = events[: self._block_events]
                frame = _frame(_BLOCK, _block_body(block, self._origin_ns))
                self._state = _State(end, events[len(block) :], frame)
            self._write(frame, end)
            self._state = _State(end + len(frame), self._state.events, None)
        self._due_ns = time.perf_counter_ns() + self._block_age_ns

    def _write(self, frame: bytes, position: int) -> None:
        rest = memoryview(frame)
        try:
            while rest:
                written = os.pwrite(self._fd, rest, position)
                rest, position = rest[written:], position + written
        except OSError as error:
            raise StorageError(f"cannot write {self.path}: {error.strerror}") from error

    def close(self) -> None:
        """Writes what waits and closes the file; may be called again."""
        if self._fd < 0:
            return
        self.flush()
        fd, self._fd = self._fd, -1
        os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Trace:
    """A trace file, to be read; ``end`` is the byte behind its last whole frame as of opening.

    ``torn`` says what lies behind that, or is None. Opening reads the header and walks over the
    frames' prefixes; ``frames`` are their positions, ``blocks`` reads all or some of them.

    Raises :class:`StorageError` where the file cannot be read, :class:`CorruptRecordError` where it
    is no trace, :class:`UnfinishedTraceError` where it ends before its header does,
    :class:`DamagedLogError` for damage that whole frames follow; all but the first
    name file and byte.
    """

    def __init__(self, path: str | PathLike[str], *, begin: int = 0) -> None:
        """``begin`` is the position of a frame to go on at: those before it are not looked at."""
        self.path = fspath(path)
        self.torn: TornFrame | None = None
        with self._opened() as file:
            size = os.fstat(file.fileno()).st_size
            found = _read_frame(file, 0, size)
            if isinstance(found, str):
                kind_of_error = (
                    UnfinishedTraceError if isinstance(found, _CutShort) else CorruptRecordError
                )
                raise kind_of_error(f"no trace: {found}", path=self.path, position=0)
            kind, body, first = found
            self.header = self._parse_header(kind, body)
            self.frames, self.end = self._walk(file, max(begin, first), size)

    @contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        try:
            with open(self.path, "rb") as file:
                yield file
        except OSError as error:
            raise StorageError(f"cannot read {self.path}: {error.strerror}") from error

    def _parse_header(self, kind: int, body: bytes) -> TraceHeader:
        try:
            fields = msgpack.unpackb(body) if kind == _HEADER else None
            if not isinstance(fields, dict) or fields.pop("format") != FORMAT:
                raise ValueError(f"the first frame is no header of format {FORMAT}")
            header = TraceHeader(**fields)
        except (ValueError, TypeError, LookupError, msgpack.UnpackException) as error:
            raise CorruptRecordError(f"no trace: {error}", path=self.path, position=0) from None
        texts = (header.scenario, header.run_id, header.machine, header.commit or "")
        if not (
            all(isinstance(text, str) for text in texts)
            and isinstance(header.started_ns, int)
            and isinstance(header.settings, dict)
        ):
            raise CorruptRecordError(
                "no trace: a field of the header is of a wrong type", path=self.path, position=0
            )
        return header

    def _walk(self, file: BinaryIO, position: int, size: int) -> tuple[list[int], int]:
        """The positions of the whole frames, and the byte behind the last of them."""
        frames: list[int] = []
        while position < size:
            # Of all but the last frame the prefix is enough here; reading checks the rest.
            end = _end_of_frame(file, position, size)
            if isinstance(end, int) and end == size:
                found = _read_frame(file, position, size)
                end = found if isinstance(found, str) else found[2]
            if isinstance(end, str):
                if frames and isinstance(before := _read_frame(file, frames[-1], size), str):
                    # Its length led here, and is not to be believed.
                    position, end = frames.pop(), before
                self._leave_out(file, position, size, end)
                break
            frames.append(position)
            position = end
        return frames, position

    def _leave_out(self, file: BinaryIO, position: int, size: int, reason: str) -> None:
        file.seek(position)
        follows = _position_of_whole_frame(file.read(size - position))
        if follows >= 0:
            raise DamagedLogError(
                f"{reason}, and whole frames follow from byte {position + follows} on",
                path=self.path,
                position=position,
            )
        self.torn = TornFrame(self.path, position, size - position, reason)

    def blocks(self, begin: int = 0, end: int | None = None) -> Iterator[TraceBlock]:
        """The blocks whose frames begin at bytes ``begin`` to ``end`` (exclusive; default: all).

        Raises :class:`CorruptRecordError` with file and byte.
        """
        with self._opened() as file:
            for position in self.frames:
                if begin <= position and (end is None or position < end):
                    yield self._read_block(file, position)

    def _read_block(self, file: BinaryIO, position: int) -> TraceBlock:
        found = _read_frame(file, position, self.end)
        if isinstance(found, str):
            raise CorruptRecordError(found, path=self.path, position=position)
        kind, body, _ = found
        try:
            if kind != _BLOCK:
                raise ValueError(f"a frame of type {kind} where a block is expected")
            names, what, began, duration, count = msgpack.unpackb(body)
            block = TraceBlock(
                position,
                tuple(names),
                np.frombuffer(what, "<u2"),
                np.frombuffer(began, "<i8"),
                np.frombuffer(duration, "<i8"),
                np.frombuffer(count, "<i8"),
            )
            if not all(isinstance(name, str) for name in block.names):
                raise ValueError("a name that is no text")
            if len({len(column) for column in block[2:]}) != 1:
                raise ValueError("columns of different lengths")
            if len(block.what) and int(block.what.max()) >= len(block.names):
                raise ValueError("an event of a kind that has no name")
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise CorruptRecordError(str(error), path=self.path, position=position) from None
        return block


def read_trace(path: str | PathLike[str]) -> Iterator[TraceBlock]:
    """Every block of a trace, in the order in which it was written; a torn end is left out.

    Raises as :class:`Trace`, whose ``header`` and ``torn`` say more.
    """
    yield from Trace(path).blocks()


def machine_description() -> str:
    """What the figures of a run depend on: ``x86_64, 2 CPUs, <model>, CPython 3.11.9``."""
    model = platform.processor()
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                model = value.strip()
                break
    except OSError:
        pass
    parts = (
        platform.machine(),
        f"{os.cpu_count()} CPUs",
        model,
        f"{platform.python_implementation()} {platform.python_version()}",
    )
    return ", ".join(part for part in parts if part)


def checked_out_commit() -> str | None:
    """The commit of the checkout that this package is run from; None where it is in none."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        ran = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "HEAD"],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ran.stdout.strip() or None if ran.returncode == 0 else None


def _frame(kind: int, body: bytes) -> bytes:
    crc = zlib.crc32(body, zlib.crc32(bytes((kind,))))
    return _PREFIX.pack(_EXT_32, len(body) + _CRC_SIZE, kind, crc) + body


def _block_body(events: list[_Event], origin_ns: int) -> bytes:
    what, began, duration, count = zip(*events, strict=True)
    numbers = {name: number for number, name in enumerate(dict.fromkeys(what))}
    packed: bytes = msgpack.packb(
        [
            list(numbers),
            np.array([numbers[name] for name in what], "<u2").tobytes(),
            (np.array(began, "<i8") - origin_ns).tobytes(),
            np.array(duration, "<i8").tobytes(),
            np.array(count, "<i8").tobytes(),
        ]
    )
    return packed


def _end_of_frame(file: BinaryIO, position: int, size: int) -> int | str:
    """Where the frame at ``position`` ends as its prefix has it; a reason where it does not."""
    file.seek(position)
    prefix = file.read(_PREFIX.size)
    if len(prefix) < _PREFIX.size or position + _PREFIX.size > size:
        return _CutShort("the prefix of a frame is cut short")
    tag, length, kind, _ = _PREFIX.unpack(prefix)
    if tag != _EXT_32 or kind not in (_HEADER, _BLOCK):
        return f"no frame of a trace begins with byte {tag:#04x} and type {kind}"
    end = position + _PREFIX.size - _CRC_SIZE + int(length)
    if length < _CRC_SIZE or length > _MAX_FRAME_SIZE:
        return f"a frame of {length} bytes"
    if end > size:
        return _CutShort(f"a frame of {length} bytes is cut short")
    return end


def _read_frame(file: BinaryIO, position: int, size: int) -> tuple[int, bytes, int] | str:
    """Type, body and end of the frame at ``position``; a reason where there is no sound one."""
    end = _end_of_frame(file, position, size)
    if isinstance(end, str):
        return end
    file.seek(position)
    frame = file.read(end - position)
    _, _, kind, crc = _PREFIX.unpack_from(frame)
    body = frame[_PREFIX.size :]
    if len(frame) < end - position or zlib.crc32(body, zlib.crc32(bytes((kind,)))) != crc:
        return "the CRC of a frame is wrong"
    return kind, body, end


def _position_of_whole_frame(data: bytes) -> int:
    """Where the first sound frame behind the first byte begins; -1 where there is none."""
    position = 0
    while (position := data.find(_EXT_32, position + 1)) >= 0:
        if len(data) - position < _PREFIX.size:
            return -1
        _, length, kind, crc = _PREFIX.unpack_from(data, position)
        begin = position + _PREFIX.size
        end = begin - _CRC_SIZE + length
        if kind in (_HEADER, _BLOCK) and length >= _CRC_SIZE and end <= len(data):
            body = memoryview(data)[begin:end]
            if zlib.crc32(body, zlib.crc32(bytes((kind,)))) == crc:
                return position
    return -1
