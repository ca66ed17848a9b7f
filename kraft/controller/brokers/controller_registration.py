"""ControllerRegistration and UnregisterController: listeners and features of controllers.

``features`` reads the registered features: the registration of a controller that no longer exists
blocks upgrades, therefore operators can remove it. Sources: KIP-919, KIP-1312, Kafka's
``ClusterControlManager.registerController`` (4.3.1) and ``unregisterController`` (4.4.0).
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from kraft import records
from kraft.controller.arguments import MAX_INT32, check_integer, check_uuid
from kraft.controller.brokers.listeners import feature_structs, listener_structs
from kraft.controller.decision import Decision, Records
from kraft.controller.state import ClusterMetadata
from kraft.errors import (
    ControllerIdNotRegisteredError,
    InvalidRegistrationError,
    InvalidRequestError,
    UnsupportedVersionError,
)
from kraft.image import NodeEndpoint, VersionRange
from kraft.records import Uuid
from kraft.records.versions import MetadataVersion


class ControllerRegistrationRequest(NamedTuple):
    """The registration of a controller (ControllerRegistrationRequest).

    ``zk_migration_ready`` is ignored, because 4.x cannot migrate.
    """

    controller_id: int
    incarnation_id: Uuid
    endpoints: Sequence[NodeEndpoint] = ()
    features: Mapping[str, VersionRange] = MappingProxyType({})
    zk_migration_ready: bool = False


def register_controller(
    cluster: ClusterMetadata, request: ControllerRegistrationRequest
) -> Decision[None]:
    """Register a controller; a later registration replaces an earlier one.

    Raises UnsupportedVersionError below metadata.version 3.7-IV0, InvalidRegistrationError for an
    invalid id (Kafka accepts a negative one), listener or feature.
    """
    level = MetadataVersion.from_level(cluster.state.metadata_version)
    if not level.is_controller_registration_supported:
        raise UnsupportedVersionError(
            f"metadata.version {level.text} is too old for controllers to register"
        )
    what = "the id of a controller"
    check_integer(what, request.controller_id, 0, MAX_INT32, InvalidRegistrationError)
    check_uuid("an incarnation id", request.incarnation_id, InvalidRegistrationError)
    record = records.RegisterController(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        zk_migration_ready=False,
        end_points=listener_structs(request.endpoints),
        features=feature_structs(request.features),
    )
    return Decision(Records.of([record], level), None, is_atomic=True)


def unregister_controller(
    cluster: ClusterMetadata, controller_id: int, active_id: int, voter_ids: Container[int]
) -> Decision[None]:
    """Remove the registration of a controller that is neither the active one nor a voter.

    A voter would register again, after the cluster may have finalized a level that it does not
    support. Kafka 4.4.0 refuses only the active controller, later versions every voter
    (KAFKA-20865). Raises InvalidRequestError for these, UnsupportedVersionError below
    metadata.version 4.4-IV2, ControllerIdNotRegisteredError.
    """
    if controller_id == active_id:
        raise InvalidRequestError(
            f"controller {controller_id} is active: it cannot unregister itself"
        )
    level = MetadataVersion.from_level(cluster.state.metadata_version)
    if not level.is_controller_unregistration_supported:
        raise UnsupportedVersionError(
            f"metadata.version {level.text} is too old for controllers to be unregistered"
        )
    if controller_id not in cluster.state.controllers:
        raise ControllerIdNotRegisteredError(f"controller {controller_id} is not registered")
    if controller_id in voter_ids:
        raise InvalidRequestError(
            f"controller {controller_id} is a voter: remove it from the voters first"
        )
    record = records.UnregisterController(controller_id=controller_id)
    return Decision(Records.of([record], level), None)
