"""DescribeCluster on a controller listener (KIP-919)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft import records
from kraft.errors import (
    CLUSTER_AUTHORIZATION_FAILED,
    INVALID_REQUEST,
    MISMATCHED_ENDPOINT_TYPE,
    UNSUPPORTED_ENDPOINT_TYPE,
    UnsupportedVersionError,
)
from kraft.protocol.describe_cluster import (
    BROKERS,
    CONTROLLERS,
    DESCRIBE_CLUSTER,
    DescribeClusterRequestData,
    DescribeClusterResponseData,
)
from kraft.server.cluster_description import describe_controllers
from kraft.server.process import QuorumNode
from tests.harness.controller_nodes import Quorum, RunScenario, until
from tests.harness.listener_client import ask
from tests.harness.publishing import PublishedCluster

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
NO_OPERATIONS = -(2**31)
#: CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE.
ALL_OPERATIONS = sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))


async def describe(
    node: QuorumNode, version: int = 2, endpoint_type: int = CONTROLLERS, **fields: bool
) -> DescribeClusterResponseData:
    request = DescribeClusterRequestData(endpoint_type=endpoint_type, **fields)
    return await ask(node, DESCRIBE_CLUSTER, version, request, DescribeClusterResponseData)


def test_every_node_names_the_controllers_and_the_active_one(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path, 3)

    async def scenario() -> None:
        await quorum.start()
        active = await quorum.active()
        ports = {id: node.transport.endpoints[0].port for id, node in quorum.running.items()}
        for node in quorum.running.values():
            await until(lambda node=node: node.driver.node.leader_id == active)
            for version in (1, 2):
                said = await describe(node, version)
                assert (said.error_code, said.controller_id) == (0, active)
                assert said.cluster_id == node.identity.cluster_id
                assert {at.broker_id: (at.host, at.port) for at in said.brokers} == {
                    id: ("127.0.0.1", port) for id, port in ports.items()
                }
                assert said.endpoint_type == CONTROLLERS
                assert said.cluster_authorized_operations == NO_OPERATIONS
            said = await describe(node, 2, include_cluster_authorized_operations=True)
            assert said.cluster_authorized_operations == ALL_OPERATIONS

    run_scenario(scenario, quorum)


def test_a_controller_lists_no_brokers(run_scenario: RunScenario, tmp_path: Path) -> None:
    quorum = Quorum(tmp_path)

    async def scenario() -> None:
        await quorum.start()
        node = quorum.running[await quorum.active()]
        for version, kind, code in (
            (0, BROKERS, INVALID_REQUEST),
            (1, BROKERS, MISMATCHED_ENDPOINT_TYPE),
            (2, BROKERS, MISMATCHED_ENDPOINT_TYPE),
            (2, 0, UNSUPPORTED_ENDPOINT_TYPE),
        ):
            said = await describe(node, version, kind)
            assert (said.error_code, said.brokers) == (code, []), (version, kind)
            assert said.error_message

    run_scenario(scenario, quorum)


def test_a_client_needs_alter_on_the_cluster(run_scenario: RunScenario, tmp_path: Path) -> None:
    settings = {"authorizer.class.name": STANDARD, "super.users": "User:broker"}
    quorum = Quorum(tmp_path, settings=settings)

    async def scenario() -> None:
        await quorum.start()
        node = quorum.running[await quorum.active()]
        images = quorum.runner(node.config.node_id).publishing.images
        await until(lambda: images.image is not None)
        said = await describe(node)
        assert said.error_code == CLUSTER_AUTHORIZATION_FAILED
        assert (said.cluster_id, said.brokers) == ("", [])

    run_scenario(scenario, quorum)


def registration(id: int, *listeners: str) -> records.RegisterController:
    return records.RegisterController(
        controller_id=id,
        end_points=[
            records.EndpointData(name=name, host=f"h{id}", port=place, security_protocol=0)
            for place, name in enumerate(listeners, 1)
        ],
    )


def test_only_controllers_with_the_listener_of_the_request_are_listed() -> None:
    published = PublishedCluster()
    published.append(
        records.FeatureLevel("metadata.version", 15),
        registration(1, "A", "B"),
        registration(2, "B"),
        registration(3, "C"),
    )
    image = published.publish().image
    assert describe_controllers("c", "B", None, image).controllers == {1: ("h1", 2), 2: ("h2", 1)}
    assert describe_controllers("c", "A", None, image).controllers == {1: ("h1", 1)}
    published.append(records.FeatureLevel("metadata.version", 14))
    with pytest.raises(UnsupportedVersionError, match=r"3\.6-IV2 is too old"):
        describe_controllers("c", "B", None, published.publish().image)
