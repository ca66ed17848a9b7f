"""Large requests and responses are translated in slices, and the event loop runs in between."""

from __future__ import annotations

import asyncio
from collections import Counter

from kraft.controller.runtime.requests import alter_configs
from kraft.image.configs import TOPIC
from kraft.protocol.alter_configs import AlterableConfig, AlterConfigsResource
from kraft.server.apis import slices
from kraft.server.apis.api import CallContext
from kraft.server.apis.configs import _allowed_resources, _values
from kraft.server.apis.slices import ENTRIES_PER_SLICE, in_slices
from tests.harness.controller import leading

COUNT = 10 * ENTRIES_PER_SLICE + 7


async def turns_of(count: int) -> Counter[int]:
    """Translate so many entries; return how many of them each turn of the loop has translated."""
    turn, is_done = 0, False
    seen: Counter[int] = Counter()

    async def count_turns() -> None:
        nonlocal turn
        while not is_done:
            turn += 1
            await asyncio.sleep(0)

    def translate(number: int) -> int:
        seen[turn] += 1
        return -number

    counting = asyncio.create_task(count_turns())
    await asyncio.sleep(0)
    made = await in_slices(translate, iter(range(count)))
    is_done = True
    await counting
    assert made == [-number for number in range(count)]
    return seen


def test_no_turn_of_the_loop_translates_more_than_a_slice() -> None:
    seen = asyncio.run(turns_of(COUNT))
    assert max(seen.values()) == ENTRIES_PER_SLICE
    assert len(seen) == COUNT // ENTRIES_PER_SLICE + 1


def test_a_small_request_is_translated_at_once() -> None:
    for count in (0, 1, ENTRIES_PER_SLICE - 1):
        assert len(asyncio.run(turns_of(count))) == min(count, 1)


def test_the_resources_of_a_large_request_are_checked_and_read_in_slices() -> None:
    resources = [
        AlterConfigsResource(TOPIC if n % 3 else 99, f"t{n}", [AlterableConfig("a", str(n))])
        for n in range(COUNT)
    ]
    turns = 0

    async def read() -> int:
        nonlocal turns

        async def count_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count_turns())
        allowed, rejected = await _allowed_resources(resources, CallContext(2, "AlterConfigs"))
        wanted = await in_slices(_values, allowed)
        counting.cancel()
        assert [name for (_, name), _ in wanted] == [f"t{n}" for n in range(COUNT) if n % 3]
        assert [name for _, name in rejected] == [f"t{n}" for n in range(COUNT) if not n % 3]
        log = leading(1)
        token = log.submit(alter_configs(wanted))
        log.settle()
        return len(log.response(token))

    assert asyncio.run(read()) == sum(1 for n in range(COUNT) if n % 3)
    assert turns >= COUNT // slices.ENTRIES_PER_SLICE
