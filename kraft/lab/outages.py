"""What if brokers are lost: every broker, every rack, every pair of a cluster as it is.

Owns which outages are swept, how a `Metadata` becomes the arrays of `_core/sweep`, and how they
are swept on this machine's cores. Results are a `kraft.lab.outage_report.OutageReport`;
`kraft.spark.outages` sweeps the same arrays on a cluster.

An outage is what the metadata says once the controller has fenced its brokers one after another,
by ascending id or in the order given: sessions end, others lead, ISRs shrink. What the controller
does of its own accord later (unclean elections every five minutes, preferred leaders) and what
brokers that remain ask for is not part of it.
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
from kraft.lab.outage_report import BROKER, BROKERS, RACK, Baseline, OutageReport, Plan, Swept
from kraft.metadata.health import Health

if TYPE_CHECKING:
    from kraft._core.sweep import Sweep
    from kraft._core.sweep_rows import Wide
    from kraft.metadata.facade import Metadata

#: The first metadata.version whose records can tell an ELR (4.0-IV1).
_LEVEL_ELR = 23
#: Ranges of work a thread: small enough that a progress bar moves, and that Ctrl-C is heard.
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
) -> Plan:
    """Which outages to sweep: each broker that is not fenced, each rack of them, each pair, and
    ``groups`` of brokers, lost in the order given.

    Brokers that tell no rack are in none. Raises `BrokerIdNotRegisteredError` for a group that
    names an unknown broker, `InvalidRequestError` for one that is empty or names a broker twice.
    """
    unfenced = sorted(each.id for each in metadata.brokers.values() if not each.fenced)
    listed = []
    if brokers:
        listed += [Swept(BROKER, (broker,)) for broker in unfenced]
    if racks:
        by_rack: dict[str, list[int]] = {}
        for broker in unfenced:
            rack = metadata.brokers[broker].rack
            if rack is not None:
                by_rack.setdefault(rack, []).append(broker)
        listed += [Swept(RACK, tuple(ids), rack) for rack, ids in sorted(by_rack.items())]
    for group in groups:
        _check_group(metadata, group)
        listed.append(Swept(BROKERS if len(group) > 1 else BROKER, tuple(group)))
    return Plan(tuple(listed), tuple(unfenced) if pairs else ())


def sweep_outages(
    metadata: Metadata,
    plan: Plan | None = None,
    *,
    threads: int | None = None,
    advance: Advance = lambda done: None,
) -> OutageReport:
    """Every outage of ``plan`` (default: all that `plan_outages` gives), on this machine's cores.

    ``advance`` is told how many outages are done. Ctrl-C leaves as KeyboardInterrupt once what is
    being computed, some milliseconds, is over. Raises `MissingPackageError` without Numba, and as
    `sweep_arrays` does.
    """
    plan = plan_outages(metadata) if plan is None else plan
    sweep = sweep_arrays(metadata, plan, threads=threads)
    from kraft._core.sweep import FIGURES, evaluate, outage_count

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
    metadata: Metadata, plan: Plan, sweep: Sweep, figures: NDArray[np.int32]
) -> OutageReport:
    """The report over the figures of all outages of a plan, in its order."""
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
    """The units of a sweep in about so many ranges of like cost."""
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


def sweep_arrays(metadata: Metadata, plan: Plan, *, threads: int | None = None) -> Sweep:
    """A cluster as it is, and what to sweep, as arrays.

    Elections go by what the metadata says (min.insync.replicas and unclean.leader.election.enable
    of topics and of the cluster), not by a controller's own file. Raises `MissingPackageError`
    without Numba, `InvalidRequestError` where a partition names more than 64 brokers.
    """
    try:
        from kraft._core import sweep, sweep_rows
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
    narrow, is_narrow = sweep_rows.narrow_rows(
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
        wide = sweep_rows.wide_rows(
            [
                _wide(table.state_of(int(row)), number_of, rules, wanted_isr, int(row))
                for row in others
            ]
        )
    except ValueError as error:
        info = metadata.partitions.row(int(others[error.args[0]]))
        raise InvalidRequestError(
            f"{info.topic}-{info.partition} names more than {sweep_rows.MAX_SLOTS} brokers"
        ) from None
    is_elr_enabled = metadata.features.get(ELR_FEATURE, 0) >= 1
    members = [number_of[broker] for outage in plan.listed for broker in outage.brokers]
    starts = np.cumsum([0, *(len(outage.brokers) for outage in plan.listed)])
    count = len(ids)
    made = sweep.Sweep(
        narrow=narrow,
        narrow_holders=sweep_rows.holders_of(narrow.slots, count),
        wide=wide,
        wide_holders=sweep_rows.holders_of(wide.slots, count),
        broker_ids=ids,
        living=np.array([is_active(metadata.cluster, int(each)) for each in ids], np.uint8),
        leaders=np.bincount(leaders[live & (leaders >= 0)], minlength=count).astype(np.int32),
        elr_rules=np.array([is_elr_enabled, metadata.metadata_version >= _LEVEL_ELR], np.uint8),
        outage_starts=starts.astype(np.int64),
        outage_members=np.array(members, np.int32),
        paired=np.array([number_of[broker] for broker in plan.paired], np.int32),
        single_counts=np.zeros((count, len(sweep.COUNTS)), np.int32),
        single_leaders=np.zeros((count, count) if plan.paired else (0, 0), np.int32),
    )
    with ThreadPoolExecutor(_thread_count(threads), thread_name_prefix="sweep") as pool:
        parts = np.array_split(made.paired, 4 * _thread_count(threads))
        for _ in pool.map(lambda brokers: sweep.evaluate_singles(made, brokers), parts):
            pass
    return made


def _check_group(metadata: Metadata, group: Sequence[int]) -> None:
    if not group or len(set(group)) < len(group):
        raise InvalidRequestError(f"an outage names brokers, each once: {list(group)}")
    for broker in group:
        if broker not in metadata.brokers:
            raise BrokerIdNotRegisteredError(f"broker {broker} is not registered")


def _members(state: dict[str, Any]) -> list[int]:
    """Every broker that a row names."""
    return [state["leader"], *(broker for name in _LISTS for broker in state[name])]


def _wide(
    state: dict[str, Any],
    number_of: Mapping[int, int],
    rules: tuple[NDArray[np.uint64], NDArray[np.int32], NDArray[np.uint8]],
    wanted_isr: NDArray[np.int32],
    row: int,
) -> Wide:
    from kraft._core.sweep_rows import Wide

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
    """As many as asked for, else one for each core that this process may use."""
    if threads is not None:
        return threads
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
