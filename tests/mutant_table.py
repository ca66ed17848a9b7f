"""The table of `make mutants` and `make core-mutants`: planted faults and what detected them."""

from __future__ import annotations

from collections.abc import Iterable


def table(rows: Iterable[tuple[str, str | None, str]], seconds: float) -> str:
    """One line for each fault, and the sum.

    A row holds the fault's name, what caught it (None: nothing did), and a remark, which may be
    empty and gets a line of its own.
    """
    lines = []
    count = caught = 0
    for name, how, remark in rows:
        count += 1
        caught += how is not None
        lines.append(f"{name:55} {'SURVIVES' if how is None else how}")
        if remark:
            lines.append(f"{'':55} {remark}")
    lines.append(f"{caught} of {count} mutants caught in {seconds:.0f} s")
    return "\n".join(lines)
