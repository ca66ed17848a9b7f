"""Who may do what at the controller listener: kraft's answers, and Kafka's kept ones.

`tests/reference/authorization.py` has the kinds of principals and the requests.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from kraft.controller.runtime.security_requests import create_acls
from kraft.records import Uuid
from kraft.server.process import QuorumNode
from tests.harness.controller_nodes import PATIENCE_S, Quorum, RunScenario, until
from tests.harness.plain_users import PlainUsers, jaas_config
from tests.reference import authorization
from tests.reference.authorization import RESTORED, ROOT, acls_of, kinds, user_of

BROKER = "broker"
SETTINGS = {
    "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.controller.plain.sasl.jaas.config": jaas_config(
        [BROKER, *(user_of(kind, number) for number, kind in enumerate(kinds()))], BROKER
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:{ROOT};User:{BROKER}",
    # The broker has no process, so it must not be fenced for missing heartbeats.
    "broker.session.timeout.ms": "600000",
    "delegation.token.secret.key": "key of a throwaway cluster",
}


class KraftServer:
    """A node of a quorum whose users authenticate by SASL PLAIN; the broker is a super user."""

    def __init__(self, quorum: Quorum, node: QuorumNode, loop: asyncio.AbstractEventLoop) -> None:
        self._quorum, self._loop = quorum, loop
        endpoint = node.transport.endpoints[0]
        self._address = (endpoint.host, endpoint.port)
        self._users = PlainUsers()

    def ids(self) -> dict[str, Uuid]:
        async def look() -> dict[str, Uuid]:
            table = self._quorum.cluster(authorization.NODE_ID).table
            for name in RESTORED:
                if table.topic_number(name) < 0:
                    await self._quorum.create(name)
            return {name: Uuid(table.topic_id_of(table.topic_number(name))) for name in RESTORED}

        return asyncio.run_coroutine_threadsafe(look(), self._loop).result(PATIENCE_S)

    def ask(self, user: str, frame: bytes) -> bytes:
        return self._users.ask(user, self._address, frame)

    def forward(self, frame: bytes) -> bytes:
        return self._users.ask(BROKER, self._address, frame)

    def close(self) -> None:
        self._users.close()


def test_every_api_answers_every_kind_of_principal_as_kafka(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path, settings=SETTINGS)
    found: dict[str, Any] = {}

    async def scenario() -> None:
        await quorum.start()
        node = quorum.running[await quorum.active()]
        await quorum.brokers(2)
        await until(lambda: quorum.cluster(authorization.NODE_ID).state.brokers)
        acls = [
            acl
            for number, (kind, rules) in enumerate(kinds().items())
            for acl in acls_of(rules, user_of(kind, number))
        ]
        assert set(await quorum.ask(create_acls(acls))) == {None}
        authorizer = node.authorizer
        assert authorizer is not None
        await until(lambda: authorizer.acl_count == len(acls))
        server = KraftServer(quorum, node, asyncio.get_running_loop())
        try:
            found.update(await asyncio.to_thread(authorization.ask_all, server))
        finally:
            server.close()

    run_scenario(scenario, quorum)
    kafkas = authorization.load_table()
    differences = authorization.differences(found, kafkas)
    assert not differences, "\n".join([str(len(differences)), *differences[:2000]])


def test_the_table_distinguishes_the_kinds() -> None:
    """A table of equal outcomes would prove nothing."""
    table = authorization.load_table()
    assert len(table) > 100
    for request in authorization.requests():
        outcomes = {tuple(row[request.name]) for row in table.values()}
        if request.name not in ("ApiVersions",):
            assert len(outcomes) > 1 or request.name in _SAME_FOR_ALL, request.name


#: Requests that need no ACL of their sender.
_SAME_FOR_ALL = (
    "CreateDelegationToken of oneself",
    "RenewDelegationToken",
    "ExpireDelegationToken",
)
