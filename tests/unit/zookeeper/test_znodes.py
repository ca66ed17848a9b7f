"""The JSON of znodes: what Kafka's releases write is read, and written again byte for byte."""

from __future__ import annotations

import pytest

from kraft.errors import CorruptZnodeError
from kraft.zookeeper import znodes
from kraft.zookeeper.znodes import (
    BrokerZnode,
    ControllerZnode,
    ListenerAddress,
    PartitionStateZnode,
    TopicZnode,
)

#: As seen in trees of Kafka 0.8.2.2, 1.1.1 and 3.9.2.
CONTROLLER_1 = b'{"version":1,"brokerid":7,"timestamp":"1511395200000"}'
CONTROLLER_2 = b'{"version":2,"brokerid":7,"timestamp":"1","kraftControllerEpoch":-1}'
STATE = b'{"controller_epoch":7,"leader":1,"version":1,"leader_epoch":0,"isr":[1,2]}'
BROKER_1 = b'{"jmx_port":-1,"host":"a","timestamp":"5","port":9092,"version":1}'
BROKER_4 = (
    b'{"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT","IN":"SSL"},'
    b'"endpoints":["PLAINTEXT://a:9092","IN://[::1]:9093"],"jmx_port":-1,"rack":"r",'
    b'"host":"a","timestamp":"5","port":9092,"version":4}'
)


def test_controllers_of_every_release_are_read() -> None:
    assert ControllerZnode.decode(CONTROLLER_1) == ControllerZnode(7, 1511395200000)
    assert ControllerZnode.decode(CONTROLLER_2) == ControllerZnode(7, 1, -1)
    assert ControllerZnode.decode(b"12") == ControllerZnode(12)
    for data in (CONTROLLER_1, CONTROLLER_2):
        assert ControllerZnode.decode(data).encode() == data


def test_brokers_of_every_release_are_read() -> None:
    first, second = ListenerAddress("a", 9092), ListenerAddress("::1", 9093, "IN", "SSL")
    assert BrokerZnode.decode(BROKER_1, 3) == BrokerZnode(3, (first,), timestamp_ms=5)
    assert BrokerZnode.decode(BROKER_1, 3).encode(1) == BROKER_1
    assert BrokerZnode.decode(BROKER_4, 3) == BrokerZnode(3, (first, second), "r", timestamp_ms=5)
    assert BrokerZnode.decode(BROKER_4, 3).encode(4) == BROKER_4
    # 0.9 to 0.10.1 have no map: the listener's name is its security protocol.
    without = b'{"endpoints":["SSL://a:1"],"host":null,"port":-1,"version":2}'
    assert BrokerZnode.decode(without, 3).listeners == (ListenerAddress("a", 1, "SSL", "SSL"),)
    newest = BrokerZnode(3, (first,), features={"group": (0, 2)})
    assert BrokerZnode.decode(newest.encode(5), 3) == newest


def test_a_broker_without_a_plaintext_listener_has_neither_host_nor_port() -> None:
    data = BrokerZnode(3, (ListenerAddress("a", 1, "IN", "SSL"),)).encode()
    assert b'"host":null' in data
    assert b'"port":-1' in data


def test_topics_of_every_version() -> None:
    data = b'{"version":1,"partitions":{"0":[1,2],"1":[2,1]}}'
    topic = TopicZnode.decode(data, "t")
    assert topic == TopicZnode({0: (1, 2), 1: (2, 1)})
    assert topic.encode() == data
    moving = TopicZnode({0: (1, 2, 3)}, {0: (3,)}, {0: (1,)}, "AAAAAAAAAAAAAAAAAAAAAQ")
    assert TopicZnode.decode(moving.encode(3), "t") == moving
    assert TopicZnode.decode(moving.encode(1), "t") == TopicZnode({0: (1, 2, 3)})


def test_partition_states() -> None:
    state = PartitionStateZnode.decode(STATE, "/p")
    assert state == PartitionStateZnode(1, 0, (1, 2), 7)
    assert state.encode() == STATE
    recovering = PartitionStateZnode(-1, 3, (), 9, 1)
    assert PartitionStateZnode.decode(recovering.encode(), "/p") == recovering


