"""Slow reference implementation of `kraft._core.decide.placement`: Kafka's striped placement.

One list for each rack and side, `%` where the kernel multiplies or wraps, and a HashMap with real
buckets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Random:
    """java.util.Random, from the documentation of its methods."""

    def __init__(self, seed: int) -> None:
        self.state = (seed ^ 0x5DEECE66D) % 2**48

    def bits(self, count: int) -> int:
        """Return the upper `count` bits of the next state, as an unsigned number."""
        self.state = (self.state * 0x5DEECE66D + 11) % 2**48
        return self.state >> (48 - count)

    def any_int(self) -> int:
        drawn = self.bits(32)
        return drawn - 2**32 if drawn >= 2**31 else drawn

    def below(self, bound: int) -> int:
        if bound.bit_count() == 1:
            return bound * self.bits(31) // 2**31
        while True:
            drawn = self.bits(31)
            if drawn < 2**31 // bound * bound:
                return drawn % bound

    def shuffle(self, values: list[Any]) -> None:
        for last in range(len(values) - 1, 0, -1):
            other = self.below(last + 1)
            values[last], values[other] = values[other], values[last]


class HashMap:
    """The key order of java.util.HashMap: buckets, and when they double."""

    def __init__(self) -> None:
        self.buckets: list[list[str | None]] = [[] for _ in range(16)]

    def _bucket(self, rack: str | None) -> list[str | None]:
        code = 0
        units = utf_16(rack or "")
        for at in range(0, len(units), 2):
            code = (31 * code + 256 * units[at] + units[at + 1]) % 2**32
        return self.buckets[(code ^ code >> 16) % len(self.buckets)]

    def _double(self) -> None:
        racks = self.racks()
        self.buckets = [[] for _ in range(2 * len(self.buckets))]
        for rack in racks:
            self._bucket(rack).append(rack)

    def add(self, rack: str | None) -> None:
        bucket = self._bucket(rack)
        bucket.append(rack)
        if len(bucket) > 8 and len(self.buckets) < 64:
            self._double()
        if 4 * len(self.racks()) > 3 * len(self.buckets):
            self._double()

    def racks(self) -> list[str | None]:
        return [rack for bucket in self.buckets for rack in bucket]


def utf_16(text: str) -> bytes:
    """Return bytes that sort as Java's strings do."""
    return text.encode("utf-16-be", "surrogatepass")


class RoundRobin:
    """The fenced, or the unfenced, brokers of a rack; each stripe starts at the next one."""

    def __init__(self, brokers: list[int], random: Random) -> None:
        self.brokers = sorted(brokers)
        self.start = random.below(len(brokers)) if brokers else 0
        self.given = 0
        self.stripe = 0

    def next(self, stripe: int) -> int | None:
        if self.stripe != stripe:
            self.stripe, self.given, self.start = stripe, 0, self.start + 1
        if self.given >= len(self.brokers):
            return None
        self.given += 1
        # The start only grows; a shuffle keeps it, so it is used modulo the size.
        return self.brokers[(self.start + self.given - 1) % len(self.brokers)]


class RefusedError(Exception):
    """The request was rejected, after its draws were made."""


def place(
    random: Random,
    brokers: Sequence[tuple[int, str | None, bool]],
    partition_count: int,
    replication_factor: int,
) -> list[list[int]]:
    """Return the replicas of each partition; `brokers` are (id, rack, fenced)."""
    by_hash = HashMap()
    for rack in dict.fromkeys(rack for _, rack, _ in brokers):
        by_hash.add(rack)
    fenced: dict[str | None, RoundRobin] = {}
    unfenced: dict[str | None, RoundRobin] = {}
    for rack in by_hash.racks():
        for lists, side in ((fenced, True), (unfenced, False)):
            members = [id for id, where, is_fenced in brokers if (where, is_fenced) == (rack, side)]
            lists[rack] = RoundRobin(members, random)
    racks = sorted(by_hash.racks(), key=lambda rack: (rack is not None, utf_16(rack or "")))
    first = random.below(len(racks)) if racks else 0
    leaders = sum(not is_fenced for _, _, is_fenced in brokers)
    if not 0 < replication_factor <= len(brokers) or leaders == 0:
        raise RefusedError

    placed = []
    stripe = 0
    for _ in range(partition_count):
        if stripe == leaders > 1:
            random.shuffle(racks)
            for rack in by_hash.racks():
                random.shuffle(fenced[rack].brokers)
                random.shuffle(unfenced[rack].brokers)
            stripe = 0
        turn = racks[first % len(racks) :] + racks[: first % len(racks)]
        replicas = []
        for leader_rack in turn:
            leader = unfenced[leader_rack].next(stripe)
            if leader is not None:
                replicas.append(leader)
                break
        at = 0
        leader_rack_sits_out = True
        while len(replicas) < replication_factor:
            rack = turn[at % len(turn)]
            at += 1
            if rack == leader_rack and leader_rack_sits_out:
                leader_rack_sits_out = False
                continue
            follower = unfenced[rack].next(stripe)
            if follower is None:
                follower = fenced[rack].next(stripe)
            if follower is not None:
                replicas.append(follower)
        placed.append(replicas)
        stripe += 1
        first += 1
    return placed
