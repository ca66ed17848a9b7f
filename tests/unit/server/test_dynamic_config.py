"""Dynamic settings of a node: they take effect while it runs, in Kafka's order of precedence."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft.controller.configs.config_changes import ConfigChange
from kraft.controller.runtime import requests
from kraft.image.configs import BROKER
from tests.harness.controller_nodes import Quorum, RunScenario, until


def test_dynamic_limits_of_connections_take_effect(
    run_scenario: RunScenario, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    quorum = Quorum(tmp_path, settings={"max.connections": "500"})

    async def alter(resource: str, **values: str | None) -> None:
        changes = [ConfigChange(name.replace("_", "."), value) for name, value in values.items()]
        operation = requests.incremental_alter_configs([((BROKER, resource), changes)])
        results = await quorum.ask(operation)
        assert results == {(BROKER, resource): None}

    async def scenario() -> None:
        await quorum.start()
        listener = quorum.running[await quorum.active()].transport.listener
        assert listener.limits.max_connections == 500
        await alter("", max_connections="400", max_connection_creation_rate="77")
        await until(lambda: listener.limits.max_connections == 400)
        assert listener.rates.limits.in_all == 77
        await alter("1", max_connections="300")
        await until(lambda: listener.limits.max_connections == 300)
        await alter("", max_connections="200", max_connections_per_ip_overrides="10.0.0.1:7")
        await until(lambda: listener.limits.max_connections_of_ips == {"10.0.0.1": 7})
        assert listener.limits.max_connections == 300
        # Kafka's controllers accept any value; a node that cannot apply it keeps the old ones.
        await alter("1", max_connections_per_ip_overrides="10.0.0.1")
        await until(lambda: "has no effect" in caplog.text)
        assert listener.limits.max_connections == 300
        await alter("1", max_connections=None, max_connections_per_ip_overrides=None)
        await until(lambda: listener.limits.max_connections == 200)
        await alter(
            *("",), max_connections=None, max_connection_creation_rate=None,
            max_connections_per_ip_overrides=None,
        )  # fmt: skip
        await until(lambda: listener.limits.max_connections == 500)
        assert listener.rates.limits.in_all is None
        await alter("", max_connections="100")
        await until(lambda: listener.limits.max_connections == 100)
        await quorum.stop()
        await quorum.start()
        listener = quorum.running[await quorum.active()].transport.listener
        await until(lambda: listener.limits.max_connections == 100)

    run_scenario(scenario, quorum)
