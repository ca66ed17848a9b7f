"""Controllers register: who they are, where they listen, what they support (KIP-919).

Owns the record of a registration. What their features allow is asked by ``features``. Kafka 4.4
takes a controller out again (UnregisterController, KIP-1312): the record is replayed, but nothing
here writes it, as 4.3.1 has no such request.
Source: Kafka's ``ClusterControlManager.registerController`` (4.3.1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kraft import records
from kraft.controller.arguments import MAX_INT32, check_integer, check_uuid
from kraft.controller.decision import Decision, Records
from kraft.controller.listeners import feature_structs, listener_structs
from kraft.controller.state import Cluster
from kraft.errors import InvalidRegistrationError, UnsupportedVersionError
from kraft.image import Endpoint, VersionRange
from kraft.records import Uuid
from kraft.records.versions import MetadataVersion


@dataclass(frozen=True, slots=True)
class ControllerRegistrationRequest:
    """What a controller says of itself when it registers (ControllerRegistrationRequest).

    ``zk_migration_ready`` is taken and not looked at, as 4.x cannot migrate.
    """

    controller_id: int
    incarnation_id: Uuid
    endpoints: Sequence[Endpoint] = ()
    features: Mapping[str, VersionRange] = field(default_factory=dict)
    zk_migration_ready: bool = False


def register_controller(cluster: Cluster, request: ControllerRegistrationRequest) -> Decision[None]:
    """A controller joins, or says again who it is; the newest registration counts.

    Raises UnsupportedVersionError below metadata.version 3.7-IV0, InvalidRegistrationError for
    an id, listeners or features that cannot be (Kafka accepts a negative id).
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
