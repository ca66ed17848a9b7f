"""Memory of everything that an active controller of a large cluster keeps.

``controller_memory``  growth of a process's resident memory at two million partitions; the peer is
                       the heap of Kafka's control managers after garbage collections
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import generate
from benchmarks.bench_peers import run
from benchmarks.conftest import Sizes
from benchmarks.java_peers import Peers


@pytest.mark.peer
def test_memory_of_the_controller(figure: Callable[..., None], sizes: Sizes, peers: Peers) -> None:
    count = 2 * sizes.partitions
    path, expected = generate.make("uniform", count)
    result = subprocess.run(
        [sys.executable, "-m", "benchmarks.controller_memory", str(path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).resolve().parents[1],
    )
    held = json.loads(result.stdout)
    assert held["partitions"] == expected.partitions
    assert held["bytes"] > sum(held["table"].values()) / 2
    figure("controller_memory", unit="partitions", count=count, bytes=held["bytes"])
    line = run(peers, "controller-heap", sizes, file=path, count=count)["controller_heap"]
    assert line["bytes"] > 0
