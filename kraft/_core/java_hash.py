"""The order in which hash tables of Java and of Kafka give their entries.

Kafka places replicas in the order of two tables: ``StripedReplicaPlacer`` goes through racks in a
``HashMap<Optional<String>, ...>``, and ``BrokerHeartbeatManager`` through brokers in a
``HashMap<Integer, ...>``, which an activated controller fills from a ``TimelineHashMap``. The same
placement for the same seed needs the same order. Called by ``placement`` and by the controller's
``sessions`` once for each change of the brokers, so that plain Python is fast enough.

A bucket of a ``HashMap`` is a list in order of insertion. The ninth entry of a bucket doubles a
table of fewer than 64 buckets; in a larger table it turns the bucket into a red-black tree, whose
root is moved to the front and whose new entries come behind their parent. Two keys of one hash
code in such a tree are compared by ``System.identityHashCode``, which differs from run to run of
Java: only that order is not reproduced.

Sources: ``java.util.HashMap`` (JDK 17), Kafka's ``BaseHashTable``, ``SnapshottableHashTable``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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
    """Return distinct racks, given in order of insertion, in the order of a HashMap.

    The keys are of type ``Optional<String>``; None is the empty one.
    """
    codes = [0 if rack is None else java_string_hash(rack) for rack in racks]
    return [racks[at] for at in _positions(codes, 0)]


def hash_map_order_of_ids(ids: Iterable[int], most: int = 0) -> list[int]:
    """Return distinct ids, given in order of insertion, in the order of a HashMap<Integer, ...>.

    ``most`` is how many entries the map has had at once: a map that shrinks keeps its buckets.
    """
    given = list(ids)
    return [given[at] for at in _positions([id & 0xFFFFFFFF for id in given], most)]


def timeline_map_order(ids: Iterable[int], most: int) -> list[int]:
    """Return distinct ids, given in order of insertion, in the order of Kafka's TimelineHashMap.

    ``most`` is one more than the entries that the map had when anything was put into it, at most:
    the map doubles before it looks whether the key is there already.
    """
    slots, bits = 2, 1
    while most * 0.75 > slots:
        slots, bits = 2 * slots, bits + 1
    by_slot: list[list[int]] = [[] for _ in range(slots)]
    for id in ids:
        by_slot[(id * _FIBONACCI & 0xFFFFFFFFFFFFFFFF) >> (64 - bits)].append(id)
    # Its iterator takes the last entry of a slot first.
    return [id for slot in by_slot for id in reversed(slot)]


class _Tree:
    """A bucket that has become a red-black tree.

    ``chain`` are its entries in the order in which the map's iterator gives them.
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
        """Restore the red-black rules above a red entry, as in every textbook."""
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
        """Let ``top`` sink to ``side`` (0: left); its child on the other side takes its place."""
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
    spread = [code ^ code >> 16 for code in codes]
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
    """Return twice as many buckets; each parts in two that keep its order."""
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
