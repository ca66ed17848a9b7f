"""Compiled partitions of requests in the ZooKeeper era; test_controller_rpcs has whole requests."""

from __future__ import annotations

import random
from collections import Counter
from typing import NamedTuple

import pytest

from kraft._core.codec.partition_updates import (
    NEW_REPLICAS,
    OFFLINE_REPLICAS,
    PLAIN,
    apply_metadata,
    decode_results,
    decode_updates,
    encode_results,
    encode_updates,
)
from kraft.errors import CorruptRecordError, InvalidRequestError

DELETED = -2
LARGEST = 2**31 - 1


class Leadership(NamedTuple):
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    version: int


class Update(NamedTuple):
    leadership: Leadership
    replicas: tuple[int, ...]
    is_new: bool = False
    offline: tuple[int, ...] = ()


Updates = dict[tuple[str, int], Update]


def generated(choices: random.Random, layout: int) -> Updates:
    """Return updates of few topics whose partitions come in any order."""

    def brokers() -> tuple[int, ...]:
        return tuple(choices.choices((0, 1, 2, 300, LARGEST), k=choices.randrange(4)))

    def number() -> int:
        return choices.choice((-1, 0, 7, LARGEST))

    return {
        (choices.choice(("a", "b", "ä" * 40)), choices.randrange(30)): Update(
            Leadership(number(), number(), brokers(), number(), number()),
            brokers(),
            layout == NEW_REPLICAS and choices.random() < 0.5,
            brokers() if layout == OFFLINE_REPLICAS else (),
        )
        for _ in range(choices.randrange(40))
    }


@pytest.mark.parametrize("layout", [PLAIN, NEW_REPLICAS, OFFLINE_REPLICAS])
def test_generated_updates_are_read_as_they_were_written(layout: int) -> None:
    choices = random.Random(layout)
    for _ in range(30):
        updates = generated(choices, layout)
        body = encode_updates(5, 6, updates, layout) + b"rest"
        found = decode_updates(memoryview(body), layout, Update, Leadership)
        assert found == (5, 6, updates, len(body) - 4)
        for key, update in found[2].items():
            assert type(update) is Update
            assert type(update.leadership) is Leadership
            assert list(found[2]).index(key) == list(updates).index(key)


@pytest.mark.parametrize("layout", [PLAIN, NEW_REPLICAS, OFFLINE_REPLICAS])
def test_updates_that_end_early_are_refused(layout: int) -> None:
    leadership = Leadership(1, 2, (1, 2), 3, 4)
    updates = {("topic", 0): Update(leadership, (1, 2)), ("other", 1): Update(leadership, (2,))}
    body = encode_updates(5, 6, updates, layout)
    for end in range(len(body)):
        with pytest.raises(CorruptRecordError):
            decode_updates(body[:end], layout, Update, Leadership)


@pytest.mark.parametrize("position", [8, 12, 31, 43])
@pytest.mark.parametrize("size", [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff"])
def test_sizes_beyond_the_body_are_refused(position: int, size: bytes) -> None:
    """Those of the partitions, the topic, and both arrays."""
    update = Update(Leadership(1, 2, (1,), 3, 4), (1,))
    body = bytearray(encode_updates(5, 6, {("t", 0): update}, PLAIN))
    body[position : position + 4] = size
    with pytest.raises(CorruptRecordError):
        decode_updates(body, PLAIN, Update, Leadership)


def test_texts_and_numbers_that_do_not_fit() -> None:
    update = Update(Leadership(1, 2, (1,), 3, 4), (1,))
    with pytest.raises(InvalidRequestError):
        encode_updates(5, 6, {("t" * 40_000, 0): update}, PLAIN)
    with pytest.raises(OverflowError):
        encode_updates(5, 6, {("t", LARGEST + 1): update}, PLAIN)
    with pytest.raises(TypeError, match="has no item"):
        encode_updates(5, 6, {("t", 0): (1, 2)}, PLAIN)
    body = encode_updates(5, 6, {("t", 0): update}, PLAIN)
    with pytest.raises(CorruptRecordError, match="a topic is not UTF-8"):
        decode_updates(body.replace(b"t", b"\xff"), PLAIN, Update, Leadership)
    with pytest.raises(TypeError, match="no class of named tuples"):
        decode_updates(body, PLAIN, int, Leadership)  # type: ignore[type-var]


def test_answers() -> None:
    results = {("a", 1): 0, ("a", 2): -1, ("ä", 7): 56}
    body = encode_results(11, results)
    assert decode_results(memoryview(body)) == (11, results)
    for end in range(len(body)):
        with pytest.raises(CorruptRecordError):
            decode_results(body[:end])
    with pytest.raises(CorruptRecordError):
        decode_results(body + b"\0")


def test_metadata_and_its_counts_follow_the_updates() -> None:
    choices = random.Random(3)
    metadata: Updates = {}
    expected: Updates = {}
    leaders: Counter[int] = Counter()
    out_of_sync = 0
    for _ in range(60):
        updates = {
            ("t", choices.randrange(20)): Update(
                Leadership(
                    choices.choice((DELETED, -1, 1, 2)), 1, (1,) * choices.randrange(3), 1, 1
                ),
                (1, 2),
            )
            for _ in range(choices.randrange(8))
        }
        out_of_sync += apply_metadata(metadata, updates, leaders, DELETED)
        expected |= updates
        expected = {key: one for key, one in expected.items() if one.leadership.leader != DELETED}
        assert metadata == expected
        assert +leaders == Counter(one.leadership.leader for one in expected.values())
        assert out_of_sync == sum(len(one.leadership.isr) < 2 for one in expected.values())
