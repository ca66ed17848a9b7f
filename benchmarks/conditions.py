"""Conditions of the speed table: the requirements of a row, and the verdict of a run.

A row names kraft's work, the peer's work and conditions; each condition turns the measurements of
one run into a verdict. Rates are per item, so that two sides may do different amounts of work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.measurements import Measurement, Run


@dataclass(frozen=True)
class Verdict:
    """The verdict of one condition: requirement and result; None if not measured."""

    asked: str
    came_out: str
    met: bool | None


Condition = Callable[[Run, "Row"], Verdict]


@dataclass(frozen=True)
class Row:
    """One line of the table. `floor` names the baseline whose bandwidth bounds the work."""

    title: str
    kraft: str
    peer: str | None
    conditions: tuple[Condition, ...]
    floor: str | None = "memcpy"
    total: int | None = None
    note: str = ""


def at_least(times: float, peer: str | None = None) -> Condition:
    """At least this many times as fast as the row's peer, or another one."""

    def judge(run: Run, row: Row) -> Verdict:
        name = peer or row.peer or ""
        ours, theirs = run.of(row.kraft, row.total), run.of(name, row.total)
        asked = f">= {times:g}x {name}"
        if ours is None or theirs is None:
            return Verdict(asked, "", None)
        ratio = theirs.item_s / ours.item_s
        return Verdict(asked, f"{ratio:.2f}x", ratio >= times)

    return judge


def share_of(baseline: str, fraction: float) -> Condition:
    """At least this fraction of the baseline's bytes per second."""

    def judge(run: Run, row: Row) -> Verdict:
        ours, bare = run.of(row.kraft, row.total), run.of(baseline)
        asked = f">= {fraction:.0%} of {baseline}"
        if ours is None or bare is None or not ours.bytes:
            return Verdict(asked, "", None)
        share = ours.bytes_per_s / bare.bytes_per_s
        return Verdict(asked, f"{share:.1%}", share >= fraction)

    return judge


def no_more(limit: float, asked: str, shown: str, of: Callable[[Measurement], float]) -> Condition:
    """A figure of the row's own measurement is at most this; ``shown`` formats it."""

    def judge(run: Run, row: Row) -> Verdict:
        ours = run.of(row.kraft, row.total)
        if ours is None:
            return Verdict(asked, "", None)
        return Verdict(asked, shown.format(of(ours)), of(ours) <= limit)

    return judge


def worst_within(times: float) -> Condition:
    """The worst run takes at most this many times the median."""
    asked = f"worst <= {times:g}x median"
    return no_more(times, asked, "{:.2f}x", lambda ours: ours.worst_s / ours.median_s)


def at_most_ms(limit: float) -> Condition:
    """The median takes at most this many milliseconds."""
    return no_more(limit, f"<= {limit:g} ms", "{:.3f} ms", lambda ours: ours.median_s * 1e3)


def at_most_s(limit: float) -> Condition:
    """The median takes at most this many seconds."""
    return no_more(limit, f"<= {limit:g} s", "{:.2f} s", lambda ours: ours.median_s)


def worst_at_most_ms(limit: float) -> Condition:
    """The worst takes at most this many milliseconds."""
    return no_more(limit, f"worst <= {limit:g} ms", "{:.3f} ms", lambda ours: ours.worst_s * 1e3)


def at_most_p999_ms(limit: float) -> Condition:
    """The 99.9th percentile takes at most this many milliseconds."""
    asked = f"p99.9 <= {limit:g} ms"
    return no_more(limit, asked, "{:.1f} ms", lambda ours: ours.p999_s * 1e3)


def none_missed() -> Condition:
    """No heartbeat was missed."""
    return no_more(0, "none missed", "{:.0f} missed", lambda ours: float(ours.missed))


def at_most_of_a_core(share: float) -> Condition:
    """CPU time, measured as the seconds of one second, is at most this share of a core."""
    asked = f"<= {share:.0%} of a core"
    return no_more(share, asked, "{:.1%}", lambda ours: ours.median_s)


