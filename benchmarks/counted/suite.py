"""The counted works as a pytest-benchmark suite: ``make bench-instructions``.

Each entry's ``extra_info.instructions`` is the work's count on the emulated machine that
``machine_info`` describes. Its times are those of an ordinary build on the real machine, five
rounds: valid, but not of the described machine.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from benchmarks.counted import callgrind, toolchain
from benchmarks.counted.works import WORKS

ROUNDS = 5


@pytest.fixture(scope="session")
def instructions(request: pytest.FixtureRequest) -> dict[str, int]:
    """Return the counts of every work of this session."""
    described = request.config.stash[toolchain.DESCRIBED]
    chosen = {item.name for item in request.session.items}
    names = [name for name in WORKS if f"bench_counted[{name}]" in chosen]
    library = callgrind.compiled(toolchain.COUNTED / "requests")
    output = toolchain.COUNTED / "output"
    extensions = toolchain.extensions(described, toolchain.loaded())
    arguments = ["-m", "benchmarks.counted.process", str(extensions)]
    callgrind.run(output, [*arguments, str(library), str(os.cpu_count() or 1), *names])
    totals = callgrind.read_totals(output)
    assert totals.keys() == set(names), "a work was not counted"
    return totals


@pytest.mark.parametrize("work", WORKS)
def bench_counted(benchmark: Any, instructions: dict[str, int], work: str) -> None:
    made = WORKS[work]()
    state: Any = None

    def fresh() -> tuple[tuple[Any], dict[str, Any]]:
        nonlocal state
        state = made.prepare()
        return (state,), {}

    result = benchmark.pedantic(made.run, setup=fresh, rounds=ROUNDS, warmup_rounds=1)
    made.check(state, result)
    benchmark.extra_info.update(
        work=f"counted_{work}", unit=made.unit, count=made.count, instructions=instructions[work]
    )
