"""The loop of a broker's plain connections: a thread without the GIL that moves their bytes."""

from collections.abc import Mapping, Sequence
from typing import Any, final

from typing_extensions import Buffer

from kraft._core.bytes.file_slice import FileSlice
from kraft._core.sockets.request_memory import RequestMemory

#: Bits of `DataSocket.events`: a whole request has arrived; `DataSocket.write` may be called again
#: after it returned True; a request is larger than allowed; the memory of large requests is taken;
#: a file of a response ended early or cannot be read; the connection is lost; half of the requests
#: of `DataSocket.expect` were answered, or all. After `NO_FILE` the caller closes the connection;
#: nothing follows `LOST`.
FRAME: int
WRITABLE: int
TOO_LARGE: int
NO_MEMORY: int
NO_FILE: int
LOST: int
FEW: int

@final
class DataSocket:
    """One connection of a `DataLoop`. Every method is called by the thread that calls `take`."""

    #: What the loop's user associates with the connection.
    owner: Any
    @property
    def events(self) -> int:
        """What happened before the last `DataLoop.take` that returned this connection."""

    def ask_frame(self) -> bool:
        """Return whether a whole request waits; if none does, the event `FRAME` reports the next.

        Else, and after `take_frame` has returned a request, none is reported until this is called
        again. A closing connection has no request.
        """

    @property
    def has_more(self) -> bool:
        """Whether further bytes had been received behind the request that was taken last."""

    @property
    def frame_begun(self) -> float | None:
        """When the first byte of an incomplete request arrived, in seconds of the monotonic clock.

        None: there is no incomplete request.
        """

    @property
    def refused_size(self) -> int:
        """After `TOO_LARGE`: the size that the request claims."""

    @property
    def unsent(self) -> int:
        """The bytes of responses that are not sent yet."""

    @property
    def is_closing(self) -> bool:
        """Whether the connection is closed, or will be once its responses are sent."""

    def set_limits(self, largest: int, has_apis: bool, most_memory: int) -> None:
        """Bound the next requests.

        ``largest``: of any request; ``has_apis``: the limits of APIs apply as well;
        ``most_memory``: of the large requests of all connections together.
        """

    def take_frame(self) -> tuple[bytes | memoryview, int] | None:
        """Return the request that waits, without its size field, and its bytes of RequestMemory.

        The caller gives these bytes back. Returns None where `ask_frame` returns False.
        """

    def write(self, pieces: Sequence[Buffer | FileSlice]) -> bool:
        """Send a response after those before it; return whether the caller should wait.

        The event `WRITABLE` ends the wait. Buffers stay as they are until they are sent. Does
        nothing on a closing connection.
        """

    def prepare(self, requests: Sequence[tuple[bytes, Sequence[Buffer | FileSlice]]]) -> None:
        """`expect` requests as soon as the response that is written next may have reached the peer.

        So that a peer cannot be too early. Nothing is expected where another request has arrived,
        or where `write` returns True.
        """

    def expect(self, requests: Sequence[tuple[bytes, Sequence[Buffer | FileSlice]]]) -> bool:
        """Answer the next requests without an event, if they are these; return False if too late.

        ``requests``: in the order in which the peer will send them, after those that are expected
        already; each without its size field, and its answer. Correlation ids may differ: the peer
        gets its own. The first other request is reported as ever, and `take_frame` drops the
        answers that were not given, as `withdraw` does. Too late is a request that has arrived, or
        the end of the stream; too early it is while prepared requests are not expected yet. The
        event `FEW` follows once half of the answers are given.

        Raises ValueError for a request without a correlation id or above 8 KiB, and for an answer
        that does not begin with its header, or has more than 64 KiB outside of files.
        """

    def withdraw(self) -> int:
        """Drop the answers of `expect` that were not given; return `take_answered`.

        One that was given before may still have unsent bytes.
        """

    def take_answered(self) -> int:
        """Return how many expected requests were answered since the last call."""

    def pause_reading(self) -> None:
        """Receive nothing until `resume_reading`; also a closed peer is noticed only then."""

    def resume_reading(self) -> None: ...
    def abort(self) -> None:
        """Close at once; unsent bytes are dropped. `LOST` follows."""

    def close(self) -> None:
        """Receive nothing more, and close once all responses are sent. `LOST` follows."""

@final
class DataLoop:
    """Connections whose bytes one thread moves, which calls `run`.

    A large request is counted in ``memory``. ``api_limits`` are the largest requests of APIs, by
    key; ``unknown_limit`` is that of other APIs. Raises OSError where the process has no descriptor
    left.
    """

    def __new__(
        cls, memory: RequestMemory, api_limits: Mapping[int, int], unknown_limit: int
    ) -> DataLoop: ...
    def __len__(self) -> int:
        """Return the number of connections that are not lost."""

    @property
    def bytes_in(self) -> int: ...
    @property
    def bytes_out(self) -> int: ...
    def fileno(self) -> int:
        """Return a descriptor that is readable when `take` has something to return."""

    def add(
        self,
        fd: int,
        owner: Any,
        largest: int,
        has_apis: bool,
        most_memory: int,
        is_local: bool = False,
    ) -> DataSocket:
        """Take over a connected, non-blocking socket, also where an exception is raised.

        A peer that ``is_local``, on this machine, gets slices from their mapped bytes where they
        have some: there sendfile takes the kernel longer than a copy.
        The limits are those of `DataSocket.set_limits`. Raises OSError where epoll rejects the
        socket, and RuntimeError after `stop`.
        """

    def take(self) -> list[DataSocket]:
        """Return the connections with events, and release the files of sent responses.

        Call it about once a second also where `fileno` is not readable: files of few responses
        alone do not make it readable.
        """

    def run(self) -> None:
        """Move bytes until `stop`, without the GIL; then report every connection as lost."""

    def stop(self) -> None:
        """End `run`; call `take` once more after it."""
