"""Read the metadata of a running quorum once: the leader's snapshot and the committed log after it.

`metadata_requests` drives ``kraft.metadata.quorum_observer`` and replays its pieces; like that, it
has no socket. `read_metadata` runs it with the blocking client.

Bounds: the state ends at the high watermark that the leader had at the beginning, so that the
reader also ends while the quorum writes on. The number of waits and restarts (another leader, a
deleted snapshot) is limited; beyond it the reader raises an error.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from kraft.image.replay import MetadataState
from kraft.metadata.facade import Metadata
from kraft.metadata.quorum_observer import (
    PAUSE_S,
    Ahead,
    Asking,
    LoadedSnapshot,
    OnProgress,
    QuorumObserver,
)
from kraft.network.quorum_client import QuorumClient, QuorumUnreachableError

R = TypeVar("R")

_MOST_WAITS = 100


def read_metadata(client: QuorumClient, on_progress: OnProgress | None = None) -> Metadata:
    """Return the committed metadata of the quorum, with a journal, as `open_metadata` does.

    Raises QuorumUnreachableError, QuorumRefusedError, and CorruptRecordError or ReplayError for
    invalid metadata in a response.
    """
    return Metadata(run_requests(client, metadata_requests(on_progress)))


def run_requests(
    client: QuorumClient, asking: Asking[R], pause: Callable[[float], object] = time.sleep
) -> R:
    """Send the requests with a blocking client; return the result.

    ``pause`` is called with the seconds to wait between two requests.
    """
    try:
        request = next(asking)
        while True:
            if request is None:
                pause(PAUSE_S)
                request = asking.send(None)
            elif isinstance(request, Ahead):
                client.ask_ahead(request.request)
                request = asking.send(None)
            else:
                request = asking.send(client.ask(request))
    except StopIteration as end:
        result: R = end.value
        return result


def metadata_requests(on_progress: OnProgress | None = None) -> Asking[MetadataState]:
    """Yield the requests that read the metadata; return its state, with a journal.

    The client must handle the error of a node that does not lead, and ask the leader. Raises the
    errors of `read_metadata`.
    """
    on_progress = on_progress or (lambda fraction: None)
    observer = QuorumObserver(on_progress=on_progress)
    state, target, waits = MetadataState(), -1, 0
    while target < 0 or observer.next_offset < target:
        if waits > _MOST_WAITS:
            raise QuorumUnreachableError(
                f"the metadata ends at offset {state.next_offset} of {target}: the quorum has "
                "committed nothing, or elected a leader again and again"
            )
        if target < 0:
            yield from observer.describe()
            target = observer.high_watermark
            piece = None
        if target >= 0:
            piece = yield from observer.next_piece()
        if isinstance(piece, LoadedSnapshot):
            state = piece.state
        elif piece is not None:
            state.apply(piece.batches)
            on_progress(min(state.next_offset / target, 1.0))
        else:
            waits += 1
            yield None
    state.drop_open_transaction()
    if not state.table.is_compact:
        state.table.compact()
    state.start_journal()
    return state
