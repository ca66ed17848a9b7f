"""Brokers that are registered in ZooKeeper as records."""

from __future__ import annotations

import pytest

from kraft.errors import CorruptZnodeError
from kraft.records import EndpointData, Feature
from kraft.zookeeper.registrations import registered_brokers, registrations
from kraft.zookeeper.tree import StoredZnode
from kraft.zookeeper.znodes import BrokerZnode, ListenerAddress
from tests.harness.znode_trees import broker, document, tree

LEVEL = 21


def test_a_broker_keeps_its_epoch_listeners_rack_and_features() -> None:
    listeners = (ListenerAddress("a", 1), ListenerAddress("::1", 2, "IN", "SASL_SSL"))
    znode = BrokerZnode(7, listeners, "r", features={"group.version": (0, 1)})
    (found,) = registrations(tree({"/brokers/ids/7": StoredZnode(znode.encode(5), 0, 99)}), LEVEL)
    assert (found.broker_id, found.broker_epoch, found.rack, found.fenced) == (7, 99, "r", False)
    assert found.is_migrating_zk_broker
    assert found.end_points == [
        EndpointData("PLAINTEXT", "a", 1, 0),
        EndpointData("IN", "::1", 2, 3),
    ]
    assert found.features == [Feature("group.version", 0, 1)]
    assert found.version == 3


def test_another_session_is_another_incarnation() -> None:
    def incarnation(czxid: int) -> object:
        (found,) = registrations(tree({"/brokers/ids/1": broker(1, czxid=czxid)}), LEVEL)
        return found.incarnation_id

    assert incarnation(5) == incarnation(5) != incarnation(6)


def test_brokers_are_in_the_order_of_their_ids() -> None:
    found = tree({f"/brokers/ids/{number}": broker(number) for number in (10, 9, 1)})
    assert registered_brokers(found) == [1, 9, 10]
    assert [each.broker_id for each in registrations(found, LEVEL)] == [1, 9, 10]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x", b"", "/brokers/ids/x is not named by a broker's id"),
        ("1", b"{", "/brokers/ids/1 holds"),
        ("1", document(version=1, host="a", port=70000), "/brokers/ids/1: a port is 70000"),
        (
            "1",
            document(version=2, endpoints=["TRACE://a:1"]),
            "/brokers/ids/1: listener TRACE has the security protocol 'TRACE', not one of PLAIN",
        ),
    ],
)
def test_an_error_names_the_path(name: str, content: bytes, message: str) -> None:
    with pytest.raises(CorruptZnodeError, match=message):
        list(registrations(tree({f"/brokers/ids/{name}": content}), LEVEL))
