"""Results that are kept in the repository: what is large, or names a machine, is left out.

A kept result is still pytest-benchmark's JSON, which every reader of it takes. Fed by
`history_run` and `performance_page`.
"""

from __future__ import annotations

from typing import Any

#: Benchmarks with more rounds than this keep their statistics only.
ROUNDS_KEPT = 100
NODE = "anonymous"


def kept(made: dict[str, Any], node: str = NODE) -> dict[str, Any]:
    """The result without the machine's name, the kernel's build, processor flags, long rounds."""
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
    """Six digits of a time: as many as the clock has for what takes milliseconds."""
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
