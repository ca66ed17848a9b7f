"""ControllerRegistration: register controllers with their listeners and features (KIP-919).

``features`` reads the registered features. Kafka 4.4 can unregister a controller
(UnregisterController, KIP-1312): the record is replayed, but not written here, because 4.3.1 has no
such request. Source: Kafka's ``ClusterControlManager.registerController`` (4.3.1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kraft import records
from kraft.controller.arguments import MAX_INT32, check_integer, check_uuid
from kraft.controller.brokers.listeners import feature_structs, listener_structs
from kraft.controller.decision import Decision, Records
from kraft.controller.state import ClusterMetadata
from kraft.errors import InvalidRegistrationError, UnsupportedVersionError
from kraft.image import NodeEndpoint, VersionRange
from kraft.records import Uuid
from kraft.records.versions import MetadataVersion


@dataclass(frozen=True, slots=True)
class ControllerRegistrationRequest:
    """The registration of a controller (ControllerRegistrationRequest).

    ``zk_migration_ready`` is ignored, because 4.x cannot migrate.
    """

    controller_id: int
    incarnation_id: Uuid
    endpoints: Sequence[NodeEndpoint] = ()
    features: Mapping[str, VersionRange] = field(default_factory=dict)
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
