"""Principal builders in Python: principals by listener, in envelopes, and faulty builders."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kraft.controller.runtime.security_requests import create_acls
from kraft.errors import PRINCIPAL_DESERIALIZATION_FAILURE, InvalidConfigError
from kraft.image.security import (
    AccessControl,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)
from kraft.protocol.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreateTopicsRequestData,
    CreateTopicsResponseData,
)
from kraft.security.principals import KafkaPrincipal
from kraft.security.protocols import SecurityProtocol
from kraft.server.config.loading import ServerConfig
from kraft.server.config.settings import (
    AUTHORIZERS,
    DEFAULT_PRINCIPAL_BUILDER,
    PRINCIPAL_BUILDER,
)
from tests.harness.controller_nodes import Quorum, RunScenario, until
from tests.harness.listener_client import ask, ask_bytes, forward
from tests.unit.server.apis.broker_requests import brokers, leader
from tests.unit.server.apis.principal_builders import ByListener

HERE = "tests.unit.server.apis.principal_builders"
TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED = 29, 31
#: The principal of the builder `ByListener` on the listener of controllers is a super user.
WITH_AUTHORIZER = {
    "authorizer.class.name": AUTHORIZERS[0],
    "super.users": "User:peer-of-CONTROLLER",
}


def two_listeners(home: Path, **settings: str) -> Quorum:
    """Return a quorum of one node that has a second listener, CLIENTS."""
    names = {name.replace("__", "."): value for name, value in settings.items()}
    quorum = Quorum(home, settings=WITH_AUTHORIZER | names)
    path = quorum.layout[1].config_path
    text = path.read_text()
    names_line = "controller.listener.names=CONTROLLER"
    assert names_line in text
    text = text.replace(names_line, f"{names_line},CLIENTS")
    path.write_text(re.sub(r"(?m)^(listeners=.*)$", r"\1,CLIENTS://127.0.0.1:0", text))
    return quorum


def topic(name: str) -> CreateTopicsRequestData:
    return CreateTopicsRequestData([CreatableTopic(name, 1, 1)], 30_000)


def test_the_principal_depends_on_the_listener(run_scenario: RunScenario, tmp_path: Path) -> None:
    quorum = two_listeners(tmp_path, principal__builder__class=f"{HERE}:ByListener")
    ByListener.seen.clear()

    async def scenario() -> None:
        await quorum.start()
        node = await leader(quorum)
        await brokers(node, 1)

        async def create(name: str, listener: str) -> int:
            answer = await ask(
                *(node, CREATE_TOPICS, 7, topic(name), CreateTopicsResponseData, listener)
            )
            return answer.topics[0].error_code

        assert await create("a", "CONTROLLER") == 0
        assert await create("b", "CLIENTS") == TOPIC_AUTHORIZATION_FAILED
        peers = {each.listener: each for each in ByListener.seen}
        assert peers["CLIENTS"].protocol is SecurityProtocol.PLAINTEXT
        assert peers["CLIENTS"].address == "127.0.0.1"
        assert peers["CLIENTS"].subject is peers["CLIENTS"].sasl_user is None
        allowed = AccessControl(
            ResourceType.TOPIC,
            "b",
            PatternType.LITERAL,
            "User:peer-of-CLIENTS",
            "*",
            AclOperation.CREATE,
            PermissionType.ALLOW,
        )
        assert await quorum.ask(create_acls([allowed])) == [None]
        authorizer = node.authorizer
        assert authorizer is not None
        await until(lambda: authorizer.acl_count)
        assert await create("b", "CLIENTS") == 0
        # The principal of an envelope is its client's, and that of the connection its broker's.
        for user, listener, expected in (
            ("peer-of-CLIENTS", "CONTROLLER", TOPIC_AUTHORIZATION_FAILED),
            ("peer-of-CONTROLLER", "CONTROLLER", 0),
            ("peer-of-CONTROLLER", "CLIENTS", CLUSTER_AUTHORIZATION_FAILED),
        ):
            answer = await forward(
                *(node, CREATE_TOPICS, 7, topic("c"), CreateTopicsResponseData),
                *(KafkaPrincipal("User", user), listener),
            )
            found = answer if isinstance(answer, int) else answer.topics[0].error_code
            assert found == expected, (user, listener)

    run_scenario(scenario, quorum)


def test_a_builder_may_read_principals_of_its_own_form(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = two_listeners(
        tmp_path,
        listener__name__controller__principal__builder__class=f"{HERE}:WithOwnEnvelopes",
        principal__builder__class=DEFAULT_PRINCIPAL_BUILDER,
    )

    async def scenario() -> None:
        await quorum.start()
        node = await leader(quorum)
        await brokers(node, 1)
        for data, expected in (
            (b"User/peer-of-CONTROLLER", 0),
            (b"User/alice", TOPIC_AUTHORIZATION_FAILED),
            (b"User:alice", PRINCIPAL_DESERIALIZATION_FAILURE),
        ):
            answer = await forward(
                *(node, CREATE_TOPICS, 7, topic("a"), CreateTopicsResponseData, data)
            )
            found = answer if isinstance(answer, int) else answer.topics[0].error_code
            assert found == expected, data
        # Kafka's own class is the default: this listener's peers are anonymous.
        answer = await ask(
            *(node, CREATE_TOPICS, 7, topic("b"), CreateTopicsResponseData, "CLIENTS")
        )
        assert answer.topics[0].error_code == TOPIC_AUTHORIZATION_FAILED

    run_scenario(scenario, quorum)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Failing", "raised RuntimeError('no such directory service')"),
        ("Nothing", "returned None, which is not a KafkaPrincipal"),
    ],
)
def test_a_faulty_builder_closes_the_connection(
    run_scenario: RunScenario,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    name: str,
    message: str,
) -> None:
    builder = {"listener__name__clients__principal__builder__class": f"{HERE}:{name}"}
    quorum = two_listeners(tmp_path, **builder)

    async def scenario() -> None:
        await quorum.start()
        node = await leader(quorum)
        frame = b"\0\0\0\x0b\0\x13\0\x05\0\0\0\x07\xff\xff\0"
        assert await ask_bytes(node, frame, "CLIENTS") == b""

    run_scenario(scenario, quorum)
    assert f"principal.builder.class {message} for 127.0.0.1 on CLIENTS" in caplog.text


def test_a_java_builder_is_refused_and_kafkas_own_is_known(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = two_listeners(tmp_path, principal__builder__class="org.example.JavaBuilder")
    config = ServerConfig.load(quorum.layout[1].config_path)
    assert PRINCIPAL_BUILDER not in {each.name for each in config.no_effect}

    async def scenario() -> None:
        with pytest.raises(InvalidConfigError, match="cannot load Java classes: write the plugin"):
            await quorum.start()

    run_scenario(scenario, quorum)
