"""A metadata transaction on its way: one operation, many batches, all of it or nothing (KIP-868).

Owns when BeginTransaction, EndTransaction and AbortTransaction are written: the beginning goes into
a batch of its own before the first piece that has records, so that what is refused before it leaves
no trace in the log. Fed by `QuorumController`, which lets nothing else write in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kraft import records
from kraft.controller.decision import Records
from kraft.controller.operations import InPieces, Operation
from kraft.errors import KraftError, PolicyViolationError, RequestTimedOutError
from kraft.records.versions import MetadataVersion


class Transaction:
    """The pieces of one operation; it began at ``since_ms``."""

    def __init__(self, operation: Operation, outcome: InPieces[Any], since_ms: float) -> None:
        self.operation = operation
        self.response: Any = None
        self._name = outcome.name
        self._since_ms = since_ms
        self._generator = outcome.pieces
        self._pieces = self._remember_response(outcome)
        #: The first piece, while BeginTransaction is being written in front of it.
        self._waiting: Records | None = None
        self._has_begun = False

    def _remember_response(self, outcome: InPieces[Any]) -> Iterator[Records]:
        self.response = yield from outcome.pieces

    def next_piece(self, metadata_version: int) -> Records | None:
        """What is to be written next, possibly nothing this time; None where all is written.

        Raises PolicyViolationError where the metadata.version knows no transactions, and what the
        operation is refused with.
        """
        if self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            return waiting
        piece = next(self._pieces, None)
        if piece is None or not len(piece) or self._has_begun:
            return piece
        if metadata_version < MetadataVersion.IBP_3_6_IV1:
            raise PolicyViolationError(
                f"{self.operation.name} writes more records than one batch may have, and "
                "metadata.version "
                f"{MetadataVersion.from_level(metadata_version).text} knows no transactions"
            )
        self._has_begun, self._waiting = True, piece
        return Records.of([records.BeginTransaction(name=self._name)], metadata_version)

    def closing_records(self, error: KraftError | None, metadata_version: int) -> Records | None:
        """What ends it in the log; None where it has not begun there."""
        self.close()
        if not self._has_begun:
            return None
        if error is None:
            return Records.of([records.EndTransaction()], metadata_version)
        return Records.of([records.AbortTransaction(reason=str(error))], metadata_version)

    def close(self) -> None:
        """No further piece is asked for."""
        self._generator.close()

    def runs_out_at_ms(self, max_transaction_ms: float) -> float:
        return self._since_ms + max_transaction_ms

    def took_too_long(self, now_ms: float) -> RequestTimedOutError:
        taken_ms = now_ms - self._since_ms
        return RequestTimedOutError(
            f"{self.operation.name} was taken back after {taken_ms:.0f} ms: heartbeats that change "
            "something wait meanwhile, so that a metadata transaction has bounded time "
            "(max_transaction_ms); ask for less at a time"
        )
