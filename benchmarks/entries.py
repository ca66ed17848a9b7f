"""What no fixture of pytest-benchmark timed, in pytest-benchmark's own form.

Owns the way from a *line* (what a peer's process printed, or what a benchmark that times single
acts noted) to an entry of the ``benchmarks`` list: kraft and its peers lie in one JSON of one
schema, and whatever reads pytest-benchmark reads both. A line names its ``work`` and holds the
seconds of every round as ``values_s``; a line without them is no time (bytes of memory, say) and
stays in ``figures``.
"""

from __future__ import annotations

from typing import Any

from pytest_benchmark.stats import Stats

Line = dict[str, Any]

#: What an entry says in its ``stats``, and not in its ``extra_info``.
_TIMES = ("values_s", "median_s", "best_s", "worst_s")


def entry_of(line: Line, *, suite_file: str, prefix: str = "") -> dict[str, Any] | None:
    """The entry of one line; None where nothing was timed.

    ``suite_file`` is the file that the entry is said to come from; ``prefix`` sets the works of
    peers apart.
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
    """The suite (the floor) of an entry: ``log`` of ``benchmarks/bench_log_sync.py::...``."""
    stem = fullname.partition("::")[0].rpartition("/")[2].removesuffix(".py")
    return stem.removeprefix("bench_").partition("_")[0]
