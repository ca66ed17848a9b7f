"""The effects of many broker outages on one table, computed without records.

Numba kernels, compiled at the first use and cached beside this file. They compute the same state as
a controller that fences the brokers of an outage one after another. The rule for one partition is
that of `_core/decide/election_rules`, repeated over the masks of `_core/sweep/masks`; the tests
compare the two. Nothing is encoded and the table never changes.

Invariants: the loss of a broker without a slot in a row does not change that row, whatever else is
lost. Therefore a pair costs only the rows with both brokers: its figures are the sum of both single
outages and a correction for these rows. Only `kraft.lab.outages` and `kraft.spark` call this,
because Numba is an extra.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from kraft._core.sweep.masks import (
    ADDING,
    ALLOWS_UNCLEAN,
    CANDIDATES,
    ELR,
    ISR,
    LAST_KNOWN,
    LEADER,
    MIN_ISR,
    REMOVES_MORE_THAN_IT_ADDS,
    REMOVING,
    REPLICAS,
    SEVERAL,
    SWITCHES,
    WANTED_ISR,
    Holders,
    Rows,
)

#: The counts of an outage, by their index in a row of counts; see `kraft.lab.outages.Outage`.
COUNTS = ("unavailable", "unclean", "under_min_isr", "at_min_isr", "moved")
#: A row of figures adds to the counts: the most leaders of an active broker, that broker's number
#: (-1: none is active), the leaders on active brokers, the number of active brokers.
FIGURES = (*COUNTS, "max_leaders", "most_loaded", "leaders", "living")

_ZERO = np.uint64(0)
_ONE = np.uint64(1)


class Sweep(NamedTuple):
    """The input of the kernels; arrays only, so that it can be stored as a file.

    The sweep covers the outages ``outage_members[outage_starts[i] : outage_starts[i + 1]]``, each
    in the order in which its brokers are fenced, and every pair of ``paired`` (ascending).
    ``single_counts`` and ``single_leaders`` are the effects of each single broker's loss.
    """

    narrow: Rows
    narrow_holders: Holders
    wide: Rows
    wide_holders: Holders
    broker_ids: NDArray[np.int32]
    living: NDArray[np.uint8]  # active: registered, not fenced, not in controlled shutdown
    leaders: NDArray[np.int32]  # partitions that each broker leads
    elr_rules: NDArray[np.uint8]  # [2]: whether ELR is on; whether records have ELR fields
    outage_starts: NDArray[np.int64]
    outage_members: NDArray[np.int32]
    paired: NDArray[np.int32]
    single_counts: NDArray[np.int32]  # [brokers, counts]
    single_leaders: NDArray[np.int32]  # [brokers, brokers]: more or fewer leaders


class Terms(NamedTuple):
    """The constant inputs of the decisions about one partition."""

    candidates: Any
    min_isr: Any
    switches: Any
    is_elr_enabled: Any
    writes_elr: Any


class State(NamedTuple):
    """One partition while brokers are fenced, as masks over its slots."""

    leader: Any
    isr: Any
    elr: Any
    last_known: Any
    replicas: Any
    adding: Any
    removing: Any
    unclean: Any  # whether an unclean election was held


# -- one partition


@njit(cache=True, nogil=True)
def _size(mask: Any) -> Any:
    count = 0
    while mask != _ZERO:
        mask &= mask - _ONE
        count += 1
    return count


@njit(cache=True, nogil=True)
def _lowest(mask: Any) -> Any:
    return mask & (~mask + _ONE)


# Functions with array arguments are inlined as source: a call with an array counts its references,
# which would cost more than the function.


@njit(cache=True, nogil=True, inline="always")
def _state_of(masks: Any, row: Any) -> Any:
    return State(
        np.uint64(masks[row, LEADER]),
        np.uint64(masks[row, ISR]),
        np.uint64(masks[row, ELR]),
        np.uint64(masks[row, LAST_KNOWN]),
        np.uint64(masks[row, REPLICAS]),
        np.uint64(masks[row, ADDING]),
        np.uint64(masks[row, REMOVING]),
        _ZERO,
    )


@njit(cache=True, nogil=True, inline="always")
def _terms_of(masks: Any, sizes: Any, row: Any, elr_rules: Any) -> Any:
    return Terms(
        np.uint64(masks[row, CANDIDATES]),
        sizes[row, MIN_ISR],
        sizes[row, SWITCHES],
        elr_rules[0] != 0,
        elr_rules[1] != 0,
    )


@njit(cache=True, nogil=True)
def _fenced(terms: Any, before: Any, leaving: Any, gone: Any) -> Any:
    """Return the partition after the broker in the slots ``leaving`` was fenced.

    ``gone`` are the slots of all fenced brokers so far, including this one. Equals `decide` of
    `_core/decide/election_rules` for a shrinking ISR, with its record applied.
    """
    if before.isr & leaving == _ZERO:
        return before
    isr = before.isr & ~leaving
    replicas, adding, removing = before.replicas, before.adding, before.removing
    candidates = terms.candidates & before.replicas & ~gone
    switches = terms.switches
    if adding | removing != _ZERO:
        kept_isr, kept = isr & ~removing, replicas & ~removing
        if (
            (removing == _ZERO or (kept_isr != _ZERO and kept != _ZERO))
            and adding & ~kept_isr == _ZERO
            and (switches & REMOVES_MORE_THAN_IT_ADDS == 0 or kept & ~kept_isr == _ZERO)
        ):
            isr, replicas, adding, removing = kept_isr, kept, _ZERO, _ZERO
    is_elr_enabled = terms.is_elr_enabled
    elr = before.elr
    if is_elr_enabled:
        elr = _ZERO if _size(isr) >= terms.min_isr else (before.elr | before.isr) & ~isr

    electorate = isr if isr != _ZERO else elr
    unclean = False
    leader = before.leader & electorate & candidates
    if leader == _ZERO:
        leader = _lowest(electorate & candidates & replicas)
    if leader == _ZERO and is_elr_enabled and isr | elr == _ZERO and _size(before.last_known) == 1:
        leader = before.last_known & candidates
        unclean = leader != _ZERO
    if leader == _ZERO and switches & ALLOWS_UNCLEAN != 0:
        leader = _lowest(candidates & replicas)
        unclean = leader != _ZERO
    if leader == before.leader:
        unclean = False
    elif leader & elr != _ZERO:
        isr, elr = leader, elr & ~leader

    if unclean:
        isr, elr = leader, _ZERO
    elif not is_elr_enabled:
        elr = _ZERO
        # No record can express an empty ISR: the last member stays.
        isr = isr if isr != _ZERO else before.isr
    last_known = before.last_known
    if is_elr_enabled and (leader != before.leader or replicas != before.replicas):
        if leader == _ZERO and last_known == _ZERO:
            last_known = before.leader if before.leader != _ZERO else SEVERAL
        elif leader != _ZERO:
            last_known = _ZERO
    if not terms.writes_elr:
        elr, last_known = before.elr, before.last_known
    sticky = _ONE if unclean else before.unclean
    return State(leader, isr, elr, last_known, replicas, adding, removing, sticky)


@njit(cache=True, nogil=True)
def _marks(wanted: Any, before: Any, after: Any) -> Any:
    """Return the outage's effects on one partition, a bit for each of ``COUNTS``.

    ``wanted`` is min.insync.replicas.
    """
    has_leader, had_leader = after.leader != _ZERO, before.leader != _ZERO
    size, old_size = _size(after.isr), _size(before.isr)
    marks = 0
    if had_leader and not has_leader:
        marks |= 1
    if after.unclean != _ZERO and has_leader:
        marks |= 2
    if (not has_leader or size < wanted) and had_leader and old_size >= wanted:
        marks |= 4
    if has_leader and size == wanted and not (had_leader and old_size == wanted):
        marks |= 8
    if had_leader and has_leader and after.leader != before.leader:
        marks |= 16
    return marks


@njit(cache=True, nogil=True, inline="always")
def _add_leader(slots: Any, row: Any, leader: Any, leaders: Any, number: Any) -> None:
    """Add ``number`` to the leaders of the broker in a leader's slot, if there is a leader."""
    if leader != _ZERO:
        leaders[slots[row, _size(leader - _ONE)]] += number


