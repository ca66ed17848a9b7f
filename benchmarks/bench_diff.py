"""Two states compared: every difference as columns, beside the replay of the records behind them.

``diff_replay``  a change of each partition of a million, CRCs checked, applied with a journal
``diff``         ``kraft.diff`` of the states before and after them: three million differences

One thread, warm. Both count differences, so that the two times an item have the ratio that is
asked for: a comparison costs at most twice the replay that caused what it finds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import kraft
from benchmarks.clusters import journaled
from benchmarks.conftest import Sizes
from benchmarks.generate_changes import make_changes
from kraft.image.replay import Cluster
from kraft.metadata.facade import Metadata


@pytest.fixture(scope="module")
def before(sizes: Sizes) -> Cluster:
    return journaled(sizes.partitions)


@pytest.fixture(scope="module")
def after(sizes: Sizes) -> Cluster:
    return journaled(sizes.partitions)


@pytest.fixture(scope="module")
def changes(sizes: Sizes) -> bytes:
    path, _ = make_changes(sizes.partitions)
    return path.read_bytes()


def differences(before: Cluster, after: Cluster) -> int:
    return len(kraft.diff(Metadata(before), Metadata(after)))


def bench_diff_replay(
    benchmark: Any,
    measured: Callable[..., None],
    sizes: Sizes,
    before: Cluster,
    after: Cluster,
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
    before: Cluster,
    after: Cluster,
    changes: bytes,
) -> None:
    after.apply(changes)
    count = benchmark.pedantic(
        lambda: differences(before, after),
        rounds=sizes.slow_rounds,
        warmup_rounds=sizes.slow_warmup,
    )
    measured("diff", unit="differences", count=count, total=sizes.partitions)
