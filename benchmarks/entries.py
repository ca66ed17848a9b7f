"""Figures that no fixture of pytest-benchmark timed, in pytest-benchmark's own form.

This module converts a *line* (printed by a peer's process, or recorded by a benchmark that times
single actions) to an entry of the ``benchmarks`` list. So kraft and its peers are in one JSON of
one schema, which any reader of pytest-benchmark can read. A line names its ``work`` and contains
the seconds of every round as ``values_s``; a line without them is not a time (bytes of memory, for
example) and remains in ``figures``.
"""

from __future__ import annotations

from typing import Any

from pytest_benchmark.stats import Stats

Line = dict[str, Any]

#: Keys of an entry's ``stats``, which its ``extra_info`` does not repeat.
_TIMES = ("values_s", "median_s", "best_s", "worst_s")


def entry_of(line: Line, *, suite_file: str, prefix: str = "") -> dict[str, Any] | None:
    """Return the entry of one line; None if nothing was timed.

    ``suite_file`` is the suite of the entry; ``prefix`` distinguishes the works of peers.
    """
    seconds = line.get("values_s")
    if not seconds:
        return None
    stats = Stats()
    for value in seconds:
        stats.update(value)
    work = prefix + line["work"]
    total = line.get("partitions", line.get("total", 0))
    params = {"partitions": total} if total else None
    name = f"bench_{work}" + (f"[{total}]" if total else "")
    info = {key: value for key, value in line.items() if key not in _TIMES}
    return {
        "group": None,
        "name": name,
        "fullname": f"{suite_file}::{name}",
        "params": params,
        "param": str(total) if total else None,
        "extra_info": info | {"work": work, "total": total},
        "options": {"timer": "perf_counter", "warmup": False},
        "stats": stats.as_dict() | {"data": seconds, "iterations": 1},
    }


def suite_of(fullname: str) -> str:
    """Return the suite of an entry: ``log`` of ``benchmarks/bench_log_sync.py::...``."""
    stem = fullname.partition("::")[0].rpartition("/")[2].removesuffix(".py")
    return stem.removeprefix("bench_").partition("_")[0]
