"""Metadata transactions: write the many batches of one operation, all or none (KIP-868).

Decides when to write BeginTransaction, EndTransaction and AbortTransaction. BeginTransaction goes
into a batch of its own before the first chunk that has records, so that an operation that is
rejected earlier leaves no record in the log. `QuorumController` calls it and writes nothing else in
between.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kraft import records
from kraft.controller.decision import Records
from kraft.controller.runtime.operations import Operation, TransactionPlan
from kraft.errors import KraftError, PolicyViolationError, RequestTimedOutError
from kraft.records.versions import MetadataVersion


class Transaction:
    """The chunks of one operation; the transaction began at ``since_ms``."""

    def __init__(
        self, operation: Operation, outcome: TransactionPlan[Any], since_ms: float
    ) -> None:
        self.operation = operation
        self.response: Any = None
        self._name = outcome.name
        self._since_ms = since_ms
        self._generator = outcome.chunks
        self._chunks = self._remember_response(outcome)
        #: The first chunk, while BeginTransaction is being written before it.
        self._first_chunk: Records | None = None
        self._has_begun = False

    def _remember_response(self, outcome: TransactionPlan[Any]) -> Iterator[Records]:
        self.response = yield from outcome.chunks

    def next_chunk(self, metadata_version: int) -> Records | None:
        """Return the next records to write, possibly none this time; None after the last.

        Raises PolicyViolationError if the metadata.version has no transactions, and the errors of
        the operation.
        """
        if self._first_chunk is not None:
            first, self._first_chunk = self._first_chunk, None
            return first
        chunk = next(self._chunks, None)
        if chunk is None or not len(chunk) or self._has_begun:
            return chunk
        if metadata_version < MetadataVersion.IBP_3_6_IV1:
            raise PolicyViolationError(
                f"{self.operation.name} writes more records than one batch may have, and "
                "metadata.version "
                f"{MetadataVersion.from_level(metadata_version).text} has no transactions"
            )
        self._has_begun, self._first_chunk = True, chunk
        return Records.of([records.BeginTransaction(name=self._name)], metadata_version)

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
        self._generator.close()

    def expires_at_ms(self, max_transaction_ms: float) -> float:
        return self._since_ms + max_transaction_ms

    def timeout_error(self, now_ms: float) -> RequestTimedOutError:
        taken_ms = now_ms - self._since_ms
        return RequestTimedOutError(
            f"{self.operation.name} was aborted after {taken_ms:.0f} ms: a metadata transaction is "
            "bounded by max_transaction_ms, because heartbeats that write records wait for it; "
            "send smaller requests"
        )