def test_requests_notifications_and_configs() -> None:
    pairs = [("a", 0), ("b", 17)]
    assert znodes.decode_partitions(znodes.encode_partitions(pairs), "/p") == pairs
    wanted = {("a", 0): (3, 1)}
    assert znodes.decode_reassignment(znodes.encode_reassignment(wanted)) == wanted
    assert znodes.decode_log_dir_event(znodes.encode_log_dir_event(4), "/p") == 4
    config = {"retention.ms": "5"}
    assert znodes.decode_config(znodes.encode_config(config), "/p") == config
    assert znodes.decode_config(b"", "/p") == {}
    assert znodes.decode_cluster_id(znodes.encode_cluster_id("x")) == "x"
    assert znodes.decode_controller_epoch(znodes.encode_controller_epoch(8)) == 8


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", r"holds b'', which is not JSON"),
        (b"\xff", r"which is not JSON"),
        (b"[]", r"not a JSON object"),
        (STATE.replace(b'"leader":1,', b""), r"leader is missing"),
        (STATE.replace(b"1,2", b'1,"2"'), r"isr contains '2', not an integer"),
        (STATE.replace(b"[1,2]", b"5"), r"isr is 5, not a list"),
        (STATE.replace(b'h":0', b'h":true'), r"leader_epoch is True, not an integer"),
    ],
)
def test_a_corrupt_state_is_named_with_path_and_reason(data: bytes, reason: str) -> None:
    path = znodes.state_path("t", 0)
    with pytest.raises(CorruptZnodeError, match=f"^{path}.*{reason}"):
        PartitionStateZnode.decode(data, path)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"partitions":{"x":[1]}}', "partition 'x', not a number"),
        (b'{"partitions":{"0":1}}', "has 1 for partition 0, not a list"),
        (b'{"partitions":[]}', r"partitions is \[\], not an object"),
        (b'{"partitions":{},"topic_id":5}', "topic_id is 5, not a text"),
    ],
)
def test_a_corrupt_topic_is_named(data: bytes, reason: str) -> None:
    with pytest.raises(CorruptZnodeError, match=f"^/brokers/topics/t: .*{reason}"):
        TopicZnode.decode(data, "t")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"version":2,"endpoints":["a:1"]}', "endpoint 'a:1' is not of the form"),
        (b'{"version":0}', "version is 0, not 1 or higher"),
        (b'{"version":1,"host":"a"}', "port is missing"),
        (b'{"version":1,"host":"a","port":1,"timestamp":"x"}', "timestamp is 'x', not a number"),
        (b'{"version":1,"host":"a","port":1,"features":{"f":1}}', "feature f has no min_version"),
    ],
)
def test_a_corrupt_broker_is_named(data: bytes, reason: str) -> None:
    with pytest.raises(CorruptZnodeError, match=f"^/brokers/ids/3: {reason}"):
        BrokerZnode.decode(data, 3)


def test_other_corrupt_znodes_are_named() -> None:
    with pytest.raises(CorruptZnodeError, match=r"/controller_epoch holds b'-1', not a controller"):
        znodes.decode_controller_epoch(b"-1")
    with pytest.raises(CorruptZnodeError, match="/p: partitions is not a list of objects"):
        znodes.decode_partitions(b'{"partitions":[1]}', "/p")
    with pytest.raises(CorruptZnodeError, match="/p: a is 1, not a text"):
        znodes.decode_config(b'{"config":{"a":1}}', "/p")


@pytest.mark.parametrize("isr", ["", "1", "10,2,300"])
@pytest.mark.parametrize("leader", ["-1", "0", "2147483647"])
def test_a_state_in_its_usual_form_reads_as_any_json(leader: str, isr: str) -> None:
    usual = (
        f'{{"controller_epoch":12,"leader":{leader},"version":1,"leader_epoch":0,"isr":[{isr}]}}'
    ).encode()
    found = PartitionStateZnode.decode(usual, "/p")
    assert found == PartitionStateZnode.decode(usual.replace(b":", b": "), "/p")
    assert found.encode() == usual


@pytest.mark.parametrize(
    ("old", "new"),
    [(b":1,", b":01,"), (b"[1]", b"[1,]"), (b"[1]", b"[01]"), (b"[1]", b"[-1"), (b":3", b":3.5")],
)
def test_a_state_that_is_almost_of_its_usual_form_is_refused(old: bytes, new: bytes) -> None:
    usual = PartitionStateZnode(3, 0, (1,), 1).encode()
    assert old in usual
    with pytest.raises(CorruptZnodeError, match="/p"):
        PartitionStateZnode.decode(usual.replace(old, new), "/p")
