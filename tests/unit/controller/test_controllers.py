"""Controllers register."""

from __future__ import annotations

import pytest

from kraft import controller, records
from kraft.controller import ControllerRegistrationRequest
from kraft.errors import InvalidRegistrationError, UnsupportedVersionError
from kraft.image import Endpoint, VersionRange
from kraft.records import Uuid
from tests.unit.controller.clusters import Lab

LISTENER = Endpoint("CONTROLLER", "localhost", 9093, 0)


def request(*endpoints: Endpoint, incarnation: int = 1, **fields: object) -> object:
    incarnation_id = Uuid(bytes((incarnation,)) * 16)
    return ControllerRegistrationRequest(3000, incarnation_id, endpoints, **fields)  # type: ignore[arg-type]


def register(lab: Lab, asked: object) -> controller.Decision[None]:
    assert isinstance(asked, ControllerRegistrationRequest)
    return controller.register_controller(lab.cluster, asked)


def test_a_controller_registers_and_a_restarted_one_takes_its_place() -> None:
    lab = Lab(0)
    features = {"metadata.version": VersionRange(7, 30), "kraft.version": VersionRange(0, 1)}
    decision = register(lab, request(LISTENER, features=features, zk_migration_ready=True))
    assert decision.is_atomic
    lab.do(decision)
    registered = lab.cluster.state.controllers[3000]
    assert dict(registered.endpoints) == {"CONTROLLER": LISTENER}
    assert dict(registered.features) == features
    assert not registered.zk_migration_ready, "nobody migrates any more"
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
def test_listeners_that_cannot_be_are_refused(listener: Endpoint) -> None:
    lab = Lab(0)
    with pytest.raises(InvalidRegistrationError, match="listener"):
        register(lab, request(LISTENER, listener))


def test_of_a_listener_that_is_named_twice_the_last_one_counts() -> None:
    lab = Lab(0)
    last = LISTENER._replace(port=9094)
    lab.do(register(lab, request(LISTENER, Endpoint("B", "h", 1, 1), last)))
    assert list(lab.cluster.state.controllers[3000].endpoints.values()) == [
        last,
        Endpoint("B", "h", 1, 1),
    ]
