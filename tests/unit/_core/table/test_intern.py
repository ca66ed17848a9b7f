"""Hash maps from UUIDs and names to dense numbers: insert, remove, restore, save and load."""

from __future__ import annotations

import random
import subprocess
import sys
from typing import Any

import pytest

from kraft._core.table.intern import NameMap, UuidMap


def uuid(number: int) -> bytes:
    return number.to_bytes(16, "big")


def test_numbers_are_assigned_in_order_and_found_again() -> None:
    uuids, names = UuidMap(), NameMap()
    for number in range(1000):
        assert uuids.put(uuid(number * 7919)) == number
        assert names.put(f"topic-{number}") == number
    assert len(uuids) == len(names) == uuids.count == 1000
    for number in range(1000):
        assert uuids.get(uuid(number * 7919)) == uuids.put(uuid(number * 7919)) == number
        assert uuids.key(number) == uuid(number * 7919)
        assert names.get(f"topic-{number}") == number
        assert names.key(number) == f"topic-{number}"
    assert uuids.get(uuid(1)) == names.get("topic-1000") == -1


def test_random_insertions_and_removals_match_a_dict() -> None:
    chance = random.Random(11)
    names, uuids = NameMap(seed=5), UuidMap(seed=5)
    live: dict[str, int] = {}
    gone: dict[int, str] = {}
    for step in range(4000):
        turn = chance.random()
        if turn < 0.5 or not live:
            name = f"{step:x}"
            live[name] = names.put(name)
            assert uuids.put(uuid(step)) == live[name]
        elif turn < 0.8 or not gone:
            name = chance.choice(list(live))
            number = live.pop(name)
            names.remove(number)
            uuids.remove(number)
            gone[number] = name
        else:
            number = chance.choice(list(gone))
            names.bring_back(number)
            uuids.bring_back(number)
            live[gone.pop(number)] = number
        if step % 500 == 499:
            assert len(names) == len(uuids) == len(live)
            assert {name: names.get(name) for name in live} == live
            assert all(uuids.get(uuids.key(number)) == number for number in live.values())
            assert {names.get(name) for name in gone.values()} <= {-1}
            assert {uuids.get(uuids.key(number)) for number in gone} <= {-1}


def test_a_removed_name_can_be_inserted_under_a_new_number() -> None:
    names = NameMap()
    names.put("a")
    names.remove(0)
    assert names.put("a") == 1
    assert (names.get("a"), names.key(0), names.count, len(names)) == (1, "a", 2, 1)


@pytest.mark.parametrize("name", ["", "a", "1234567", "12345678", "123456789", "é" * 100])
def test_names_of_every_length_are_found(name: str) -> None:
    names = NameMap()
    assert names.put(name) == 0
    assert names.get(name) == 0
    assert names.get(name + "\0") == -1
    assert names.key(0) == name


def test_absent_entries_are_rejected() -> None:
    uuids = UuidMap()
    for wrong in (b"", b"x" * 15, b"x" * 17):
        with pytest.raises(ValueError, match="16 bytes"):
            uuids.get(wrong)
        with pytest.raises(ValueError, match="16 bytes"):
            uuids.put(wrong)
    uuids.put(uuid(1))
    with pytest.raises(KeyError):
        uuids.bring_back(0)
    uuids.remove(0)
    for number in (-1, 0, 1):
        with pytest.raises(KeyError):
            uuids.remove(number)
    with pytest.raises(IndexError):
        uuids.key(1)
    with pytest.raises(IndexError):
        NameMap().key(0)


def states() -> tuple[dict[str, Any], dict[str, Any]]:
    uuids, names = UuidMap(seed=3), NameMap(seed=3)
    for number in range(20):
        uuids.put(uuid(number))
        names.put(f"name {number}")
    uuids.remove(4)
    names.remove(4)
    return (
        {k: bytearray(v) if isinstance(v, bytes) else v for k, v in uuids.state().items()},
        {k: bytearray(v) if isinstance(v, bytes) else v for k, v in names.state().items()},
    )


def test_a_map_over_borrowed_memory_continues_as_its_source() -> None:
    of_uuids, of_names = states()
    before = bytes(of_names["text"])
    uuids, names = UuidMap.from_state(**of_uuids), NameMap.from_state(**of_names)
    assert [uuids.get(uuid(n)) for n in range(20)] == [-1 if n == 4 else n for n in range(20)]
    assert [names.get(f"name {n}") for n in range(20)] == [-1 if n == 4 else n for n in range(20)]
    # A map that grows copies the borrowed memory to its own.
    assert uuids.put(uuid(99)) == names.put("another") == 20
    for number in range(200):
        names.put(f"more {number}")
        uuids.put(uuid(1000 + number))
    names.bring_back(4)
    uuids.bring_back(4)
    assert names.get("name 4") == uuids.get(uuid(4)) == 4
    assert names.get("more 199") == uuids.get(uuid(1199)) == 220
    assert bytes(of_names["text"]) == before


