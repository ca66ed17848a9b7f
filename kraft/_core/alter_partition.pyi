"""AlterPartition, from request bytes to record bytes and response bytes, versions 2 and 3.

Rules: ``ReplicationControlManager.alterPartition`` of Kafka 4.3.1; KIP-704, KIP-841, KIP-903.
"""

from typing_extensions import Buffer

from kraft._core.batch import BatchBuilder
from kraft._core.election import ElectionContext

class AlterPartitionRequest:
    """A request, read as a whole; ``partition_count`` partitions, of which the first
    ``decided_count`` were decided about.

    ``body`` is what stands behind the request header, from byte ``position`` on; it must not change
    as long as this lives. Raises CorruptRecordError with the position where the bytes are not what
    the ``version`` says, UnsupportedVersionError for another one than 2 and 3.
    """

    broker_id: int
    broker_epoch: int
    partition_count: int
    decided_count: int
    def __init__(self, body: Buffer, version: int, position: int = 0) -> None: ...
    def decide(self, context: ElectionContext, builder: BatchBuilder, limit: int) -> None:
        """Decides about the next partitions, at most ``limit``: a record each at most.

        Whether the broker may ask at all (its epoch) is for the caller to check. A partition that
        is named twice is refused the second time. Costs what is asked about.
        """

    def encode_response(self) -> bytes:
        """The body of the response, for what was decided: it is whole once everything was."""

def encode_error_response(error: int) -> bytes:
    """The body of a response that refuses the request as a whole with Kafka's ``error`` code."""
