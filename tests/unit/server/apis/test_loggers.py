"""IncrementalAlterConfigs of BROKER_LOGGER resources over a node's listener."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraft.errors import CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST, NONE, NOT_CONTROLLER
from kraft.image.configs import BROKER_LOGGER, TOPIC
from kraft.protocol.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    IncrementalAlterConfigsRequestData,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponseData,
    IncrementalConfig,
)
from kraft.server.process import QuorumNode
from tests.harness.controller_nodes import Quorum, RunScenario
from tests.harness.listener_client import ask

BROKERS_ONLY = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:broker",
}
INVALID_CONFIG = 40
UNKNOWN_TOPIC = 3
SET, DELETE, APPEND, SUBTRACT = range(4)
NAME = "kraft.test_loggers"


@pytest.fixture
def own() -> Iterator[logging.Logger]:
    logger = logging.getLogger(NAME)
    yield logger
    logger.setLevel(logging.NOTSET)


async def alter(
    node: QuorumNode,
    *changes: tuple[str, int, str | None],
    name: str | None = None,
    validate_only: bool = False,
    others: tuple[IncrementalAlterConfigsResource, ...] = (),
) -> list[tuple[int, str | None]]:
    """Change loggers; return the errors and messages of the resources."""
    resource = IncrementalAlterConfigsResource(
        BROKER_LOGGER,
        str(node.config.node_id) if name is None else name,
        [IncrementalConfig(*change) for change in changes],
    )
    request = IncrementalAlterConfigsRequestData([*others, resource], validate_only)
    response = await ask(
        node, INCREMENTAL_ALTER_CONFIGS, 1, request, IncrementalAlterConfigsResponseData
    )
    return [(one.error_code, one.error_message) for one in response.responses]


def test_levels_change_all_or_none(
    run_scenario: RunScenario, tmp_path: Path, own: logging.Logger
) -> None:
    quorum = Quorum(tmp_path)

    async def scenario() -> None:
        await quorum.start()
        node = quorum.running[await quorum.active()]
        assert await alter(node, (NAME, SET, "DEBUG"), validate_only=True) == [(NONE, None)]
        assert own.level == logging.NOTSET
        assert await alter(node, (NAME, SET, "DEBUG")) == [(NONE, None)]
        assert own.level == logging.DEBUG
        ((code, message),) = await alter(node, (NAME, SET, "ERROR"), ("no.logger", SET, "INFO"))
        assert (code, message) == (INVALID_CONFIG, "Logger no.logger does not exist!")
        assert own.level == logging.DEBUG
        assert await alter(node, (NAME, DELETE, None)) == [(NONE, None)]
        assert own.level == logging.NOTSET

    run_scenario(scenario, quorum)


def test_errors_are_those_of_kafka(
    run_scenario: RunScenario, tmp_path: Path, own: logging.Logger
) -> None:
    quorum = Quorum(tmp_path)
    valid = "DEBUG, ERROR, FATAL, INFO, TRACE, WARN"

    async def scenario() -> None:
        await quorum.start()
        node = quorum.running[await quorum.active()]
        for change, error in {
            (NAME, SET, "LOUD"): (
                INVALID_CONFIG,
                f"Cannot set the log level of {NAME} to LOUD as it is not a supported log level. "
                f"Valid log levels are {valid}",
            ),
            ("root", DELETE, None): (
                INVALID_REQUEST,
                "Removing the log level of the root logger is not allowed",
            ),
            (NAME, APPEND, "INFO"): (
                INVALID_REQUEST,
                "APPEND operation is not allowed for the BROKER_LOGGER resource",
            ),
            (NAME, SUBTRACT, "INFO"): (
                INVALID_REQUEST,
                "SUBTRACT operation is not allowed for the BROKER_LOGGER resource",
            ),
            (NAME, 9, "INFO"): (
                INVALID_REQUEST,
                "Unknown operation type 9 is not allowed for the BROKER_LOGGER resource",
            ),
        }.items():
            assert await alter(node, change) == [error]
        assert await alter(node, (NAME, SET, "INFO"), name="x") == [
            (INVALID_REQUEST, "Node id must be an integer, but it is: x")
        ]
        ((code, message),) = await alter(node, (NAME, SET, "INFO"), name="77")
        assert code == INVALID_REQUEST
        assert message == f"Unexpected node id. Expected {node.config.node_id}, but received 77"
        assert own.level == logging.NOTSET

    run_scenario(scenario, quorum)


def test_a_standby_changes_its_own_loggers(
    run_scenario: RunScenario, tmp_path: Path, own: logging.Logger
) -> None:
    quorum = Quorum(tmp_path, 3)
    topic = IncrementalAlterConfigsResource(TOPIC, "t", [IncrementalConfig("retention.ms", 0, "1")])

    async def scenario() -> None:
        await quorum.start()
        active = await quorum.active()
        standby = next(node for id, node in quorum.running.items() if id != active)
        assert await alter(standby, (NAME, SET, "TRACE")) == [(NONE, None)]
        assert own.level == 5
        # A request that also names another resource must go to the active controller.
        both = await alter(standby, (NAME, SET, "TRACE"), others=(topic,))
        assert [code for code, _ in both] == [NOT_CONTROLLER] * 2
        both = await alter(quorum.running[active], (NAME, SET, "INFO"), others=(topic,))
        assert [code for code, _ in both] == [UNKNOWN_TOPIC, NONE]
        assert own.level == logging.INFO

    run_scenario(scenario, quorum)


def test_a_client_without_permission_changes_nothing(
    run_scenario: RunScenario, tmp_path: Path, own: logging.Logger
) -> None:
    quorum = Quorum(tmp_path, settings=BROKERS_ONLY)

    async def scenario() -> None:
        await quorum.start()
        node = quorum.running[await quorum.active()]
        await quorum.agree()
        ((code, _),) = await alter(node, (NAME, SET, "TRACE"))
        assert code == CLUSTER_AUTHORIZATION_FAILED
        assert own.level == logging.NOTSET

    run_scenario(scenario, quorum)
