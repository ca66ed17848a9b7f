"""Plugin (``-p``) that describes the emulated machine in a session's JSON; for the counted suite
only.

It removes all information on the real machine, so that the result can be kept in the repository.
"""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.counted import toolchain


def pytest_configure(config: pytest.Config) -> None:
    config.stash[toolchain.DESCRIBED] = toolchain.description()


@pytest.hookimpl(trylast=True)
def pytest_benchmark_update_machine_info(
    config: pytest.Config, machine_info: dict[str, Any]
) -> None:
    machine_info.clear()
    machine_info.update(toolchain.machine_info(config.stash[toolchain.DESCRIBED]))


def pytest_benchmark_update_commit_info(config: pytest.Config, commit_info: dict[str, Any]) -> None:
    commit_info["project"] = "kraft"
