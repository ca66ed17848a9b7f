"""Comparison of two states: all differences as columns, and the replay of the records between.

``diff_replay``  a change of each partition of a million, CRCs checked, applied with a journal
``diff``         ``kraft.diff`` of the states before and after them: three million differences

One thread, warm. Requirement: a comparison takes at most twice as long as the replay that caused
the differences. Both works count differences, so that their times per item have this ratio.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import kraft
from benchmarks.clusters import journaled
from benchmarks.conftest import Sizes
from benchmarks.generate_changes import make_changes
from kraft.image.replay import MetadataState
from kraft.metadata.facade import Metadata


@pytest.fixture(scope="module")
def before(sizes: Sizes) -> MetadataState:
    return journaled(sizes.partitions)


@pytest.fixture(scope="module")
def after(sizes: Sizes) -> MetadataState:
    return journaled(sizes.partitions)


@pytest.fixture(scope="module")
def changes(sizes: Sizes) -> bytes:
    path, _ = make_changes(sizes.partitions)
    return path.read_bytes()


def differences(before: MetadataState, after: MetadataState) -> int:
    return len(kraft.diff(Metadata(before), Metadata(after)))


def bench_diff_replay(
    benchmark: Any,
    measured: Callable[..., None],
    sizes: Sizes,
    before: MetadataState,
    after: MetadataState,
    changes: bytes,
) -> None:
    start = after.next_offset

    def as_it_was() -> None:
        after.revert(start)

    benchmark.pedantic(
        lambda: after.apply(changes),
        setup=as_it_was,
        rounds=sizes.slow_rounds,
        warmup_rounds=sizes.slow_warmup,
    )
    count = differences(before, after)
    assert count > 2 * sizes.partitions
    measured("diff_replay", unit="differences", count=count, bytes=len(changes))


def bench_diff(
    benchmark: Any,
    measured: Callable[..., None],
    sizes: Sizes,
    before: MetadataState,
    after: MetadataState,
    changes: bytes,
) -> None:
    after.apply(changes)
    count = benchmark.pedantic(
        lambda: differences(before, after),
        rounds=sizes.slow_rounds,
        warmup_rounds=sizes.slow_warmup,
    )
    measured("diff", unit="differences", count=count, total=sizes.partitions)