@njit(cache=True, nogil=True, inline="always")
def _slots_of(slots: Any, row: Any, broker: Any) -> Any:
    mask = _ZERO
    for slot in range(slots.shape[1]):
        if slots[row, slot] == broker:
            mask |= _ONE << np.uint64(slot)
    return mask


# -- one outage, and all pairs of one broker


@njit(cache=True, nogil=True)
def sum_outage(
    rows: Any,
    holders: Any,
    elr_rules: Any,
    members: Any,
    place: Any,
    counts: Any,
    leaders: Any,
) -> None:
    """Add the effects of losing ``members``, fenced in their order: distinct numbers, i32.

    ``place`` is i32 [brokers], zero before and after. ``counts`` is i32 [counts], ``leaders`` i32
    [brokers].
    """
    slots, masks, sizes = rows.slots, rows.masks, rows.sizes
    for index in range(len(members)):
        place[members[index]] = index + 1
    for index in range(len(members)):
        for held in range(holders.starts[members[index]], holders.starts[members[index] + 1]):
            row = holders.rows[held]
            is_first = True
            for slot in range(slots.shape[1]):
                broker = slots[row, slot]
                if broker >= 0 and 0 < place[broker] <= index:
                    is_first = False
            if not is_first:
                continue
            before = _state_of(masks, row)
            terms = _terms_of(masks, sizes, row, elr_rules)
            wanted = sizes[row, WANTED_ISR]
            after = before
            gone = _ZERO
            turn = index + 1
            while turn > 0:
                leaving = _slots_of(slots, row, members[turn - 1])
                gone |= leaving
                after = _fenced(terms, after, leaving, gone)
                following = 0
                for slot in range(slots.shape[1]):
                    broker = slots[row, slot]
                    if (
                        broker >= 0
                        and place[broker] > turn
                        and (following == 0 or place[broker] < following)
                    ):
                        following = place[broker]
                turn = following
            marks = _marks(wanted, before, after)
            for count in range(len(counts)):
                counts[count] += marks >> count & 1
            _add_leader(slots, row, before.leader, leaders, -1)
            _add_leader(slots, row, after.leader, leaders, 1)
    for index in range(len(members)):
        place[members[index]] = 0


