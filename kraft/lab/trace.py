"""Event traces of long scenarios: what happened, when, how long it took, for how many items.

Defines the file format, its writer and its reader. ``kraft lab million --trace`` and benchmarks
write traces; ``kraft lab trace`` and, through ``kraft.spark``, Spark read them.

A trace is a stream of msgpack objects, each an ``ext 32``, which any msgpack reader can read::

    file     header block*
    frame    0xC9 | length u32 | type i8 | CRC-32 u32 | body        integers big-endian; the length
                                                                    is that of CRC and body, the
                                                                    CRC is that of type and body
    header   type 1, body: msgpack map
               format 1, scenario, run_id, machine, commit, started_ns (Unix), settings
    block    type 2, body: msgpack array of the columns of N events
               names    array of str     the kinds of events in this block
               what     bin, N x u16 LE  index into names
               began    bin, N x i64 LE  nanoseconds since started_ns
               duration bin, N x i64 LE  nanoseconds
               count    bin, N x i64 LE  number of items: records, partitions

Each block can be read without the others, so that several readers share a file.

Invariants: a file only grows, by whole frames; a written block never changes. A killed process
leaves at most one torn frame at the end, which readers skip and report. Readers raise for damage
that whole frames follow.
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

#: A block is written at this number of events, or when its first event is this old.
BLOCK_EVENTS = 4096
BLOCK_AGE_NS = 1_000_000_000

_EXT_32 = 0xC9
_HEADER, _BLOCK = 1, 2
_PREFIX = struct.Struct(">BIbI")
_CRC_SIZE = 4
#: The names of a block are numbered with 16 bits.
_MOST_BLOCK_EVENTS = 1 << 16
#: Writers make no larger frame; readers reject a larger length before they allocate.
_MAX_FRAME_SIZE = 64 << 20


@dataclass(frozen=True, slots=True)
class TraceHeader:
    """The run that a trace belongs to. ``started_ns`` is Unix time; ``settings`` is a JSON object.

    ``commit`` is None where the package is not in a git checkout.
    """

    scenario: str
    run_id: str
    machine: str
    commit: str | None
    started_ns: int
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, scenario: str, settings: Mapping[str, Any] | None = None) -> TraceHeader:
        """Return the header of a run of ``scenario`` that begins now on this machine at this
        commit.
        """
        return cls(
            scenario=scenario,
            run_id=secrets.token_hex(8),
            machine=machine_description(),
            commit=checked_out_commit(),
            started_ns=time.time_ns(),
            settings=dict(settings or {}),
        )


class UnfinishedTraceError(CorruptRecordError):
    """The file ends before its header does: its writer has just begun or was interrupted."""


class TraceBlock(NamedTuple):
    """The events of one frame as columns, N long; ``position`` is the frame's first byte.

    ``what`` (u16) are indexes into ``names``; ``began_ns`` (i64) counts from the header's
    ``started_ns``, ``duration_ns`` and ``counts`` are i64.
    """

    position: int
    names: tuple[str, ...]
    what: NDArray[np.uint16]
    began_ns: NDArray[np.int64]
    duration_ns: NDArray[np.int64]
    counts: NDArray[np.int64]


class TornFrame(NamedTuple):
    """An incomplete frame at the end of a file: ``size`` bytes from ``position`` on."""

    path: str
    position: int
    size: int
    reason: str


class _CutShort(str):
    """An error text: the file ends before the frame does."""


_Event = tuple[str, int, int, int]


class _State(NamedTuple):
    """The state of a writer, replaced as a whole so that an interrupt never sees half a change."""

    end: int
    events: list[_Event]
    #: Written at ``end``, or about to be.
    frame: bytes | None


class TraceWriter:
    """Writes a trace, from one thread; best used as a context manager.

    Keeps events in memory until there are ``block_events`` of them or the first one is
    ``block_age_ns`` old (default 1 s). Ctrl-C is safe at any point: :meth:`close` writes every
    event once.

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
            raise InvalidRequestError(
                f"block_events is {block_events}, must be 1 to {_MOST_BLOCK_EVENTS}"
            )
        self.path = fspath(path)
        self.header = header
        self._block_events = block_events
        self._block_age_ns = block_age_ns
        # The monotonic clock times events; the header has its zero as Unix time.
        self._origin_ns = time.perf_counter_ns() - (time.time_ns() - header.started_ns)
        self._fd = -1
        try:
            self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            raise StorageError(f"{self.path} already exists: name a new file") from None
        except OSError as error:
            raise StorageError(f"cannot create {self.path}: {error.strerror}") from error
        body = msgpack.packb({"format": FORMAT, **asdict(header)})
        self._state = _State(0, [], _frame(_HEADER, body))
        self._due_ns = 0
        self.flush()

    def event(self, what: str, began_ns: int, duration_ns: int, count: int = 1) -> None:
        """Add one event of ``count`` items; ``began_ns`` is a ``time.perf_counter_ns()``."""
        events, ended_ns = self._state.events, began_ns + duration_ns
        events.append((what, began_ns, duration_ns, count))
        if len(events) >= self._block_events or ended_ns >= self._due_ns:
            self.flush()

    def events(
        self, what: str, began_ns: ArrayLike, duration_ns: ArrayLike, count: ArrayLike = 1
    ) -> None:
        """Add many events of one kind from columns of one length; ``count`` may be one number.

        Raises :class:`InvalidRequestError` for columns of different lengths.
        """
        try:
            columns = np.broadcast_arrays(
                *(np.asarray(each, np.int64) for each in (began_ns, duration_ns, count))
            )
        except ValueError as error:
            raise InvalidRequestError(f"columns of different lengths: {error}") from None
        for began, duration, many in np.stack(columns, axis=-1).reshape(-1, 3):
            self.event(what, int(began), int(duration), int(many))

    @contextmanager
    def timed(self, what: str, count: int = 1) -> Iterator[None]:
        """Add the block as an event, also where it raises."""
        began_ns = time.perf_counter_ns()
        try:
            yield
        finally:
            self.event(what, began_ns, time.perf_counter_ns() - began_ns, count)

    def flush(self) -> None:
        """Write the waiting events to the operating system.

        Raises :class:`StorageError`; calling it again afterwards is safe.
        """
        # A signal may interrupt between any two steps: one assignment moves events from the list
        # to a frame, another drops the frame and advances the end. Repeating a write after an
        # interrupt writes the same bytes to the same position.
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
        """Write the waiting events and close the file; safe to call again."""
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
    """A trace file opened for reading; ``end`` is the byte after the last whole frame at opening.

    ``torn`` describes the bytes after that, or is None. Opening reads the header and the frames'
    prefixes; ``frames`` are their positions, :meth:`blocks` reads all or some of them.

    Raises :class:`StorageError` where the file cannot be read, :class:`CorruptRecordError` where it
    is not a trace, :class:`UnfinishedTraceError` where it ends before its header does,
    :class:`DamagedLogError` for damage that whole frames follow; all but the first name file and
    byte.
    """

    def __init__(self, path: str | PathLike[str], *, begin: int = 0) -> None:
        """``begin`` is the position of a frame to start at; earlier frames are not read."""
        self.path = fspath(path)
        self.torn: TornFrame | None = None
        with self._opened() as file:
            size = os.fstat(file.fileno()).st_size
            found = _read_frame(file, 0, size)
            if isinstance(found, str):
                kind_of_error = (
                    UnfinishedTraceError if isinstance(found, _CutShort) else CorruptRecordError
                )
                raise kind_of_error(f"not a trace: {found}", path=self.path, position=0)
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
            if not isinstance(fields, dict):
                raise ValueError("the first frame is not a header")
            if (found := fields.pop("format")) != FORMAT:
                raise ValueError(
                    f"its format is {found!r:.40}; this version of kraft reads format {FORMAT}"
                )
            header = TraceHeader(**fields)
        except (ValueError, TypeError, LookupError, msgpack.UnpackException) as error:
            raise CorruptRecordError(f"not a trace: {error}", path=self.path, position=0) from None
        texts = (header.scenario, header.run_id, header.machine, header.commit or "")
        if not (
            all(isinstance(text, str) for text in texts)
            and isinstance(header.started_ns, int)
            and isinstance(header.settings, dict)
        ):
            raise CorruptRecordError(
                "not a trace: a field of the header is of a wrong type", path=self.path, position=0
            )
        return header

    def _walk(self, file: BinaryIO, position: int, size: int) -> tuple[list[int], int]:
        """Return the positions of the whole frames, and the byte after the last one."""
        frames: list[int] = []
        while position < size:
            # The prefix suffices here except for the last frame; reading a frame checks its CRC.
            end = _end_of_frame(file, position, size)
            if isinstance(end, int) and end == size:
                found = _read_frame(file, position, size)
                end = found if isinstance(found, str) else found[2]
            if isinstance(end, str):
                if frames and isinstance(before := _read_frame(file, frames[-1], size), str):
                    # The frame before is damaged, so its length was wrong.
                    position, end = frames.pop(), before
                self._skip_torn_end(file, position, size, end)
                break
            frames.append(position)
            position = end
        return frames, position

    def _skip_torn_end(self, file: BinaryIO, position: int, size: int, reason: str) -> None:
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
        """Yield the blocks whose frames begin at bytes ``begin`` to ``end`` (exclusive; default:
        all).

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
                raise ValueError(f"a frame of type {kind}, not a block")
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
                raise ValueError("a name that is not text")
            if len({len(column) for column in block[2:]}) != 1:
                raise ValueError("columns of different lengths")
            if len(block.what) and int(block.what.max()) >= len(block.names):
                raise ValueError("an event kind without a name")
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise CorruptRecordError(str(error), path=self.path, position=position) from None
        return block


def read_trace(path: str | PathLike[str]) -> Iterator[TraceBlock]:
    """Yield every block of a trace in the order of writing, without a torn end.

    Raises as :class:`Trace` does; its ``header`` and ``torn`` have more details.
    """
    yield from Trace(path).blocks()


def machine_description() -> str:
    """Return the machine that the timings depend on: ``x86_64, 2 CPUs, <model>,
    CPython 3.11.9``.
    """
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
    """Return the commit of the checkout that this package runs from; None without one."""
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
    """Return the end of the frame at ``position`` by its prefix; a text where the prefix is
    invalid.
    """
    file.seek(position)
    prefix = file.read(_PREFIX.size)
    if len(prefix) < _PREFIX.size or position + _PREFIX.size > size:
        return _CutShort("the prefix of a frame is cut short")
    tag, length, kind, _ = _PREFIX.unpack(prefix)
    if tag != _EXT_32 or kind not in (_HEADER, _BLOCK):
        return f"byte {tag:#04x} and type {kind} do not begin a frame of a trace"
    end = position + _PREFIX.size - _CRC_SIZE + int(length)
    if length < _CRC_SIZE or length > _MAX_FRAME_SIZE:
        return f"a frame of {length} bytes"
    if end > size:
        return _CutShort(f"a frame of {length} bytes is cut short")
    return end


def _read_frame(file: BinaryIO, position: int, size: int) -> tuple[int, bytes, int] | str:
    """Return type, body and end of the frame at ``position``; a text where it is invalid."""
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
    """Return the first valid frame after the first byte; -1 without one."""
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
