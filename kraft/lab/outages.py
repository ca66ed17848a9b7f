"""Simulate the loss of brokers: every broker, every rack, every pair of a cluster.

Plans the outages, converts a `Metadata` to the arrays of ``_core/sweep``, and evaluates them on
this machine's cores. Results are a `kraft.lab.outage_report.OutageReport`; `kraft.spark.outages`
evaluates the same arrays on Spark.

An outage is the state after the controller fenced its brokers one after another, by ascending id or
in the given order: leaders are elected, ISRs shrink. Not included: what the controller does later
(unclean elections every five minutes, preferred leaders) and requests of the remaining brokers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kraft.controller.state import ELR_FEATURE, election_context, is_active
from kraft.errors import BrokerIdNotRegisteredError, InvalidRequestError, MissingPackageError
from kraft.lab.outage_report import (
    BROKER,
    BROKERS,
    RACK,
    Baseline,
    OutagePlan,
    OutageReport,
    PlannedOutage,
)
from kraft.metadata.health import Health

if TYPE_CHECKING:
    from kraft._core.sweep.kernels import Sweep
    from kraft._core.sweep.masks import Wide
    from kraft.metadata.facade import Metadata

#: The first metadata.version whose records contain ELRs (4.0-IV1).
_LEVEL_ELR = 23
#: Ranges of work a thread: short enough for progress bars and Ctrl-C.
_RANGES_A_THREAD = 32

#: The lists of a row, in the order of `Wide`.
_LISTS = ("replicas", "isr", "elr", "last_known_elr", "adding_replicas", "removing_replicas")

Advance = Callable[[float], None]


def plan_outages(
    metadata: Metadata,
    *,
    brokers: bool = True,
    racks: bool = True,
    pairs: bool = True,
    groups: Iterable[Sequence[int]] = (),
) -> OutagePlan:
    """Return the outages to evaluate: each unfenced broker, each rack of them, each pair, and
    ``groups``.

    The brokers of a group are lost in the order given; brokers without a rack are in none. Raises
    `BrokerIdNotRegisteredError` for a group that names an unknown broker, `InvalidRequestError` for
    a group that is empty or names a broker twice.
    """
    unfenced = sorted(each.id for each in metadata.brokers.values() if not each.fenced)
    listed = []
    if brokers:
        listed += [PlannedOutage(BROKER, (broker,)) for broker in unfenced]
    if racks:
        by_rack: dict[str, list[int]] = {}
        for broker in unfenced:
            rack = metadata.brokers[broker].rack
            if rack is not None:
                by_rack.setdefault(rack, []).append(broker)
        listed += [PlannedOutage(RACK, tuple(ids), rack) for rack, ids in sorted(by_rack.items())]
    for group in groups:
        _check_group(metadata, group)
        listed.append(PlannedOutage(BROKERS if len(group) > 1 else BROKER, tuple(group)))
    return OutagePlan(tuple(listed), tuple(unfenced) if pairs else ())


def sweep_outages(
    metadata: Metadata,
    plan: OutagePlan | None = None,
    *,
    threads: int | None = None,
    advance: Advance = lambda done: None,
) -> OutageReport:
    """Evaluate every outage of ``plan`` (default: `plan_outages`) on this machine's cores.

    ``advance`` is called with the number of finished outages. Ctrl-C raises KeyboardInterrupt after
    the ranges in progress, some milliseconds. Raises `MissingPackageError` without Numba, and as
    `sweep_arrays` does.
    """
    plan = plan_outages(metadata) if plan is None else plan
    sweep = sweep_arrays(metadata, plan, threads=threads)
    from kraft._core.sweep.kernels import FIGURES, evaluate, outage_count

    figures = np.empty((len(plan), len(FIGURES)), np.int32)
    ranges = unit_ranges(sweep, _RANGES_A_THREAD * _thread_count(threads))
    done = 0

    def part(first: int, last: int) -> int:
        found = evaluate(sweep, first, last)
        begin = outage_count(sweep, first)
        figures[begin : begin + len(found)] = found
        return len(found)

    pool = ThreadPoolExecutor(_thread_count(threads), thread_name_prefix="sweep")
    try:
        for finished in as_completed([pool.submit(part, *each) for each in ranges]):
            done += finished.result()
            advance(done)
    finally:
        pool.shutdown(cancel_futures=True)
    return report_of(metadata, plan, sweep, figures)


def report_of(
    metadata: Metadata, plan: OutagePlan, sweep: Sweep, figures: NDArray[np.int32]
) -> OutageReport:
    """Return the report for the figures of all outages of a plan, in its order."""
    health = Health(metadata)
    living = sweep.living.astype(bool)
    return OutageReport(
        plan,
        figures,
        sweep.broker_ids,
        Baseline(
            partitions=len(metadata.partitions),
            living=int(living.sum()),
            unavailable=int(health.without_leader.sum()),
            under_min_isr=int(health.under_min_isr.sum()),
            at_min_isr=int((health.at_min_isr & ~health.without_leader).sum()),
            max_leaders=int(sweep.leaders[living].max(initial=0)),
            leaders=int(sweep.leaders[living].sum()),
        ),
    )


def unit_ranges(sweep: Sweep, wanted: int) -> list[tuple[int, int]]:
    """Return the units of a sweep in about ``wanted`` ranges of similar cost."""
    held = np.diff(sweep.narrow_holders.starts) + np.diff(sweep.wide_holders.starts)
    sums = np.concatenate(([0], np.cumsum(held[sweep.outage_members])))
    members = np.diff(sums[sweep.outage_starts])
    brokers = len(sweep.broker_ids)
    followers = np.arange(len(sweep.paired))[::-1]
    pairs = held[sweep.paired] * (1 + sweep.narrow.slots.shape[1]) + followers * brokers
    cost = np.cumsum(np.concatenate((members, pairs)) + 1)
    if len(cost) == 0:
        return []
    ends = np.searchsorted(cost, cost[-1] * np.arange(1, wanted + 1) / wanted) + 1
    edges = np.unique(np.concatenate(([0], ends.clip(max=len(cost)))))
    return [(int(first), int(last)) for first, last in pairwise(edges)]


def sweep_arrays(metadata: Metadata, plan: OutagePlan, *, threads: int | None = None) -> Sweep:
    """Return a cluster and the outages to evaluate as arrays.

    Elections follow the metadata (min.insync.replicas and unclean.leader.election.enable of topics
    and of the cluster), not a controller's configuration file. Raises `MissingPackageError` without
    Numba, `InvalidRequestError` where a partition names more than 64 brokers.
    """
    try:
        from kraft._core.sweep import kernels, masks
    except ImportError as error:
        raise MissingPackageError(f"this needs Numba: pip install 'kraft[lab]' ({error})") from None

    table = metadata.cluster.table
    rules = election_context(metadata.cluster).row_rules()
    wanted_isr = Health(metadata).min_isr
    topic, leader = table.column("topic"), table.column("leader")
    live = topic >= 0
    replicas = table.column("replicas")
    irregular = metadata.partitions.irregular_rows
    named = [list(metadata.brokers), np.unique(replicas[live]), np.unique(leader[live])]
    named += [_members(table.state_of(int(row))) for row in irregular]
    ids = np.unique(np.concatenate([np.asarray(each, np.int32) for each in named]))
    ids = ids[ids >= 0]

    def numbers(of: NDArray[np.int32]) -> NDArray[np.int32]:
        return np.where(of < 0, -1, np.searchsorted(ids, of)).astype(np.int32)

    leaders = numbers(leader)
    narrow, is_narrow = masks.narrow_rows(
        topic,
        numbers(replicas),
        leaders,
        (table.column("isr"), table.column("elr"), table.column("last_known_elr")),
        rules,
        wanted_isr,
    )
    others = np.flatnonzero(live & ~is_narrow)
    number_of = {int(broker): number for number, broker in enumerate(ids)}
    try:
        wide = masks.wide_rows(
            [
                _wide(table.state_of(int(row)), number_of, rules, wanted_isr, int(row))
                for row in others
            ]
        )
    except ValueError as error:
        info = metadata.partitions.row(int(others[error.args[0]]))
        raise InvalidRequestError(
            f"{info.topic}-{info.partition} names more than {masks.MAX_SLOTS} brokers"
        ) from None
    is_elr_enabled = metadata.features.get(ELR_FEATURE, 0) >= 1
    members = [number_of[broker] for outage in plan.listed for broker in outage.brokers]
    starts = np.cumsum([0, *(len(outage.brokers) for outage in plan.listed)])
    count = len(ids)
    made = kernels.Sweep(
        narrow=narrow,
        narrow_holders=masks.holders_of(narrow.slots, count),
        wide=wide,
        wide_holders=masks.holders_of(wide.slots, count),
        broker_ids=ids,
        living=np.array([is_active(metadata.cluster, int(each)) for each in ids], np.uint8),
        leaders=np.bincount(leaders[live & (leaders >= 0)], minlength=count).astype(np.int32),
        elr_rules=np.array([is_elr_enabled, metadata.metadata_version >= _LEVEL_ELR], np.uint8),
        outage_starts=starts.astype(np.int64),
        outage_members=np.array(members, np.int32),
        paired=np.array([number_of[broker] for broker in plan.paired], np.int32),
        single_counts=np.zeros((count, len(kernels.COUNTS)), np.int32),
        single_leaders=np.zeros((count, count) if plan.paired else (0, 0), np.int32),
    )
    with ThreadPoolExecutor(_thread_count(threads), thread_name_prefix="sweep") as pool:
        parts = np.array_split(made.paired, 4 * _thread_count(threads))
        for _ in pool.map(lambda brokers: kernels.evaluate_singles(made, brokers), parts):
            pass
    return made


def _check_group(metadata: Metadata, group: Sequence[int]) -> None:
    if not group or len(set(group)) < len(group):
        raise InvalidRequestError(
            f"an outage must name one or more brokers, each once, not {list(group)}"
        )
    for broker in group:
        if broker not in metadata.brokers:
            raise BrokerIdNotRegisteredError(f"broker {broker} is not registered")


def _members(state: dict[str, Any]) -> list[int]:
    """Return every broker that a row names."""
    return [state["leader"], *(broker for name in _LISTS for broker in state[name])]


def _wide(
    state: dict[str, Any],
    number_of: Mapping[int, int],
    rules: tuple[NDArray[np.uint64], NDArray[np.int32], NDArray[np.uint8]],
    wanted_isr: NDArray[np.int32],
    row: int,
) -> Wide:
    from kraft._core.sweep.masks import Wide

    replicas, isr, elr, last_known, adding, removing = (
        [number_of[broker] for broker in state[name]] for name in _LISTS
    )
    return Wide(
        replicas,
        isr,
        elr,
        last_known,
        adding,
        removing,
        leader=number_of.get(state["leader"], -1),
        candidates=int(rules[0][row]),
        min_isr=int(rules[1][row]),
        wanted_isr=int(wanted_isr[row]),
        allows_unclean=bool(rules[2][row]),
    )


def _thread_count(threads: int | None) -> int:
    """Return ``threads``, by default one for each core that this process may use."""
    if threads is not None:
        return threads
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