@njit(cache=True, nogil=True)
def sum_pairs(
    rows: Any, holders: Any, elr_rules: Any, first: Any, is_paired: Any, counts: Any, leaders: Any
) -> None:
    """Add for each paired broker above ``first`` the correction to the sum of both single outages.

    Visits the rows with both brokers. ``is_paired`` is u8 [brokers], ``counts`` i32 [brokers,
    counts], ``leaders`` i32 [brokers, brokers], by the second broker.
    """
    slots, masks, sizes = rows.slots, rows.masks, rows.sizes
    for held in range(holders.starts[first], holders.starts[first + 1]):
        row = holders.rows[held]
        before = _state_of(masks, row)
        terms = _terms_of(masks, sizes, row, elr_rules)
        wanted = sizes[row, WANTED_ISR]
        first_slots = _slots_of(slots, row, first)
        after_first = _fenced(terms, before, first_slots, first_slots)
        first_marks = _marks(wanted, before, after_first)
        seen = first_slots
        for slot in range(slots.shape[1]):
            second = slots[row, slot]
            if second <= first or not is_paired[second] or seen >> np.uint64(slot) & _ONE != _ZERO:
                continue
            second_slots = _slots_of(slots, row, second)
            seen |= second_slots
            after_second = _fenced(terms, before, second_slots, second_slots)
            after = _fenced(terms, after_first, second_slots, first_slots | second_slots)
            marks = _marks(wanted, before, after)
            second_marks = _marks(wanted, before, after_second)
            for count in range(counts.shape[1]):
                counts[second, count] += (
                    (marks >> count & 1) - (first_marks >> count & 1) - (second_marks >> count & 1)
                )
            _add_leader(slots, row, before.leader, leaders[second], 1)
            _add_leader(slots, row, after.leader, leaders[second], 1)
            _add_leader(slots, row, after_first.leader, leaders[second], -1)
            _add_leader(slots, row, after_second.leader, leaders[second], -1)


@njit(cache=True, nogil=True)
def judge(living: Any, lost: Any, leaders: Any, figures: Any) -> None:
    """Set the figures after the counts from the number of leaders on each broker.

    ``lost`` u8 [brokers] marks the brokers of the outage, ``leaders`` is i32 [brokers], ``figures``
    i32 [figures]. Of several most loaded brokers the first counts.
    """
    most, broker, total, alive = 0, -1, 0, 0
    for other in range(len(living)):
        if living[other] and not lost[other]:
            alive += 1
            total += leaders[other]
            if broker < 0 or leaders[other] > most:
                most, broker = leaders[other], other
    figures[5] = most
    figures[6] = broker
    figures[7] = total
    figures[8] = alive


