"""Metadata transactions: write the many batches of one operation, all or none (KIP-868).

Decides when to write BeginTransaction, EndTransaction and AbortTransaction. BeginTransaction goes
into a batch of its own before the first chunk that has records, so that an operation that is
rejected earlier leaves no record in the log. An operation whose last chunk alone has records writes
one atomic batch, without these records. `QuorumController` calls it and writes nothing else in
between.
"""

from __future__ import annotations

from typing import Any

from kraft import records
from kraft.controller.decision import (
    MAX_RECORDS_PER_BATCH,
    NO_RECORDS,
    ChunkedDecision,
    Decision,
    Records,
    begin_transaction,
)
from kraft.controller.runtime.operations import Operation
from kraft.errors import KraftError, PolicyViolationError, RequestTimedOutError


def check_is_one_batch(name: str, written: Records) -> None:
    """Raise PolicyViolationError for more records than an atomic decision may have."""
    if len(written) > MAX_RECORDS_PER_BATCH:
        raise PolicyViolationError(
            f"{name} writes at most {MAX_RECORDS_PER_BATCH} records, not {len(written)}"
        )


class Transaction:
    """The chunks of one operation, of which ``first`` is decided; it began at ``since_ms``."""

    def __init__(
        self, operation: Operation, first: Records, chunks: ChunkedDecision[Any], since_ms: float
    ) -> None:
        self.operation = operation
        self.response: Any = None
        self._since_ms = since_ms
        self._chunks = chunks
        #: A chunk that is decided, but not written yet.
        self._decided_chunk = first
        self._is_decided = False
        self._has_begun = False

    def next_chunk(self, metadata_version: int) -> Records | None:
        """Return the next records to write, possibly none this time; None after the last.

        Raises PolicyViolationError if the metadata.version has no transactions, and the errors of
        the operation.
        """
        chunk, self._decided_chunk = self._decided_chunk, NO_RECORDS
        if not len(chunk) and not self._is_decided:
            chunk = self._decide()
        if not len(chunk):
            return None if self._is_decided else chunk
        if self._has_begun or self._is_decided:
            return chunk
        begin = begin_transaction(self.operation.name, metadata_version)
        self._has_begun, self._decided_chunk = True, chunk
        return begin

    def _decide(self) -> Records:
        try:
            return next(self._chunks)
        except StopIteration as end:
            decision: Decision[Any] = end.value
            self.response, self._is_decided = decision.response, True
            if decision.is_atomic and not self._has_begun:
                check_is_one_batch(self.operation.name, decision.records)
            return decision.records

    def closing_records(self, error: KraftError | None, metadata_version: int) -> Records | None:
        """Return the record that ends the transaction; None if the log has no BeginTransaction."""
        self.close()
        if not self._has_begun:
            return None
        if error is None:
            return Records.of([records.EndTransaction()], metadata_version)
        return Records.of([records.AbortTransaction(reason=str(error))], metadata_version)

    def close(self) -> None:
        """Stop the operation; no further chunk is asked for."""
        self._chunks.close()

    def expires_at_ms(self, max_transaction_ms: float) -> float:
        return self._since_ms + max_transaction_ms

    def timeout_error(self, now_ms: float) -> RequestTimedOutError:
        taken_ms = now_ms - self._since_ms
        return RequestTimedOutError(
            f"{self.operation.name} was aborted after {taken_ms:.0f} ms: a metadata transaction is "
            "bounded by max_transaction_ms, because heartbeats that write records wait for it; "
            "send smaller requests"
        )
