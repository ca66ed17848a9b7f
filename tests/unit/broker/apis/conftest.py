"""Fixtures of the tests of a broker's admin APIs."""

from __future__ import annotations

import pytest

from tests.harness.controller_nodes import RunScenario, run


@pytest.fixture
def run_scenario(monkeypatch: pytest.MonkeyPatch) -> RunScenario:
    return lambda scenario, quorum: run(scenario, quorum, monkeypatch)
