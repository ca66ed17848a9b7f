"""Results kept in the repository: large fields and machine names are removed.

A kept result is still valid JSON of pytest-benchmark. `history_run` and `performance_page` use this
module.
"""

from __future__ import annotations

from typing import Any

#: Benchmarks with more rounds than this keep their statistics only.
ROUNDS_KEPT = 100
NODE = "anonymous"


def kept(made: dict[str, Any], node: str = NODE) -> dict[str, Any]:
    """Return the result without machine name, kernel build, processor flags and long rounds."""
    machine = dict(made["machine_info"])
    machine["node"] = node
    for name in ("release", "kernel"):
        if name in machine:
            machine[name] = ".".join(str(machine[name]).split(".")[:2])
    if isinstance(machine.get("cpu"), dict):
        machine["cpu"] = {key: each for key, each in machine["cpu"].items() if key != "flags"}
    commit = made["commit_info"] | {"project": "kraft"}
    benchmarks = []
    for each in made["benchmarks"]:
        stats = {name: rounded(value) for name, value in each["stats"].items()}
        if len(stats.get("data") or ()) > ROUNDS_KEPT:
            del stats["data"]
        info = {name: rounded(value) for name, value in each["extra_info"].items()}
        benchmarks.append(each | {"stats": stats, "extra_info": info})
    return made | {"machine_info": machine, "commit_info": commit, "benchmarks": benchmarks}


def rounded(value: Any) -> Any:
    """Round a time to six digits: the clock's resolution for a few milliseconds."""
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
