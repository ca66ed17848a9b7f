"""File descriptors: the soft limit is raised, and some are reserved for the disk."""

from __future__ import annotations

import logging
import os
import subprocess
import sys

import pytest

from kraft.errors import InvalidConfigError
from kraft.network.admission import NEWCOMERS, VOTER_CONNECTIONS
from kraft.network.listener import Limits
from kraft.server.descriptors import (
    RESERVE,
    SURPLUS,
    bounded_limits,
    most_connections,
)

ALL_RESERVES = RESERVE + SURPLUS + NEWCOMERS + VOTER_CONNECTIONS


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    code = (
        "import resource\n"
        "from kraft.server.descriptors import raise_soft_limit\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, 2000))\n"
        "print(raise_soft_limit(), resource.getrlimit(resource.RLIMIT_NOFILE))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    assert ran.stdout == "2000 (2000, 2000)\n"


def test_connections_are_limited_to_the_free_descriptors(caplog: pytest.LogCaptureFixture) -> None:
    in_use = len(os.listdir("/dev/fd"))
    limits = bounded_limits(Limits(), most_connections(1024))
    assert abs(limits.max_connections - (1024 - in_use - ALL_RESERVES)) <= 1
    assert limits.max_connections > 400
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert f"max.connections is {limits.max_connections} instead of 10000" in record.getMessage()


def test_a_high_limit_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    limits = Limits(max_connections=500)
    assert bounded_limits(limits, most_connections(2000)) == limits
    assert not caplog.records


def test_a_node_without_free_descriptors_does_not_start() -> None:
    with pytest.raises(InvalidConfigError, match=r"limit of open files is 200, .* at least \d+"):
        most_connections(200)
