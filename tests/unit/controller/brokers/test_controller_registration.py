"""Registration of controllers."""

from __future__ import annotations

import pytest

from kraft import records
from kraft.controller.brokers.controller_registration import (
    ControllerRegistrationRequest,
    register_controller,
    unregister_controller,
)
from kraft.controller.decision import Decision
from kraft.errors import (
    ControllerIdNotRegisteredError,
    InvalidRegistrationError,
    InvalidRequestError,
    UnsupportedVersionError,
)
from kraft.image import NodeEndpoint, VersionRange
from kraft.records import Uuid
from tests.harness.decisions import Lab

LISTENER = NodeEndpoint("CONTROLLER", "localhost", 9093, 0)


def request(*endpoints: NodeEndpoint, incarnation: int = 1, **fields: object) -> object:
    incarnation_id = Uuid(bytes((incarnation,)) * 16)
    return ControllerRegistrationRequest(3000, incarnation_id, endpoints, **fields)  # type: ignore[arg-type]


def register(lab: Lab, asked: object) -> Decision[None]:
    assert isinstance(asked, ControllerRegistrationRequest)
    return register_controller(lab.cluster, asked)


def test_a_restarted_controller_replaces_its_registration() -> None:
    lab = Lab(0)
    features = {"metadata.version": VersionRange(7, 30), "kraft.version": VersionRange(0, 1)}
    decision = register(lab, request(LISTENER, features=features, zk_migration_ready=True))
    assert decision.is_atomic
    lab.do(decision)
    registered = lab.cluster.state.controllers[3000]
    assert dict(registered.endpoints) == {"CONTROLLER": LISTENER}
    assert dict(registered.features) == features
    assert not registered.zk_migration_ready, "4.x cannot migrate"
    lab.do(register(lab, request(LISTENER, incarnation=2)))
    assert lab.cluster.state.controllers[3000].incarnation_id == Uuid(b"\2" * 16)


def test_below_3_7_controllers_do_not_register() -> None:
    lab = Lab(0)
    lab.write(records.FeatureLevel(name="metadata.version", feature_level=14))
    with pytest.raises(UnsupportedVersionError, match=r"3\.6-IV2"):
        register(lab, request(LISTENER))


@pytest.mark.parametrize(
    "listener",
    [
        LISTENER._replace(security_protocol=4),
        LISTENER._replace(security_protocol=-1),
        LISTENER._replace(name=""),
        LISTENER._replace(port=0),
        LISTENER._replace(port=65_536),
        LISTENER._replace(host=" "),
    ],
    ids=["protocol", "negative protocol", "name", "port", "large port", "host"],
)
def test_invalid_listeners_are_rejected(listener: NodeEndpoint) -> None:
    lab = Lab(0)
    with pytest.raises(InvalidRegistrationError, match="listener"):
        register(lab, request(LISTENER, listener))


def test_the_last_of_two_listeners_with_one_name_counts() -> None:
    lab = Lab(0)
    last = LISTENER._replace(port=9094)
    lab.do(register(lab, request(LISTENER, NodeEndpoint("B", "h", 1, 1), last)))
    assert list(lab.cluster.state.controllers[3000].endpoints.values()) == [
        last,
        NodeEndpoint("B", "h", 1, 1),
    ]


def test_a_controller_that_is_neither_active_nor_a_voter_is_unregistered() -> None:
    lab = Lab(0)
    lab.write(records.FeatureLevel(name="metadata.version", feature_level=33))
    lab.do(register(lab, request(LISTENER)))
    with pytest.raises(InvalidRequestError, match="active"):
        unregister_controller(lab.cluster, 3000, 3000, ())
    with pytest.raises(InvalidRequestError, match="voter"):
        unregister_controller(lab.cluster, 3000, 1, {1, 3000})
    lab.do(unregister_controller(lab.cluster, 3000, 1, {1}))
    assert 3000 not in lab.cluster.state.controllers
    with pytest.raises(ControllerIdNotRegisteredError) as raised:
        unregister_controller(lab.cluster, 3000, 1, {1})
    assert raised.value.kafka_code == 136


def test_below_4_4_controllers_stay_registered() -> None:
    lab = Lab(0)
    lab.do(register(lab, request(LISTENER)))
    lab.write(records.FeatureLevel(name="metadata.version", feature_level=32))
    with pytest.raises(UnsupportedVersionError, match=r"4\.4-IV1"):
        unregister_controller(lab.cluster, 3000, 1, {1})