@pytest.mark.parametrize("damage", ["count", "slots", "live", "order", "text", "torn"])
def test_slots_that_contradict_the_keys_are_rejected(damage: str) -> None:
    of_uuids, of_names = states()
    if damage == "count":
        del of_uuids["keys"][-16:]
        del of_names["ends"][-8:]
    elif damage == "slots":
        of_uuids["slots"][:4] = of_names["slots"][:4] = b"\xff\xff\0\0"
    elif damage == "live":
        of_uuids["live"] = of_names["live"] = 3
    elif damage == "order":
        of_names["ends"][8:16] = bytes(8)
        of_uuids["slots"] += b"\0" * 4
    elif damage == "text":
        of_names["text"] += b"!"
        of_uuids["slots"] = bytearray()
    else:
        del of_names["ends"][-1]
        del of_uuids["keys"][-1]
    with pytest.raises(ValueError, match="hash map"):
        UuidMap.from_state(**of_uuids)
    with pytest.raises(ValueError, match="hash map"):
        NameMap.from_state(**of_names)


def test_memory_is_counted() -> None:
    names = NameMap()
    small = names.memory_size
    for number in range(1000):
        names.put(f"topic-{number:04}")
    assert names.memory_size - small >= 1000 * (10 + 8 + 4)
    assert names.memory_size <= 1000 * (10 + 8 + 16) * 2


def test_entries_are_found_while_they_move_to_more_slots() -> None:
    # Beyond 4,096 slots a map grows by moving a few entries at each insertion.
    chance = random.Random(12)
    names, uuids = NameMap(seed=5), UuidMap(seed=5)
    live: dict[str, int] = {}
    gone: dict[int, str] = {}

    def insert(step: int) -> None:
        name = f"{step:x}"
        live[name] = names.put(name)
        assert uuids.put(uuid(step)) == live[name]

    for step in range(8_192):
        insert(step)
    assert names.memory_size < 300_000
    for step in range(8_192, 8_192 + 5_000):
        insert(step)
        turn = chance.random()
        if turn < 0.3:
            name = chance.choice(list(live))
            number = live.pop(name)
            names.remove(number)
            uuids.remove(number)
            gone[number] = name
        elif turn < 0.4 and gone:
            number = chance.choice(list(gone))
            names.bring_back(number)
            uuids.bring_back(number)
            live[gone.pop(number)] = number
        if step % 250 == 0:
            assert {name: names.get(name) for name in live} == live
            assert all(uuids.get(uuids.key(number)) == number for number in live.values())
            assert {names.get(name) for name in gone.values()} <= {-1}
            assert {uuids.get(uuids.key(number)) for number in gone} <= {-1}
    assert len(names) == len(uuids) == len(live)


@pytest.mark.parametrize("count", [8_192, 8_193, 8_500, 12_000])
def test_a_map_saved_while_its_entries_move_has_them_all(count: int) -> None:
    names, uuids = NameMap(), UuidMap()
    for number in range(count):
        names.put(f"topic-{number}")
        uuids.put(uuid(number))
    saved = {key: writable(value) for key, value in names.state().items()}
    copied = NameMap.from_state(**saved)
    assert [copied.get(f"topic-{number}") for number in range(count)] == list(range(count))
    saved = {key: writable(value) for key, value in uuids.state().items()}
    assert [UuidMap.from_state(**saved).get(uuid(number)) for number in range(count)] == list(
        range(count)
    )
    assert names.put("one more") == uuids.put(b"one more".ljust(16)) == count


def writable(value: Any) -> Any:
    return bytearray(value) if isinstance(value, bytes) else value


def test_without_reserved_addresses_maps_grow_in_other_memory() -> None:
    program = """
import resource
from kraft._core.table.intern import NameMap, UuidMap
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (256 << 20),) * 2)
names, uuids = NameMap(), UuidMap()
for number in range(100_000):
    assert names.put(f"topic-{number}") == uuids.put(number.to_bytes(16, "big")) == number
assert names.memory_size + uuids.memory_size > 4 << 20
for number in range(100_000):
    assert names.get(f"topic-{number}") == uuids.get(number.to_bytes(16, "big")) == number
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)
