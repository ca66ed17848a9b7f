"""AlterConfigs and IncrementalAlterConfigs at a broker: what it decides, and what it forwards."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from kraft.errors import NONE, REQUEST_TIMED_OUT
from kraft.image.configs import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from kraft.protocol.alter_configs import (
    ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsRequestData,
    AlterConfigsResource,
    AlterConfigsResponseData,
)
from kraft.protocol.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    IncrementalAlterConfigsRequestData,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponseData,
    IncrementalConfig,
)
from kraft.security.principals import ANONYMOUS, KafkaPrincipal
from tests.harness.controller_nodes import RunScenario, hold_disk
from tests.unit.broker.apis.admin_broker import AdminBroker, admin_quorum, started_broker

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
AUTHORIZED = {"authorizer.class.name": STANDARD, "super.users": "User:ANONYMOUS"}
ALICE = KafkaPrincipal("User", "alice")
UNKNOWN_TOPIC, INVALID_REQUEST, INVALID_CONFIG = 3, 42, 40
TOPIC_DENIED, CLUSTER_DENIED = 29, 31
SET, DELETE, APPEND, SUBTRACT = range(4)
LOGGER = "tests.config_changes"

Change = tuple[str, str | None, int]
Resource = tuple[int, str]


async def alter(
    broker: AdminBroker,
    *resources: tuple[Resource, list[Change]],
    version: int = 1,
    validate_only: bool = False,
    principal: KafkaPrincipal = ANONYMOUS,
) -> list[tuple[Resource, int]]:
    """Return the resources of the response with their errors, in its order."""
    request = IncrementalAlterConfigsRequestData(
        [
            IncrementalAlterConfigsResource(
                kind, name, [IncrementalConfig(name, op, value) for name, value, op in changes]
            )
            for (kind, name), changes in resources
        ],
        validate_only,
    )
    response = await broker.ask(
        INCREMENTAL_ALTER_CONFIGS, version, request, IncrementalAlterConfigsResponseData, principal
    )
    return [((at.resource_type, at.resource_name), at.error_code) for at in response.responses]


async def replace(
    broker: AdminBroker, *resources: tuple[Resource, dict[str, str | None]], version: int = 2
) -> list[tuple[Resource, int]]:
    request = AlterConfigsRequestData(
        [
            AlterConfigsResource(kind, name, [AlterableConfig(*each) for each in values.items()])
            for (kind, name), values in resources
        ]
    )
    response = await broker.ask(ALTER_CONFIGS, version, request, AlterConfigsResponseData)
    return [((at.resource_type, at.resource_name), at.error_code) for at in response.responses]


def test_the_response_has_the_resources_in_their_order(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = admin_quorum(tmp_path)

    async def scenario() -> None:
        broker = await started_broker(quorum)
        await quorum.brokers(1)
        await quorum.create("a")
        await broker.is_current()
        logging.getLogger(LOGGER)
        for version in range(2):
            assert await alter(
                broker,
                ((BROKER, "2"), [("num.io.threads", "9", SET)]),
                ((TOPIC, "a"), [("retention.ms", f"{version + 1}", SET)]),
                ((BROKER_LOGGER, "1"), [(LOGGER, "ERROR", SET)]),
                ((TOPIC, "gone"), [("retention.ms", "1", SET)]),
                ((BROKER, "1"), [("log.retention.ms", f"{version + 1}", SET)]),
                ((BROKER, ""), [("log.segment.bytes", "5000000", SET)]),
                ((CLIENT_METRICS, "m"), [("interval.ms", "1000", SET)]),
                ((GROUP, "g"), [("consumer.session.timeout.ms", "50000", SET)]),
                ((TOPIC, "a"), [("retention.ms", "1", SET)]),
                ((99, "x"), [("y", "1", SET)]),
                version=version,
            ) == [
                ((BROKER, "2"), INVALID_REQUEST),
                ((TOPIC, "a"), INVALID_REQUEST),
                ((BROKER_LOGGER, "1"), NONE),
                ((TOPIC, "gone"), UNKNOWN_TOPIC),
                ((BROKER, "1"), NONE),
                ((BROKER, ""), NONE),
                ((CLIENT_METRICS, "m"), NONE),
                ((GROUP, "g"), NONE),
                ((TOPIC, "a"), INVALID_REQUEST),
                ((99, "x"), INVALID_REQUEST),
            ]
            configs = quorum.cluster(1).state.configs
            assert configs.broker(1) == {"log.retention.ms": f"{version + 1}"}
            assert configs.cluster_default()["log.segment.bytes"] == "5000000"
            assert not configs.topic("a")
        assert logging.getLogger(LOGGER).level == logging.ERROR
        broker.close()

    run_scenario(scenario, quorum)


@pytest.mark.parametrize("version", range(ALTER_CONFIGS.highest + 1))
def test_all_values_of_resources_are_replaced(
    run_scenario: RunScenario, tmp_path: Path, version: int
) -> None:
    quorum = admin_quorum(tmp_path)

    async def scenario() -> None:
        broker = await started_broker(quorum)
        await quorum.brokers(1)
        await quorum.create("a")
        assert await replace(
            broker,
            ((TOPIC, "a"), {"retention.ms": "1"}),
            ((BROKER, "1"), {"log.retention.ms": "1", "log.segment.bytes": "5000000"}),
            ((BROKER_LOGGER, "1"), {LOGGER: "ERROR"}),
            ((BROKER, ""), {"log.retention.ms": None}),
            version=version,
        ) == [
            ((TOPIC, "a"), NONE),
            ((BROKER, "1"), NONE),
            ((BROKER_LOGGER, "1"), INVALID_REQUEST),
            ((BROKER, ""), INVALID_REQUEST),
        ]
        await broker.is_current()
        assert await replace(
            broker,
            ((BROKER, "1"), {"log.retention.ms": "2"}),
            ((BROKER, "7"), {}),
            version=version,
        ) == [((BROKER, "1"), NONE), ((BROKER, "7"), INVALID_REQUEST)]
        configs = quorum.cluster(1).state.configs
        assert configs.broker(1) == {"log.retention.ms": "2"}
        assert configs.topic("a") == {"retention.ms": "1"}
        broker.close()

    run_scenario(scenario, quorum)


@pytest.mark.parametrize(
    ("name", "changes", "error"),
    [
        # A setting that cannot change while a broker runs.
        ("1", [("log.dirs", "/x", SET)], INVALID_REQUEST),
        ("1", [("process.roles", "broker", SET)], INVALID_REQUEST),
        # Only with the prefix of a listener.
        ("1", [("ssl.keystore.location", "/x", SET)], INVALID_REQUEST),
        ("1", [("listener.name.tls.ssl.keystore.location", "/x", SET)], NONE),
        # Not for all brokers.
        ("", [("listener.name.tls.ssl.keystore.location", "/x", SET)], INVALID_REQUEST),
        ("", [("cordoned.log.dirs", "/data/a", SET)], INVALID_REQUEST),
        ("", [("listener.name.tls.max.connections", "5", SET)], NONE),
        # Values.
        ("1", [("log.retention.ms", "soon", SET)], INVALID_REQUEST),
        ("1", [("max.connections", "-1", SET)], INVALID_REQUEST),
        ("1", [("listener.name.tls.max.connections", "many", SET)], INVALID_REQUEST),
        ("1", [("log.retention.ms", None, SET)], INVALID_REQUEST),
        ("1", [("log.retention.ms", None, DELETE)], NONE),
        # Pools of threads: half to double of 8.
        ("1", [("num.io.threads", "4", SET)], NONE),
        ("1", [("num.io.threads", "3", SET)], INVALID_REQUEST),
        ("1", [("num.io.threads", "16", SET)], NONE),
        ("", [("num.io.threads", "17", SET)], INVALID_REQUEST),
        ("1", [("num.io.threads", "0", SET)], INVALID_REQUEST),
        # Directories of this broker.
        ("1", [("cordoned.log.dirs", "/data/a,/data/b", SET)], NONE),
        ("1", [("cordoned.log.dirs", "*", SET)], NONE),
        ("1", [("cordoned.log.dirs", "/data/c", APPEND)], INVALID_REQUEST),
        # Operations.
        ("1", [("log.cleanup.policy", "compact", APPEND)], NONE),
        ("1", [("log.cleanup.policy", "delete", SUBTRACT)], NONE),
        ("1", [("log.retention.ms", "1", APPEND)], INVALID_CONFIG),
        ("1", [("log.retention.ms", "1", 9)], INVALID_REQUEST),
        ("1", [("log.retention.ms", "1", SET), ("log.retention.ms", "2", SET)], INVALID_REQUEST),
        # Unknown settings may be those of plugins.
        ("1", [("my.plugin.setting", "1", SET)], NONE),
        # The id of a broker.
        ("one", [("log.retention.ms", "1", SET)], INVALID_REQUEST),
    ],
)
def test_a_broker_checks_its_own_settings(
    run_scenario: RunScenario, tmp_path: Path, name: str, changes: list[Change], error: int
) -> None:
    quorum = admin_quorum(tmp_path)

    async def scenario() -> None:
        broker = await started_broker(quorum, static={"log.dirs": "/data/a,/data/b"})
        await quorum.brokers(1)
        assert await alter(broker, ((BROKER, name), changes)) == [((BROKER, name), error)]
        broker.close()

    run_scenario(scenario, quorum)


def test_a_change_is_checked_with_the_settings_that_exist(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = admin_quorum(tmp_path)

    async def scenario() -> None:
        broker = await started_broker(quorum)
        await quorum.brokers(1)
        threads = "num.io.threads"
        for name, value, error in (
            ("", "16", NONE),
            # The double of 16, and not of the default.
            ("1", "32", NONE),
            ("1", "65", INVALID_REQUEST),
            # The broker has its own value: the default of all brokers does not change its pool.
            ("", "8", NONE),
        ):
            changed = await alter(broker, ((BROKER, name), [(threads, value, SET)]))
            assert changed == [((BROKER, name), error)]
            await broker.is_current()
        assert quorum.cluster(1).state.configs.broker(1) == {threads: "32"}
        broker.close()

    run_scenario(scenario, quorum)


def test_a_wrong_text_of_the_properties_file_does_not_stop_changes(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    """A broker starts with any text for a setting that only Kafka uses."""
    quorum = admin_quorum(tmp_path)
    static = {"num.io.threads": "many", "log.cleaner.threads": "0"}

    async def scenario() -> None:
        broker = await started_broker(quorum, static=static)
        await quorum.brokers(1)
        for name, value, error in (
            ("log.retention.ms", "5", NONE),
            ("num.io.threads", "9", NONE),
            ("log.cleaner.threads", "2", INVALID_REQUEST),
        ):
            changed = await alter(broker, ((BROKER, "1"), [(name, value, SET)]))
            assert changed == [((BROKER, "1"), error)]
        broker.close()

    run_scenario(scenario, quorum)


def test_a_validation_changes_nothing(run_scenario: RunScenario, tmp_path: Path) -> None:
    quorum = admin_quorum(tmp_path)

    async def scenario() -> None:
        broker = await started_broker(quorum)
        await quorum.brokers(1)
        logging.getLogger(LOGGER).setLevel(logging.INFO)
        resources: list[tuple[Resource, list[Change]]] = [
            ((BROKER, "1"), [("log.retention.ms", "1", SET)]),
            ((BROKER_LOGGER, "1"), [(LOGGER, "ERROR", SET)]),
        ]
        assert [error for _, error in await alter(broker, *resources, validate_only=True)] == [
            NONE,
            NONE,
        ]
        assert logging.getLogger(LOGGER).level == logging.INFO
        assert not quorum.cluster(1).state.configs.broker(1)
        broker.close()

    run_scenario(scenario, quorum)


def test_the_broker_authorizes_loggers_and_the_controller_the_rest(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = admin_quorum(tmp_path, settings=AUTHORIZED)

    async def scenario() -> None:
        broker = await started_broker(quorum)
        await quorum.brokers(1)
        await quorum.create("a")
        await broker.is_current()
        changes: list[tuple[Resource, list[Change]]] = [
            ((BROKER_LOGGER, "1"), [(LOGGER, "ERROR", SET)]),
            ((TOPIC, "a"), [("retention.ms", "1", SET)]),
            ((BROKER, "1"), [("log.retention.ms", "1", SET)]),
        ]
        assert [error for _, error in await alter(broker, *changes, principal=ALICE)] == [
            CLUSTER_DENIED,
            TOPIC_DENIED,
            CLUSTER_DENIED,
        ]
        broker.close()

    run_scenario(scenario, quorum)


def test_a_timeout_concerns_only_what_was_forwarded(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = admin_quorum(tmp_path)

    async def scenario() -> None:
        broker = await started_broker(quorum, forwarding_ms=300)
        await quorum.brokers(1)
        await quorum.create("a")
        logging.getLogger(LOGGER)
        gate = hold_disk(quorum.running[1])
        try:
            assert await alter(
                broker,
                ((BROKER_LOGGER, "1"), [(LOGGER, "WARN", SET)]),
                ((TOPIC, "a"), [("retention.ms", "1", SET)]),
            ) == [((BROKER_LOGGER, "1"), NONE), ((TOPIC, "a"), REQUEST_TIMED_OUT)]
            # Without anything to forward nobody waits for the controller.
            assert await alter(broker, ((BROKER_LOGGER, "1"), [(LOGGER, "INFO", SET)])) == [
                ((BROKER_LOGGER, "1"), NONE)
            ]
        finally:
            gate.set()
        broker.close()

    run_scenario(scenario, quorum)
