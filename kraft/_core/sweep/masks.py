"""Partitions as bit masks over their brokers: the input of a sweep over many outages.

Builds these rows from the columns of a table. A partition's brokers have numbered slots, and each
of its lists (ISR, ELR, candidates for leader, …) is a mask over the slots. Most rows fit into 8
bits (narrow, one for each row of the table). Irregular rows (reassignments in flight, many
replicas, members that are not replicas) get 64 bits (wide). Brokers are numbered from 0 by
ascending id.

Invariants: every broker in a list of a row has a slot; the replicas come first, in their order.
`kraft.lab.outages` builds rows, `_core/sweep/kernels` reads them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

#: The mask of a list with several members, where only a single member would matter.
SEVERAL = np.uint64(0xFFFFFFFFFFFFFFFF)

#: The most brokers that one partition may name.
MAX_SLOTS = 64
_IRREGULAR = 0xFFFFFFFF


# Numba caches compiled functions by the date of their file, with the values of these constants:
# after a change of one, touch `kernels.py`, too.

#: Indexes in a row of ``Rows.masks``: the lists of a partition. The leader is one bit or none, a
#: last known ELR of several members is all bits, candidates are the replicas that may lead now.
ISR, ELR, LAST_KNOWN, LEADER, CANDIDATES, REPLICAS, ADDING, REMOVING = range(8)
#: Indexes in a row of ``Rows.sizes``: the min.insync.replicas for ELRs (at most the replication
#: factor), the configured one, and the switches.
MIN_ISR, WANTED_ISR, SWITCHES = range(3)
#: Bits of the switches.
ALLOWS_UNCLEAN = 1
REMOVES_MORE_THAN_IT_ADDS = 2


class Rows(NamedTuple):
    """Partitions; the data of one is adjacent, because rows are visited in no order."""

    slots: NDArray[np.int32]  # [n, width] numbers of brokers, -1 where unused; replicas first
    masks: NDArray[Any]  # [n, 8] u8 or u64, the lowest bit for slot 0
    sizes: NDArray[np.int16]  # [n, 3]


class Holders(NamedTuple):
    """The rows of each broker: ``rows[starts[broker] : starts[broker + 1]]``, ascending."""

    starts: NDArray[np.int64]
    rows: NDArray[np.int32]


@njit(cache=True, nogil=True)
def _fill_narrow(
    topic: Any,
    packed_isr: Any,
    packed_elr: Any,
    packed_last_known: Any,
    leader: Any,
    is_narrow: Any,
    out: Any,
) -> None:
    """Fill the masks of the rows that fit into 8 slots, and set ``is_narrow`` for these rows.

    A row does not fit if its leader has no slot, or if its ISR lists a member twice.
    """
    for row in range(len(topic)):
        if topic[row] < 0 or packed_isr[row] == _IRREGULAR:
            continue
        led = 0
        for slot in range(out.slots.shape[1] - 1, -1, -1):
            broker = out.slots[row, slot]
            if broker >= 0:
                out.masks[row, REPLICAS] |= 1 << slot
                if broker == leader[row]:
                    led = 1 << slot
        if leader[row] >= 0 and led == 0:
            continue
        isr, elr, last_known, last_known_count, twice = 0, 0, 0, 0, 0
        for index in range(8):
            shift = np.uint32(4 * index)
            in_isr = (packed_isr[row] >> shift) & np.uint32(15)
            in_elr = (packed_elr[row] >> shift) & np.uint32(15)
            in_last = (packed_last_known[row] >> shift) & np.uint32(15)
            if in_isr:
                twice |= isr & (1 << (in_isr - 1))
                isr |= 1 << (in_isr - 1)
            if in_elr:
                elr |= 1 << (in_elr - 1)
            if in_last:
                last_known |= 1 << (in_last - 1)
                last_known_count += 1
        if twice:
            continue
        is_narrow[row] = True
        out.masks[row, ISR] = isr
        out.masks[row, ELR] = elr
        out.masks[row, LAST_KNOWN] = last_known if last_known_count <= 1 else 255
        out.masks[row, LEADER] = led


@njit(cache=True, nogil=True)
def _is_named_before(slots: Any, row: Any, slot: Any) -> Any:
    is_named = False
    for other in range(slot):
        is_named = is_named or slots[row, other] == slots[row, slot]
    return is_named


@njit(cache=True, nogil=True)
def _count_held(slots: Any, counts: Any) -> None:
    for row in range(slots.shape[0]):
        for slot in range(slots.shape[1]):
            broker = slots[row, slot]
            if broker >= 0 and not _is_named_before(slots, row, slot):
                counts[broker] += 1


@njit(cache=True, nogil=True)
def _fill_held(slots: Any, ends: Any, rows: Any) -> None:
    """Fill ``rows``; ``ends`` holds the start of each broker's rows and is moved to their end."""
    for row in range(slots.shape[0]):
        for slot in range(slots.shape[1]):
            broker = slots[row, slot]
            if broker >= 0 and not _is_named_before(slots, row, slot):
                rows[ends[broker]] = row
                ends[broker] += 1


