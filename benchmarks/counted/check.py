"""Decide whether, and how closely, a counted result can be compared with a baseline.

``python -m benchmarks.counted.check BASELINE CANDIDATE`` prints the change to allow, for ``kraft
regress compare --threshold``. Equal toolchains agree within half a percent, whatever the memory
layout (3.5 % for the smallest works, appends of 16 KiB). Another compiler, Cython, interpreter or
numpy compares with a wide threshold and a warning. The exit code is 1 if the emulated processor or
the interpreter's minor version differs, or if the two do not contain the same works: then run
``make baseline``, in a commit that says why.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

EXACT, WIDE = "5%", "10%"
#: Differences that make counts incomparable.
INCOMPARABLE = ("level", "features", "python_minor")


def works_of(result: dict[str, Any]) -> set[str]:
    return {each["name"] for each in result["benchmarks"] if each["extra_info"].get("instructions")}


def toolchain_of(result: dict[str, Any], path: Path) -> dict[str, str]:
    found = result["machine_info"].get("toolchain")
    if not found:
        raise SystemExit(f"{path} is no counted result: make bench-instructions makes one")
    minor = ".".join(found["python"].split(".")[:2])
    return {**found, "python_minor": minor}


def threshold(baseline: Path, candidate: Path) -> str:
    """Return the change to allow; write differences to stderr. Exits if nothing can be compared."""
    results = [json.loads(path.read_text()) for path in (baseline, candidate)]
    old, new = map(works_of, results)
    problems = [f"{name} is in the baseline only" for name in sorted(old - new)]
    problems += [f"{name} has no baseline" for name in sorted(new - old)]
    if not old & new:
        problems.append("they have no work in common")
    before, after = (
        toolchain_of(result, path)
        for result, path in zip(results, (baseline, candidate), strict=True)
    )
    differences = {
        name: f"{name}: {before.get(name)} in the baseline, {after.get(name)} here"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    }
    problems += [differences[name] for name in INCOMPARABLE if name in differences]
    if problems:
        lines = "\n  ".join(problems)
        raise SystemExit(
            f"instructions do not compare with the baseline:\n  {lines}\nmake baseline"
        )
    if not differences:
        return EXACT
    print(
        "ANOTHER TOOLCHAIN than the baseline's:", *differences.values(), sep="\n  ", file=sys.stderr
    )
    print(f"a change is a regression beyond {WIDE} instead of {EXACT}", file=sys.stderr)
    return WIDE


def main() -> None:
    parser = argparse.ArgumentParser(description="Print the change to allow between two results.")
    parser.add_argument("baseline", type=Path)
    parser.add_argument("candidate", type=Path)
    arguments = parser.parse_args()
    print(threshold(arguments.baseline, arguments.candidate))


if __name__ == "__main__":
    main()
