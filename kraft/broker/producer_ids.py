"""Producer ids for idempotent producers, from blocks that the controller allocates.

`AllocatedProducerIds` holds the present block, and asks for the next one before it is used up. An
id is given once: ids of a block that was not used up are lost with the process. Rules: Kafka's
``RPCProducerIdManager`` (4.3.1), KIP-730.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from kraft.broker.request_channels import RequestChannel
from kraft.errors import KraftError, RequestTimedOutError, error_name
from kraft.protocol.allocate_producer_ids import (
    ALLOCATE_PRODUCER_IDS,
    AllocateProducerIdsRequestData,
    AllocateProducerIdsResponseData,
)

#: The next block is asked for when this part of the present one is used.
PREFETCH_PART = 0.9
RETRY_S = 0.05
REQUEST_TIMEOUT_MS = 30_000.0

logger = logging.getLogger(__name__)


class AllocatedProducerIds:
    """The producer ids of broker ``broker_id``; ``broker_epoch`` returns the present epoch."""

    def __init__(
        self, channel: RequestChannel, broker_id: int, broker_epoch: Callable[[], int]
    ) -> None:
        self._channel = channel
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._block = range(0)
        self._used = 0
        self._next_block: range | None = None
        self._allocation: asyncio.Task[None] | None = None

    async def next_id(self, timeout_ms: float) -> int:
        """Return an id that nobody has; wait for a block of ids if there is none.

        Raises `RequestTimedOutError` if the controller allocates none in time.
        """
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        while True:
            if self._used >= PREFETCH_PART * len(self._block):
                self._allocate()
            if self._used == len(self._block) and self._next_block is not None:
                self._block, self._used, self._next_block = self._next_block, 0, None
            if self._used < len(self._block):
                self._used += 1
                return self._block[self._used - 1]
            left_s = deadline - asyncio.get_running_loop().time()
            assert self._allocation is not None
            done, _ = await asyncio.wait((self._allocation,), timeout=max(left_s, 0.0))
            if not done:
                raise RequestTimedOutError(
                    f"the controller has allocated no producer ids within {timeout_ms:.0f} ms"
                )

    def _allocate(self) -> None:
        if self._allocation is None and self._next_block is None:
            self._allocation = asyncio.get_running_loop().create_task(self._allocate_block())

    async def _allocate_block(self) -> None:
        """Ask for a block until the controller has allocated one."""
        while self._next_block is None:
            try:
                self._next_block = await self._allocated()
            except (KraftError, OSError) as error:
                logger.warning("no producer ids were allocated: %s", error)
                await asyncio.sleep(RETRY_S)
        self._allocation = None

    async def _allocated(self) -> range:
        response = await self._channel.call(
            ALLOCATE_PRODUCER_IDS,
            AllocateProducerIdsRequestData(self._broker_id, self._broker_epoch()),
            AllocateProducerIdsResponseData,
            timeout_ms=REQUEST_TIMEOUT_MS,
        )
        if response.error_code:
            raise KraftError(error_name(response.error_code))
        first = response.producer_id_start
        return range(first, first + response.producer_id_len)

    def close(self) -> None:
        """Ask for nothing more."""
        if self._allocation is not None:
            self._allocation.cancel()