def holders_of(slots: NDArray[np.int32], brokers: int) -> Holders:
    """Return the rows of each of so many brokers."""
    counts = np.zeros(brokers, np.int64)
    _count_held(slots, counts)
    starts = np.zeros(brokers + 1, np.int64)
    np.cumsum(counts, out=starts[1:])
    rows = np.empty(starts[-1], np.int32)
    _fill_held(slots, starts[:-1].copy(), rows)
    return Holders(starts, rows)


def empty_rows(count: int, width: int, masks: type[np.unsignedinteger[Any]]) -> Rows:
    """Return rows without brokers, to be filled."""
    return Rows(
        np.full((count, width), -1, np.int32),
        np.zeros((count, 8), masks),
        np.zeros((count, 3), np.int16),
    )


def narrow_rows(
    topic: NDArray[np.int32],
    slots: NDArray[np.int32],
    leader: NDArray[np.int32],
    packed: tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint32]],
    rules: tuple[NDArray[np.uint64], NDArray[np.int32], NDArray[np.uint8]],
    wanted_isr: NDArray[np.int32],
) -> tuple[Rows, NDArray[np.bool_]]:
    """Return the rows of a table that fit into 8 bits, and a bool [n] mask; others are empty.

    ``topic`` and ``packed`` (isr, elr, last known ELR) are the table's columns, ``rules`` is
    `ElectionContext.row_rules`, ``slots`` and ``leader`` hold numbers of brokers.
    """
    out = empty_rows(len(topic), slots.shape[1], np.uint8)
    out.slots[:] = slots
    out.masks[:, CANDIDATES] = rules[0]
    out.sizes[:, SWITCHES] = rules[2]
    _take_isr_sizes(out, rules[1], wanted_isr)
    is_narrow = np.zeros(len(topic), np.bool_)
    _fill_narrow(topic, *packed, leader, is_narrow, out)
    out.slots[~is_narrow] = -1
    return out, is_narrow


class Wide(NamedTuple):
    """One partition for `wide_rows`: lists of broker numbers, in the table's order."""

    replicas: list[int]
    isr: list[int]
    elr: list[int]
    last_known: list[int]
    adding: list[int]
    removing: list[int]
    leader: int  # -1: none
    candidates: int  # a bit for each index of ``replicas``
    min_isr: int
    wanted_isr: int
    allows_unclean: bool


def wide_rows(partitions: list[Wide]) -> Rows:
    """Return rows of 64 bits.

    A member that is not a replica gets a slot after the replicas; so does a second entry of a
    member in the ISR, because each entry counts. Raises ValueError with the index of a partition
    that names more than 64 brokers.
    """
    named = []
    for index, each in enumerate(partitions):
        slots = list(each.replicas)
        for member in (*each.elr, *each.last_known, *each.adding, *each.removing, each.leader):
            if member >= 0 and member not in slots:
                slots.append(member)
        isr = 0
        for member in each.isr:
            if member not in slots or isr >> slots.index(member) & 1:
                slots.append(member)
                isr |= 1 << (len(slots) - 1)
            else:
                isr |= 1 << slots.index(member)
        if len(slots) > MAX_SLOTS:
            raise ValueError(index)
        named.append((slots, isr))
    out = empty_rows(len(partitions), max([len(slots) for slots, _ in named], default=1), np.uint64)
    for row, (each, (slots, isr)) in enumerate(zip(partitions, named, strict=True)):
        out.slots[row, : len(slots)] = slots
        out.masks[row, ISR] = isr
        out.masks[row, ELR] = _mask(slots, each.elr)
        out.masks[row, LAST_KNOWN] = (
            _mask(slots, each.last_known) if len(each.last_known) <= 1 else SEVERAL
        )
        out.masks[row, LEADER] = _mask(slots, [each.leader] if each.leader >= 0 else [])
        out.masks[row, CANDIDATES] = each.candidates
        out.masks[row, REPLICAS] = (1 << len(each.replicas)) - 1
        out.masks[row, ADDING] = _mask(slots, each.adding)
        out.masks[row, REMOVING] = _mask(slots, each.removing)
        out.sizes[row, SWITCHES] = (
            ALLOWS_UNCLEAN * each.allows_unclean
            + REMOVES_MORE_THAN_IT_ADDS * (len(each.adding) < len(each.removing))
        )
    _take_isr_sizes(
        out,
        np.array([each.min_isr for each in partitions], np.int32),
        np.array([each.wanted_isr for each in partitions], np.int32),
    )
    return out


def _mask(slots: list[int], members: list[int]) -> int:
    """Return the mask of each member's first slot."""
    mask = 0
    for member in members:
        mask |= 1 << slots.index(member)
    return mask


def _take_isr_sizes(out: Rows, min_isr: NDArray[np.int32], wanted_isr: NDArray[np.int32]) -> None:
    """Clip sizes to -1 .. `MAX_SLOTS` + 1: no ISR is larger or smaller, so decisions stay equal."""
    out.sizes[:, MIN_ISR] = np.clip(min_isr, -1, MAX_SLOTS + 1)
    out.sizes[:, WANTED_ISR] = np.clip(wanted_isr, -1, MAX_SLOTS + 1)
