"""Iteration orders of hash tables of Java and of Kafka.

Kafka places replicas in the order of two tables: ``StripedReplicaPlacer`` iterates over racks in a
``HashMap<Optional<String>, ...>``, and ``BrokerHeartbeatManager`` over brokers in a
``HashMap<Integer, ...>``, which an activated controller fills from a ``TimelineHashMap``. The same
placement for the same seed needs the same order. Called by ``placement`` and by the controller's
``sessions`` once for each change of the brokers.

A bucket of a ``HashMap`` is a list in order of insertion. The ninth entry of a bucket doubles a
table of fewer than 64 buckets; in a larger table it turns the bucket into a red-black tree, whose
root is moved to the front and whose new entries come after their parent. Two keys of one hash
code in such a tree are compared by ``System.identityHashCode``, which differs from run to run of
Java: only that order is not reproduced.

Sources: ``java.util.HashMap`` (JDK 17), Kafka's ``BaseHashTable``, ``SnapshottableHashTable``.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Imports the codec now: a new leader's first decision would wait for it.
codecs.lookup("utf-16-le")

_FIRST_BUCKETS = 16
_FEWEST_BUCKETS_WITH_TREES = 64
_LONGEST_LIST = 8
_SMALLEST_TREE = 7
# 2**64 divided by the golden ratio, odd.
_FIBONACCI = 0x9E3779B97F4A7C15


def java_string_hash(text: str) -> int:
    """Return ``String.hashCode`` as an unsigned 32-bit number: over UTF-16 code units, base 31."""
    code = 0
    units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    for unit in units:
        code = (code * 31 + unit) & 0xFFFFFFFF
    return code


def hash_map_order(racks: Sequence[str | None]) -> list[str | None]:
    """Return distinct racks, given in order of insertion, in the iteration order of a HashMap.

    The keys are of type ``Optional<String>``; None is the empty one.
    """
    codes = [0 if rack is None else java_string_hash(rack) for rack in racks]
    return [racks[at] for at in _positions(codes, 0)]


def hash_map_order_of_ids(ids: Iterable[int], most: int = 0) -> list[int]:
    """Return distinct ids, given in order of insertion, in the order of a HashMap<Integer, ...>.

    ``most`` is the most entries that the map ever had: a map that shrinks keeps its buckets.
    """
    given = list(ids)
    return [given[at] for at in _positions([id & 0xFFFFFFFF for id in given], most)]


def timeline_map_order(ids: Iterable[int], most: int) -> list[int]:
    """Return distinct ids, given in order of insertion, in the order of Kafka's TimelineHashMap.

    ``most`` is one more than the most entries before any insertion: the map doubles before it
    checks whether the key exists.
    """
    slots, bits = 2, 1
    while most * 0.75 > slots:
        slots, bits = 2 * slots, bits + 1
    # Its iterator returns the last entry of a slot first.
    latest_first = np.array(list(ids), dtype=np.int64)[::-1]
    slot_of = latest_first.astype(np.uint64) * np.uint64(_FIBONACCI) >> np.uint64(64 - bits)
    return _as_ints(latest_first[np.argsort(slot_of, kind="stable")])


class _Tree:
    """A bucket that has become a red-black tree.

    ``chain`` lists its entries in the iteration order of the map.
    """

    def __init__(self, entries: Sequence[int], hashes: Sequence[int]) -> None:
        self._hashes = hashes
        self._parent: dict[int, int | None] = {}
        self._children: dict[int, list[int | None]] = {}
        self._red: set[int] = set()
        self._root: int | None = None
        self.chain = list(entries)
        for entry in entries:
            self._link(entry)
        self._move_root_to_front()

    def add(self, entry: int) -> None:
        parent = self._link(entry)
        assert parent is not None, "a tree is never empty"
        self.chain.insert(self.chain.index(parent) + 1, entry)
        self._move_root_to_front()

    def _move_root_to_front(self) -> None:
        assert self._root is not None
        self.chain.remove(self._root)
        self.chain.insert(0, self._root)

    def _link(self, entry: int) -> int | None:
        """Insert an entry as a leaf and balance the tree; return the parent of the leaf."""
        parent, at, side = None, self._root, 0
        while at is not None:
            parent = at
            side = int(self._hashes[entry] > self._hashes[at])
            at = self._children[at][side]
        self._parent[entry], self._children[entry] = parent, [None, None]
        self._red.add(entry)
        if parent is None:
            self._root = entry
        else:
            self._children[parent][side] = entry
        self._balance(entry)
        return parent

    def _balance(self, entry: int) -> None:
        """Restore the red-black rules above a red entry (the textbook algorithm)."""
        parent = self._parent[entry]
        while parent is not None and parent in self._red:
            grandparent = self._parent[parent]
            assert grandparent is not None, "the root is black"
            side = self._children[grandparent].index(parent)
            uncle = self._children[grandparent][1 - side]
            if uncle is not None and uncle in self._red:
                self._red -= {parent, uncle}
                self._red.add(grandparent)
                entry, parent = grandparent, self._parent[grandparent]
                continue
            if entry == self._children[parent][1 - side]:
                self._rotate(parent, side)
                entry, parent = parent, entry
            self._red.discard(parent)
            self._red.add(grandparent)
            self._rotate(grandparent, 1 - side)
        assert self._root is not None
        self._red.discard(self._root)

    def _rotate(self, top: int, side: int) -> None:
        """Rotate ``top`` down to ``side`` (0: left); its child on the other side replaces it."""
        child = self._children[top][1 - side]
        assert child is not None
        inner = self._children[child][side]
        self._children[top][1 - side] = inner
        if inner is not None:
            self._parent[inner] = top
        above = self._parent[top]
        self._parent[child], self._parent[top] = above, child
        self._children[child][side] = top
        if above is None:
            self._root = child
        else:
            self._children[above][self._children[above].index(top)] = child


def _positions(codes: Sequence[int], most: int) -> list[int]:
    """Return the positions of unsigned hash codes, put into a HashMap one by one, in its order."""
    hashes = np.array(codes, dtype=np.uint32)
    hashes ^= hashes >> np.uint32(16)
    buckets = _FIRST_BUCKETS
    while len(codes) > buckets * 3 // 4:
        if not _are_lists_short(hashes, buckets):
            return _positions_one_by_one(_as_ints(hashes), most)
        buckets *= 2
    if not _are_lists_short(hashes, buckets):
        return _positions_one_by_one(_as_ints(hashes), most)
    while most > buckets * 3 // 4:
        buckets *= 2
    return _as_ints(np.argsort(hashes & np.uint32(buckets - 1), kind="stable"))


def _as_ints(numbers: NDArray[Any]) -> list[int]:
    ints: list[int] = numbers.tolist()  # type: ignore[assignment]
    return ints


def _are_lists_short(hashes: NDArray[np.uint32], buckets: int) -> bool:
    """Return whether no bucket becomes a tree or doubles the table while it has ``buckets``.

    A table doubles after the insertion that exceeds three quarters of its buckets.
    """
    held = hashes[: buckets * 3 // 4 + 1] & np.uint32(buckets - 1)
    return not len(held) or int(np.bincount(held).max()) <= _LONGEST_LIST


def _positions_one_by_one(spread: Sequence[int], most: int) -> list[int]:
    """Return the same as `_positions`, for hashes with many collisions."""
    # A tree compares hashes as signed numbers.
    signed = [code - (code >> 31 << 32) for code in spread]
    buckets: list[list[int] | _Tree] = [[] for _ in range(_FIRST_BUCKETS)]
    for at, code in enumerate(spread):
        number = code & (len(buckets) - 1)
        bucket = buckets[number]
        if isinstance(bucket, _Tree):
            bucket.add(at)
        else:
            bucket.append(at)
            if len(bucket) > _LONGEST_LIST:
                if len(buckets) < _FEWEST_BUCKETS_WITH_TREES:
                    buckets = _doubled(buckets, spread, signed)
                else:
                    buckets[number] = _Tree(bucket, signed)
        if at + 1 > len(buckets) * 3 // 4:
            buckets = _doubled(buckets, spread, signed)
    while most > len(buckets) * 3 // 4:
        buckets = _doubled(buckets, spread, signed)
    return [at for bucket in buckets for at in _chain(bucket)]


def _chain(bucket: list[int] | _Tree) -> list[int]:
    return bucket.chain if isinstance(bucket, _Tree) else bucket


def _doubled(
    buckets: Sequence[list[int] | _Tree], spread: Sequence[int], signed: Sequence[int]
) -> list[list[int] | _Tree]:
    """Return twice as many buckets; each is split into two that keep its order."""
    parted: tuple[list[list[int] | _Tree], list[list[int] | _Tree]] = ([], [])
    for bucket in buckets:
        chain = _chain(bucket)
        halves: tuple[list[int], list[int]] = ([], [])
        for at in chain:
            halves[bool(spread[at] & len(buckets))].append(at)
        for half, made in zip(halves, parted, strict=True):
            if not isinstance(bucket, _Tree) or len(half) < _SMALLEST_TREE:
                made.append(half)
            elif len(half) == len(chain):
                made.append(bucket)
            else:
                made.append(_Tree(half, signed))
    return [*parted[0], *parted[1]]
