"""Producer id blocks: check that the controllers allocate each block once, in ascending order."""

from __future__ import annotations

from kraft.controller.brokers.producer_ids import ProducerIdBlock
from kraft.simulation.batch_tree import Violation


class ProducerIdBlocks:
    """The allocated blocks; each is allocated once, and later ones lie above earlier ones."""

    def __init__(self) -> None:
        self._given: list[tuple[float, int, int]] = []
        self.count = 0

    def take(self, block: ProducerIdBlock, asked: float, given: float) -> None:
        self.count += 1
        end = block.first + block.size
        for answered, first, other_end in reversed(self._given):
            if block.first < other_end and first < end:
                raise Violation(
                    "producer_ids_are_allocated_once", f"{block} beside [{first}, {other_end})"
                )
            if answered < asked and block.first < first:
                raise Violation(
                    "producer_ids_ascend",
                    f"{block} was asked for after [{first}, {other_end}) had been given out",
                )
        self._given.append((given, block.first, end))
