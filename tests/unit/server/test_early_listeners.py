"""A controller listener serves before the ACLs are loaded; other listeners wait for them."""

from __future__ import annotations

import asyncio
import re
import socket
from pathlib import Path

import pytest

from kraft.errors import NOT_CONTROLLER
from kraft.protocol.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreateTopicsRequestData,
    CreateTopicsResponseData,
)
from kraft.protocol.headers import read_response_header, request_frame
from kraft.server.config.settings import AUTHORIZERS
from tests.harness.controller_nodes import Quorum, RunScenario, until
from tests.harness.plain_users import PlainUsers, jaas_config
from tests.reference import authorization

UNKNOWN_SERVER_ERROR, TOPIC_AUTHORIZATION_FAILED = -1, 29
SETTINGS = {
    "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.controller.plain.sasl.jaas.config": jaas_config(["node", "alice"], "node"),
    "listener.name.clients.plain.sasl.jaas.config": jaas_config(["node", "alice"]),
    "authorizer.class.name": AUTHORIZERS[0],
    "super.users": "User:node",
    "early.start.listeners": "CONTROLLER",
}


def with_two_listeners(home: Path) -> Quorum:
    """Return a quorum of three nodes; the listener CLIENTS of each opens after its ACLs."""
    quorum = Quorum(home, 3, settings=SETTINGS)
    for node in quorum.layout.values():
        text = node.config_path.read_text()
        text = text.replace("listener.names=CONTROLLER", "listener.names=CONTROLLER,CLIENTS")
        node.config_path.write_text(
            re.sub(r"(?m)^(listeners=.*)$", r"\1,CLIENTS://127.0.0.1:0", text)
        )
    return quorum


def create_topic(users: PlainUsers, user: str, port: int) -> int:
    """Return the error of CreateTopics."""
    request = CreateTopicsRequestData([CreatableTopic("a", 1, 1)], 30_000)
    frame = request_frame(CREATE_TOPICS, 7, 1, "test", request.encode(7))
    response = users.ask(user, ("127.0.0.1", port), frame)
    _, at = read_response_header(response, CREATE_TOPICS, 7)
    return CreateTopicsResponseData.decode(response, 7, at).topics[0].error_code


def test_super_users_pass_before_the_acls_are_loaded(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = with_two_listeners(tmp_path)
    users = PlainUsers()

    async def scenario() -> None:
        first, *others = quorum.layout
        # One of three nodes has no quorum, so no image and no ACLs.
        await quorum.start(first)
        node = quorum.running[first]
        ports = {endpoint.name: endpoint.port for endpoint in node.transport.endpoints}

        async def error_of(user: str, listener: str) -> int:
            return await asyncio.to_thread(create_topic, users, user, ports[listener])

        assert await error_of("node", "CONTROLLER") == NOT_CONTROLLER
        # As in Kafka, whose AuthorizerNotReadyException has no error code of its own.
        assert await error_of("alice", "CONTROLLER") == UNKNOWN_SERVER_ERROR
        for request in authorization.requests():
            # Not CLUSTER_AUTHORIZATION_FAILED, which ends a raft node of Kafka's; not
            # NOT_CONTROLLER, as who may ask is checked before.
            if request.name in ("Fetch", "FetchSnapshot", "Vote", "CreatePartitions"):
                frame = authorization.frame_of(request, {})
                address = ("127.0.0.1", ports["CONTROLLER"])
                response = await asyncio.to_thread(users.ask, "alice", address, frame)
                found = {each[-2:] for each in authorization.outcome(request, response)}
                assert found == {str(UNKNOWN_SERVER_ERROR)}, request.name
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", ports["CLIENTS"]), 1)
        await quorum.start(*others)
        authorizer = node.authorizer
        assert authorizer is not None
        await until(lambda: authorizer.is_ready and not node.transport.listener._waiting_servers)
        for listener in ports:
            # A node that does not lead answers NOT_CONTROLLER.
            decided = await error_of("alice", listener)
            assert decided in (TOPIC_AUTHORIZATION_FAILED, NOT_CONTROLLER)
            assert await error_of("node", listener) not in (
                TOPIC_AUTHORIZATION_FAILED,
                UNKNOWN_SERVER_ERROR,
            )

    try:
        run_scenario(scenario, quorum)
    finally:
        users.close()