def at_most_bytes(limit: float) -> Condition:
    """At most this many bytes per item."""
    asked = f"<= {limit:g} B a partition"
    return no_more(limit, asked, "{:.1f} B", lambda ours: ours.bytes / ours.count)


def at_most_kib(limit: float) -> Condition:
    """At most this many KiB per item."""
    asked = f"<= {limit:g} KiB each"
    return no_more(limit, asked, "{:.1f} KiB", lambda ours: ours.bytes / ours.count / 1024)


def at_most_gib(limit: float) -> Condition:
    """At most this many GiB in all."""
    return no_more(limit, f"<= {limit:g} GiB", "{:.2f} GiB", lambda ours: ours.bytes / 2**30)


def no_worse_p99(times: float = 1) -> Condition:
    """The 99th percentile of single actions is at most this many times the peer's."""

    def judge(run: Run, row: Row) -> Verdict:
        ours = run.of(row.kraft, row.total)
        theirs = run.of(row.peer, row.total) if row.peer else None
        asked = f"p99 <= {'that' if times == 1 else f'{times:g}x that'} of {row.peer}"
        if ours is None or theirs is None:
            return Verdict(asked, "", None)
        return Verdict(asked, f"{ours.p99_s * 1e3:.1f} ms", ours.p99_s <= times * theirs.p99_s)

    return judge


def no_more_cpu() -> Condition:
    """An item takes at most the CPU time of the peer's."""

    def judge(run: Run, row: Row) -> Verdict:
        ours = run.of(row.kraft, row.total)
        theirs = run.of(row.peer, row.total) if row.peer else None
        asked = f"CPU <= that of {row.peer}"
        if ours is None or theirs is None or not theirs.cpu_s:
            return Verdict(asked, "", None)
        ratio = ours.cpu_s / ours.count / (theirs.cpu_s / theirs.count)
        return Verdict(asked, f"{ratio:.2f}x", ratio <= 1)

    return judge


def at_most_times(limit: float, baseline: str) -> Condition:
    """The median item takes at most this many times the baseline's."""

    def judge(run: Run, row: Row) -> Verdict:
        ours, bare = run.of(row.kraft, row.total), run.of(baseline)
        asked = f"<= {limit:g}x {baseline}"
        if ours is None or bare is None:
            return Verdict(asked, "", None)
        ratio = ours.item_s / bare.item_s
        return Verdict(asked, f"{ratio:.2f}x", ratio <= limit)

    return judge


def at_least_a_second(rate: float) -> Condition:
    """At least this many items per second."""

    def judge(run: Run, row: Row) -> Verdict:
        ours = run.of(row.kraft, row.total)
        asked = f">= {rate:,.0f} /s"
        if ours is None:
            return Verdict(asked, "", None)
        return Verdict(asked, f"{1 / ours.item_s:,.0f} /s", 1 / ours.item_s >= rate)

    return judge


def share_of_bytes(peer: str, part: float) -> Condition:
    """At most this share of the peer's bytes per item."""

    def judge(run: Run, row: Row) -> Verdict:
        ours, theirs = run.of(row.kraft, row.total), run.of(peer)
        asked = f"<= 1/{1 / part:g} of {peer}"
        if ours is None or theirs is None:
            return Verdict(asked, "", None)
        share = ours.bytes / ours.count / (theirs.bytes / theirs.count)
        return Verdict(asked, f"1/{1 / share:.1f}", share <= part)

    return judge


def same_cost(times: float) -> Condition:
    """Over all measured sizes of cluster, slowest and fastest differ at most by this factor."""

    def judge(run: Run, row: Row) -> Verdict:
        sizes = run.all_of(row.kraft)
        if len(sizes) < 2:
            return Verdict(f"within {times:g}x over sizes", "", None)
        asked = f"within {times:g}x, {_short(sizes[0].total)} to {_short(sizes[-1].total)}"
        costs = [each.item_s for each in sizes]
        ratio = max(costs) / min(costs)
        return Verdict(asked, f"{ratio:.2f}x", ratio <= times)

    return judge


def _short(count: int) -> str:
    return f"{count // 1_000_000}M" if count >= 1_000_000 else f"{count // 1000}k"
