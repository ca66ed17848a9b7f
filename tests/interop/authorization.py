"""Ask Apache Kafka's controller the authorization matrix, and keep its outcomes.

``python -m tests.interop.authorization`` writes the table again. Users come by SASL PLAIN to a
listener of their own; the first listener is PLAINTEXT, and its peers are super users, as brokers
that forward requests.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from kraft.protocol.create_acls import (
    CREATE_ACLS,
    AclCreation,
    CreateAclsRequestData,
    CreateAclsResponseData,
)
from kraft.protocol.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreateTopicsRequestData,
    CreateTopicsResponseData,
)
from kraft.protocol.describe_acls import (
    DESCRIBE_ACLS,
    DescribeAclsRequestData,
    DescribeAclsResponseData,
)
from kraft.records import Uuid
from kraft.server.local_quorum import free_ports
from tests.harness.kafka_jars import KAFKA_4, kafka
from tests.harness.plain_users import PlainUsers, jaas_config
from tests.interop.cluster import HOST, TOKEN_KEY, Cluster, Node, wait_for
from tests.interop.raw_client import ask_node, unfenced_broker
from tests.reference import authorization
from tests.reference.authorization import NODE_ID, RESTORED, ROOT, acls_of, kinds, user_of

_BROKER_ID = 2


class KafkaServer:
    """Kafka's controller with the ACLs of all kinds; a connection for each user."""

    def __init__(self, node: Node, users_port: int) -> None:
        self._node = node
        self._users_port = users_port
        self._users = PlainUsers()
        self._ids: dict[str, Uuid] = {}

    def ids(self) -> dict[str, Uuid]:
        wanted = [CreatableTopic(name, 1, 1) for name in RESTORED]
        created = ask_node(
            self._node, CREATE_TOPICS, 7, CreateTopicsRequestData(wanted), CreateTopicsResponseData
        )
        for topic in created.topics:
            assert topic.error_code in (0, 36), topic
            if not topic.error_code:
                self._ids[topic.name] = topic.topic_id
        return self._ids

    def ask(self, user: str, frame: bytes) -> bytes:
        return self._users.ask(user, (HOST, self._users_port), frame)

    def forward(self, frame: bytes) -> bytes:
        return self._users.ask("", (HOST, self._node.port), frame)

    def close(self) -> None:
        self._users.close()


def ask_kafka(directory: Path) -> authorization.Table:
    """Return the outcomes of Apache Kafka's controller."""
    cluster = Cluster(kafka(KAFKA_4), directory, "a3JhZnQgYXV0aG9yaXplZA", True)
    cluster.reserve_controllers(NODE_ID)
    (users_port,) = free_ports(1)
    names = [user_of(kind, number) for number, kind in enumerate(kinds())]
    port = cluster.controller_ports[NODE_ID]
    cluster.settings = {
        # The broker has no process, so it must not be fenced for missing heartbeats.
        "broker.session.timeout.ms": "600000",
        # Kafka's controller answers a heartbeat that waited for half of it by REQUEST_TIMED_OUT.
        "broker.heartbeat.interval.ms": "120000",
        "super.users": f"User:ANONYMOUS;User:{ROOT}",
        "delegation.token.secret.key": TOKEN_KEY,
        "listeners": f"CONTROLLER://{HOST}:{port},USERS://{HOST}:{users_port}",
        "controller.listener.names": "CONTROLLER,USERS",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,USERS:SASL_PLAINTEXT",
        "listener.name.users.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.users.plain.sasl.jaas.config": jaas_config(names),
    }
    node = cluster.add_controller(NODE_ID)
    server = None
    try:
        node.format(cluster.cluster_id)
        node.start()
        node.wait_until_listening()
        unfenced_broker(node, cluster.cluster_id, _BROKER_ID)
        _create_acls(node)
        server = KafkaServer(node, users_port)
        wait_for("the ACLs to be loaded", lambda: _has_acls_of(node, names[-1]))
        return authorization.ask_all(server)
    finally:
        if server is not None:
            server.close()
        cluster.kill()


def _create_acls(node: Node) -> None:
    acls = [
        AclCreation(
            acl.resource_type, acl.resource_name, acl.pattern_type, acl.principal, acl.host,
            acl.operation, acl.permission_type,
        )
        for number, (kind, rules) in enumerate(kinds().items())
        for acl in acls_of(rules, user_of(kind, number))
    ]  # fmt: skip

    def create() -> bool:
        request = CreateAclsRequestData(acls)
        created = ask_node(node, CREATE_ACLS, 3, request, CreateAclsResponseData)
        codes = {each.error_code for each in created.results}
        return codes == {0}

    wait_for("the ACLs to be created", create)


def _has_acls_of(node: Node, user: str) -> bool:
    """Return whether the authorizer, which follows the log, has the ACLs of this user."""
    # Any resource, name, kind of pattern, operation and permission.
    asked = DescribeAclsRequestData(1, None, 1, f"User:{user}", None, 1, 1)
    return bool(ask_node(node, DESCRIBE_ACLS, 3, asked, DescribeAclsResponseData).resources)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        authorization.save_table(ask_kafka(Path(place)))
    print(authorization.TABLE, file=sys.stderr)
