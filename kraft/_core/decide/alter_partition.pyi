"""AlterPartition versions 2 and 3: from request bytes to record bytes and response bytes.

Rules: ``ReplicationControlManager.alterPartition`` of Kafka 4.3.1; KIP-704, KIP-841, KIP-903.
"""

from typing_extensions import Buffer

from kraft._core.bytes.batch import BatchBuilder
from kraft._core.decide.election import ElectionContext

class AlterPartitionRequest:
    """A parsed request with ``partition_count`` partitions, the first ``decided_count`` decided.

    The request's body starts after its header, at byte ``position`` of ``body``, which must not
    change during the life of this object. Raises CorruptRecordError with the position of malformed
    bytes, UnsupportedVersionError for versions other than 2 and 3.
    """

    broker_id: int
    broker_epoch: int
    partition_count: int
    decided_count: int
    def __init__(self, body: Buffer, version: int, position: int = 0) -> None: ...
    def decide(self, context: ElectionContext, builder: BatchBuilder, limit: int) -> None:
        """Decide about the next partitions, at most ``limit``; append at most a record for each.

        The caller has checked the broker's epoch. The second entry of a duplicate partition is
        rejected. Takes time in proportion to the partitions.
        """

    def encode_response(self) -> bytes:
        """Return the response body for the partitions that were decided; call it after the last."""

def encode_error_response(error: int) -> bytes:
    """Return the body of a response that rejects the whole request with Kafka's ``error`` code."""
