"""Fixtures of the tests of connections."""

from __future__ import annotations

import pytest

from tests.unit.network.scripted_peers import LOOPS


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name
