"""A cluster out of nothing: from the command ``kraft up`` to a consumed message.

``up_combined``  one process that is controller and broker
``up_six``       three controllers and three brokers, the topic with a replica on each

The time ends when a consumer has the message that a producer has sent to the printed addresses.
The topic is created by its use, and the message is acknowledged by all replicas.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from compileall import compile_dir
from pathlib import Path

import pytest

import kraft
from benchmarks.conftest import FULL, Sizes
from benchmarks.timings import summary
from tests.harness.commands import PATIENCE_S, Foreground
from tests.harness.confluent_records import consumed, produce

ROUNDS = 7


def started(home: Path, *options: object) -> float:
    """Return the seconds until the message of one new cluster is consumed."""
    begin = time.perf_counter()
    with Foreground(["up", "--json", "--dir", home, *options], home.with_suffix(".err")) as up:
        servers = up.announced()["bootstrapServers"]
        produce(servers, "first", [b"message"])
        read = consumed(servers, "first")
        seconds = time.perf_counter() - begin
        assert read == {0: [(0, b"message")]}
        os.killpg(up.process.pid, signal.SIGINT)
        up.process.wait(PATIENCE_S)
    return seconds


@pytest.mark.parametrize(
    ("work", "options"),
    [
        ("up_combined", ("--controllers", 1, "--brokers", 1, "--combined")),
        ("up_six", ("--controllers", 3, "--brokers", 3)),
    ],
)
def bench_up(
    figure: Callable[..., None],
    sizes: Sizes,
    tmp_path: Path,
    work: str,
    options: tuple[object, ...],
) -> None:
    # As for an installed package, where PYTHONDONTWRITEBYTECODE is set.
    compile_dir(Path(kraft.__file__).parent, quiet=2)
    rounds = ROUNDS if sizes == FULL else 1
    taken = [started(tmp_path / f"cluster-{number}", *options) for number in range(rounds)]
    figure(work, unit="clusters", count=1, **summary(taken))
