"""What Kafka's controller and kraft's answer at an early listener before the ACLs are loaded.

A single controller of three voters has no quorum, and so never loads its ACLs. A user who is no
super user sends every API, itself and through a broker's envelope.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft.records import Uuid
from kraft.server.local_quorum import free_ports
from tests.harness.kafka_jars import KAFKA_4, kafka
from tests.harness.plain_users import PlainUsers, jaas_config
from tests.interop.cluster import HOST, TOKEN_KEY, Cluster
from tests.interop.kraft_node import add_kraft_controller
from tests.reference import authorization
from tests.reference.authorization import Outcome

pytestmark = pytest.mark.interop

CLUSTER_ID = "a3JhZnQgZWFybHkgYWNscw"
USER = "alice"
FORWARDED = "forwarded "
UNKNOWN_SERVER_ERROR = "-1"
NO_TOPICS = {name: Uuid(b"a missing topic.") for name in authorization.RESTORED}


#: Before the first metadata.version Kafka rejects DescribeCluster for everyone. kraft describes the
#: voters to those who may, so that they find a leader that cannot commit a registration.
KNOWN_DIFFERENCES = {"DescribeCluster": (["35"], ["-1"])}


def outcomes(directory: Path, *, is_kraft: bool) -> dict[str, Outcome]:
    """Return the outcome of each request at a controller without a quorum."""
    cluster = Cluster(kafka(KAFKA_4), directory, CLUSTER_ID, True)
    cluster.reserve_controllers(1, 2, 3)
    (users_port,) = free_ports(1)
    cluster.settings = {
        "super.users": "User:ANONYMOUS",
        "delegation.token.secret.key": TOKEN_KEY,
        "listeners": (
            f"CONTROLLER://{HOST}:{cluster.controller_ports[1]},USERS://{HOST}:{users_port}"
        ),
        "controller.listener.names": "CONTROLLER,USERS",
        "early.start.listeners": "CONTROLLER,USERS",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,USERS:SASL_PLAINTEXT",
        "listener.name.users.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.users.plain.sasl.jaas.config": jaas_config([USER]),
    }
    node = add_kraft_controller(cluster, 1) if is_kraft else cluster.add_controller(1)
    users = PlainUsers()
    found: dict[str, Outcome] = {}
    try:
        node.format(CLUSTER_ID)
        node.start()
        node.wait_until_listening()
        for request in authorization.requests():
            response = users.ask(
                USER, (HOST, users_port), authorization.frame_of(request, NO_TOPICS)
            )
            found[request.name] = authorization.outcome(request, response)
            if request.is_forwarded:
                envelope = authorization.forwarded(request, USER, NO_TOPICS)
                response = users.ask("", (HOST, node.port), envelope)
                outcome = authorization.forwarded_outcome(request, response)
                found[FORWARDED + request.name] = outcome
    finally:
        users.close()
        cluster.kill()
    return found


def test_a_user_gets_kafkas_answers_before_the_acls_are_loaded(tmp_path: Path) -> None:
    kafkas = outcomes(tmp_path / "kafka", is_kraft=False)
    ours = outcomes(tmp_path / "kraft", is_kraft=True)
    differences = [
        f"{name}: Kafka {kafkas.get(name)}, kraft {ours.get(name)}"
        for name in sorted(kafkas.keys() | ours.keys())
        if kafkas.get(name) != ours.get(name)
        and KNOWN_DIFFERENCES.get(name) != (kafkas.get(name), ours.get(name))
    ]
    assert not differences, "\n".join(differences)
    # AuthorizerNotReadyException has no error code of its own.
    refused = [name for name, codes in kafkas.items() if UNKNOWN_SERVER_ERROR in str(codes)]
    assert len(refused) > len(kafkas) * 3 // 4
    assert {"Fetch", "Vote", "CreateTopics", f"{FORWARDED}CreateTopics"} <= set(refused)
