"""The speed table: reads the JSON of one run and prints each row with its peer and conditions.

``python -m benchmarks.report RUN.json`` prints the table and writes it as ``RUN-table.json`` beside
the run. The exit code is 0 whatever the verdicts: a slow machine is not a broken build.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.bars import judged
from benchmarks.conditions import Row, Verdict
from benchmarks.measurements import Measurement, Run

#: None: the row's peer or floor is not of this run.
MARKS = {True: "[green]yes[/]", False: "[red]no[/]", None: "[yellow]not measured[/]"}


def seconds(value: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if value * scale >= 1:
            return f"{value * scale:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


def times(value: float) -> str:
    return f"{value:,.0f}x" if value >= 10 else f"{value:.1f}x"


def figures(measurement: Measurement | None) -> str:
    """Return median and worst, items per second, bytes per second; or bytes per item without a
    time.
    """
    if measurement is None:
        return "-"
    if measurement.median_s == 0:
        return f"{measurement.bytes / measurement.count:.1f} B / {measurement.unit.rstrip('s')}"
    lines = [f"{seconds(measurement.median_s)} / {seconds(measurement.worst_s)}"]
    if measurement.p99_s:
        lines[0] += f" (p99 {seconds(measurement.p99_s)})"
    if measurement.cpu_s:
        lines.append(f"CPU {seconds(measurement.cpu_s)}")
    if measurement.steal_s:
        lines.append(f"host's steal time {seconds(measurement.steal_s)}")
    rate = measurement.count / measurement.median_s
    lines.append(f"{rate / 1e6:.3g} M {measurement.unit}/s" if rate > 1e5 else f"{rate:.4g} /s")
    if measurement.bytes:
        lines.append(f"{measurement.bytes_per_s / 1e9:.3g} GB/s")
    return "\n".join(lines)


def floor(run: Run, row: Row) -> str:
    """Return the least time for the row's bytes on this machine, and kraft's factor above it."""
    ours, bare = run.of(row.kraft, row.total), run.of(row.floor) if row.floor else None
    if ours is None or bare is None or not ours.bytes:
        return row.note
    least = ours.bytes / bare.bytes_per_s
    text = f"{row.floor} {bare.bytes_per_s / 1e9:.3g} GB/s: {seconds(least)}"
    text += f"; {times(ours.median_s / least)} above it"
    theirs = run.of(row.peer, row.total) if row.peer else None
    if theirs is not None and theirs.median_s:
        text += f", the peer {times(theirs.item_s * ours.count / least)}"
    return text + (f"\n{row.note}" if row.note else "")


def ratio(run: Run, row: Row) -> str:
    """Return how many times as fast as the peer; for memory, how many times as small."""
    ours = run.of(row.kraft, row.total)
    theirs = run.of(row.peer, row.total) if row.peer else None
    if ours is None or theirs is None:
        return "-"
    if ours.median_s and theirs.median_s:
        return f"{theirs.item_s / ours.item_s:.2f}x"
    return f"{theirs.bytes / theirs.count / (ours.bytes / ours.count):.2f}x"


def cpu_ratio(run: Run, row: Row) -> str:
    """Return how many times as much CPU time the peer takes, with its compiler and collector
    threads.
    """
    ours = run.of(row.kraft, row.total)
    theirs = run.of(row.peer, row.total) if row.peer else None
    if ours is None or theirs is None or not ours.cpu_s or not theirs.cpu_s:
        return "-"
    return f"{theirs.cpu_s / theirs.count / (ours.cpu_s / ours.count):.2f}x"


def table(run: Run) -> Table:
    made = Table(title="kraft beside its peers", show_lines=True)
    for name in ("work", "kraft\nmedian / worst", "peer\nmedian / worst", "ratio", "CPU"):
        made.add_column(name)
    for name in ("bar", "came out", "met?", "physical floor, and how far from it"):
        made.add_column(name)
    for row, verdicts in judged(run):
        if run.of(row.kraft, row.total) is None:
            continue
        made.add_row(
            row.title,
            figures(run.of(row.kraft, row.total)),
            (f"{row.peer}\n" if row.peer else "")
            + figures(run.of(row.peer, row.total) if row.peer else None),
            ratio(run, row),
            cpu_ratio(run, row),
            "\n".join(each.asked for each in verdicts),
            "\n".join(each.came_out or "-" for each in verdicts),
            "\n".join(MARKS[each.met] for each in verdicts),
            floor(run, row),
        )
    return made


def others(run: Run) -> Table:
    """Return every measurement that is in no row: the floors, and other works."""
    shown = {name for row, _ in judged(run) for name in (row.kraft, row.peer)}
    made = Table(title="also measured")
    for name in ("work", "partitions in all", "median / worst", "CPU, rate, bytes/s"):
        made.add_column(name)
    for each in run.kraft + run.peers:
        if each.work in shown and not each.total:
            continue
        times, _, rest = figures(each).partition("\n")
        total = f"{each.total:,}" if each.total else ""
        made.add_row(each.work, total, times, rest.replace("\n", ", "))
    return made


def as_json(run: Run) -> list[dict[str, Any]]:
    def side(work: str | None, row: Row) -> dict[str, Any] | None:
        found = run.of(work, row.total) if work else None
        return asdict(found) if found else None

    def verdict(each: Verdict) -> dict[str, Any]:
        return {"asked": each.asked, "came_out": each.came_out, "met": each.met}

    return [
        {
            "work": row.title,
            "kraft": side(row.kraft, row),
            "peer": side(row.peer, row),
            "conditions": [verdict(each) for each in verdicts],
            "floor": floor(run, row),
        }
        for row, verdicts in judged(run)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Print the speed table of one run.")
    parser.add_argument("run", type=Path, help="the JSON that pytest-benchmark wrote")
    path: Path = parser.parse_args().run
    run = Run(json.loads(path.read_text()))
    console = Console(width=None if Console().is_terminal else 190)
    shown = table(run)
    console.print(shown)
    if left := sum(1 for _ in judged(run)) - shown.row_count:
        console.print(f"{left} rows are not of this run: `make bench` measures all")
    console.print(others(run))
    heap = next((each.heap for each in run.peers if "quorum" not in each.work), None)
    console.print(
        "one thread (quorums: processes), warm; "
        f"{run.machine.get('cpu', {}).get('brand_raw', 'unknown processor')}; "
        f"Python {run.machine.get('python_version')}; "
        + (f"Java {run.java}, ParallelGC, heap {heap}" if heap else "no Java peers ran")
    )
    if run.quick:
        console.print("[bold yellow]a quick run: every benchmark ran, no figure means anything[/]")
    path.with_name(f"{path.stem}-table.json").write_text(json.dumps(as_json(run), indent=1))


if __name__ == "__main__":
    main()
