"""Report the directories of replicas to the controller, until it has answered (KIP-858).

`DirectoryAssignments` collects the reports, and has one AssignReplicasToDirs in flight. A report
that the metadata show already, or whose replica is gone, is dropped before it is sent. Used by
``replica_driver``. Rules: Kafka's ``AssignmentsManager`` (4.3.1).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from kraft.broker.replication.messages import PartitionId
from kraft.broker.replication.replication_output import ReplicaDirectory
from kraft.broker.replication_rpcs import assignment_errors, assignment_request
from kraft.broker.request_channels import RequestChannel
from kraft.errors import KraftError, error_name
from kraft.protocol.assign_replicas_to_dirs import (
    ASSIGN_REPLICAS_TO_DIRS,
    AssignReplicasToDirsResponseData,
)

#: Partitions of one request; a response to more could be too large for Kafka's controller.
MAX_PARTITIONS = 2250
#: Pauses before a request is repeated, in s.
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 10.0

logger = logging.getLogger(__name__)


class DirectoryAssignments:
    """The reports without an answer.

    ``broker_epoch`` returns the present one; ``is_needed`` tells whether a report still says
    something new.
    """

    def __init__(
        self,
        channel: RequestChannel,
        broker_id: int,
        broker_epoch: Callable[[], int],
        is_needed: Callable[[PartitionId, bytes], bool],
        *,
        timeout_ms: float,
    ) -> None:
        self._channel = channel
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._is_needed = is_needed
        self._timeout_ms = timeout_ms
        self._waiting: dict[PartitionId, bytes] = {}
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def report(self, directories: Iterable[ReplicaDirectory]) -> None:
        """Report the directory of each replica; a later report replaces an earlier one."""
        self._waiting.update(directories)
        if self._waiting and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._send_all())

    async def _send_all(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while batch := self._next_batch():
            if await self._send(batch):
                pause_s = _FIRST_PAUSE_S
            else:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        self._task = None

    def _next_batch(self) -> dict[PartitionId, bytes]:
        """Return the next reports; forget those that are not needed any more."""
        batch: dict[PartitionId, bytes] = {}
        for id, directory in list(self._waiting.items()):
            if not self._is_needed(id, directory):
                del self._waiting[id]
            elif len(batch) < MAX_PARTITIONS:
                batch[id] = directory
        return batch

    async def _send(self, batch: dict[PartitionId, bytes]) -> bool:
        """Send one request; return whether every report in it was accepted."""
        request = assignment_request(self._broker_id, self._broker_epoch(), batch)
        try:
            response = await self._channel.call(
                ASSIGN_REPLICAS_TO_DIRS,
                request,
                AssignReplicasToDirsResponseData,
                timeout_ms=self._timeout_ms,
            )
        except (KraftError, OSError) as error:
            logger.warning("directories of %d replicas are not assigned: %s", len(batch), error)
            return False
        if response.error_code:
            logger.warning(
                "directories of %d replicas are not assigned: %s",
                len(batch),
                error_name(response.error_code),
            )
            return False
        rejected = 0
        for id, error_code in assignment_errors(response):
            if error_code:
                rejected += 1
            elif self._waiting.get(id) == batch.get(id):
                self._waiting.pop(id, None)
        if rejected:
            logger.warning(
                "the directories of %d of %d replicas were rejected", rejected, len(batch)
            )
        return not rejected

    def close(self) -> None:
        """Send nothing more."""
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()
            self._task = None
