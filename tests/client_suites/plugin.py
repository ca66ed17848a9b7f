"""pytest plugin: the tests of kafka-python find `broker_fixtures` under the name of their own."""

from __future__ import annotations

import sys

import pytest

from tests.client_suites import broker_fixtures


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    sys.modules["test.integration.fixtures"] = broker_fixtures