@njit(cache=True, nogil=True)
def judge_pairs(
    sweep: Any, first: Any, lost: Any, scratch: Any, counts: Any, leaders: Any, figures: Any
) -> None:
    """Compute the figures of every pair of ``first`` and a paired broker above it, ascending.

    ``counts`` and ``leaders`` are the results of `sum_pairs`. ``lost`` is u8 [brokers], zero before
    and after, ``scratch`` i32 [brokers].
    """
    out = 0
    lost[first] = 1
    for second in sweep.paired:
        if second <= first:
            continue
        lost[second] = 1
        for count in range(counts.shape[1]):
            figures[out, count] = (
                sweep.single_counts[first, count]
                + sweep.single_counts[second, count]
                + counts[second, count]
            )
        for other in range(len(scratch)):
            scratch[other] = (
                sweep.leaders[other]
                + sweep.single_leaders[first, other]
                + sweep.single_leaders[second, other]
                + leaders[second, other]
            )
        judge(sweep.living, lost, scratch, figures[out])
        lost[second] = 0
        out += 1
    lost[first] = 0


# -- a part of a sweep


def unit_count(sweep: Sweep) -> int:
    """Return the units of work: one for each listed outage, then one for each paired broker."""
    return len(sweep.outage_starts) - 1 + len(sweep.paired)


def outage_count(sweep: Sweep, units: int) -> int:
    """Return the number of outages in the first ``units`` units."""
    listed = len(sweep.outage_starts) - 1
    if units <= listed:
        return units
    firsts, brokers = units - listed, len(sweep.paired)
    return listed + firsts * brokers - firsts * (firsts + 1) // 2


def evaluate(sweep: Sweep, first: int, last: int) -> NDArray[np.int32]:
    """Return the figures of the outages of units ``first`` to ``last`` (excluded).

    i32 [outages, figures]. The listed outages come first, then the pairs, by first and then by
    second broker. Releases the GIL while it computes.
    """
    assert 0 <= first <= last <= unit_count(sweep)
    brokers, listed = len(sweep.broker_ids), len(sweep.outage_starts) - 1
    begin = outage_count(sweep, first)
    figures = np.zeros((outage_count(sweep, last) - begin, len(FIGURES)), np.int32)
    scratch, lost = np.zeros(brokers, np.int32), np.zeros(brokers, np.uint8)
    is_paired = np.zeros(brokers, np.uint8)
    is_paired[sweep.paired] = 1
    counts = np.zeros((brokers, len(COUNTS)), np.int32)
    corrections = np.zeros((brokers, brokers) if last > listed else (0, 0), np.int32)
    for unit in range(first, last):
        out = outage_count(sweep, unit) - begin
        if unit < listed:
            members = sweep.outage_members[
                sweep.outage_starts[unit] : sweep.outage_starts[unit + 1]
            ]
            leaders = sweep.leaders.copy()
            lose(sweep, members, scratch, figures[out, : len(COUNTS)], leaders)
            lost[members] = 1
            judge(sweep.living, lost, leaders, figures[out])
            lost[members] = 0
            continue
        broker = sweep.paired[unit - listed]
        counts[:] = 0
        corrections[:] = 0
        for rows, holders in _banks(sweep):
            sum_pairs(rows, holders, sweep.elr_rules, broker, is_paired, counts, corrections)
        judge_pairs(sweep, broker, lost, scratch, counts, corrections, figures[out:])
    return figures


def evaluate_singles(sweep: Sweep, brokers: NDArray[np.int32]) -> None:
    """Fill ``single_counts`` and ``single_leaders`` for these brokers."""
    place = np.zeros(len(sweep.broker_ids), np.int32)
    for broker in brokers:
        members = np.array([broker], np.int32)
        lose(sweep, members, place, sweep.single_counts[broker], sweep.single_leaders[broker])


def lose(
    sweep: Sweep,
    members: NDArray[np.int32],
    place: NDArray[np.int32],
    counts: NDArray[np.int32],
    leaders: NDArray[np.int32],
) -> None:
    """Apply `sum_outage` to all rows."""
    for rows, holders in _banks(sweep):
        sum_outage(rows, holders, sweep.elr_rules, members, place, counts, leaders)


def _banks(sweep: Sweep) -> list[tuple[Rows, Holders]]:
    """Return the row sets; without irregular partitions, nothing is compiled for wide rows."""
    banks = [(sweep.narrow, sweep.narrow_holders)]
    if len(sweep.wide.slots):
        banks.append((sweep.wide, sweep.wide_holders))
    return banks
