"""FindCoordinator: the broker that coordinates a group.

It is the leader of the group's partition of ``__consumer_offsets``. Where the topic does not exist,
the controller is asked to create it; meanwhile clients get COORDINATOR_NOT_AVAILABLE and ask again.
Transactions and share groups have no coordinator in kraft: their keys get INVALID_REQUEST, which
clients take as final and show with its message.
Source: ``KafkaApis.getCoordinator``, ``FindCoordinatorRequest`` (4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from kraft.broker.group_driver import GroupDriver
from kraft.broker.groups import OFFSETS_TOPIC
from kraft.errors import (
    COORDINATOR_NOT_AVAILABLE,
    GROUP_AUTHORIZATION_FAILED,
    INVALID_REQUEST,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ClusterAuthorizationError,
    InvalidRequestError,
    KraftError,
)
from kraft.image.publishing import Image
from kraft.image.security import AclOperation, ResourceType
from kraft.protocol.find_coordinator import (
    FIND_COORDINATOR,
    CoordinatorData,
    FindCoordinatorRequestData,
    FindCoordinatorResponseData,
)
from kraft.server.apis.api import AnyApi, CallContext, ListenerApi

# Types of keys.
GROUP, TRANSACTION, SHARE = 0, 1, 2
#: The first version with several keys.
_FIRST_WITH_KEYS = 4
#: The first version with keys of share groups.
_FIRST_WITH_SHARE = 6
#: Kafka's texts of errors, for the versions with one key; later ones have none.
_MESSAGES = {
    0: "NONE",
    GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
    COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
}


class CoordinatorServices(Protocol):
    """What FindCoordinator needs of a broker."""

    @property
    def groups(self) -> GroupDriver: ...

    @property
    def image(self) -> Callable[[], Image]:
        """Returns the published metadata."""


class _Found(NamedTuple):
    """The coordinator of a key: a broker, or an error with a message."""

    error: int
    node_id: int = -1
    host: str = ""
    port: int = -1
    message: str = ""


def find_coordinator_api(broker: CoordinatorServices) -> AnyApi:
    """Return FindCoordinator of a broker."""

    async def answer(
        request: FindCoordinatorRequestData, context: CallContext
    ) -> FindCoordinatorResponseData:
        if context.version >= _FIRST_WITH_KEYS:
            return FindCoordinatorResponseData(
                coordinators=[
                    _of_key(key, _find(broker, request.key_type, key, context))
                    for key in request.coordinator_keys
                ]
            )
        return _of_one(_find(broker, request.key_type, request.key, context))

    return ListenerApi(FIND_COORDINATOR, FindCoordinatorRequestData.decode, answer, _failed)


def _find(broker: CoordinatorServices, key_type: int, key: str, context: CallContext) -> _Found:
    describe = AclOperation.DESCRIBE
    if key_type == TRANSACTION:
        if not context.allows(describe, ResourceType.TRANSACTIONAL_ID, key):
            return _Found(TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return _Found(INVALID_REQUEST, message="This broker does not support transactions.")
    if key_type == SHARE:
        if context.version >= _FIRST_WITH_SHARE and not context.allows_on_cluster(
            AclOperation.CLUSTER_ACTION
        ):
            raise ClusterAuthorizationError(
                f"{context.principal} may not find coordinators of share groups"
            )
        return _Found(INVALID_REQUEST, message="This broker does not support share groups.")
    if key_type != GROUP:
        raise InvalidRequestError(f"{key_type} is not a type of coordinator")
    if not context.allows(describe, ResourceType.GROUP, key):
        return _Found(GROUP_AUTHORIZATION_FAILED)
    return _coordinator(broker, key, context.listener)


def _coordinator(broker: CoordinatorServices, group_id: str, listener: str) -> _Found:
    """Return the leader of the group's partition, as clients of this listener reach it."""
    image = broker.image()
    table = image.table
    number = table.topic_number(OFFSETS_TOPIC)
    if number < 0:
        broker.groups.create_offsets_topic()
        return _Found(COORDINATOR_NOT_AVAILABLE)
    row = table.row_of(number, broker.groups.partition_of(group_id))
    leader = table.state_of(row)["leader"] if row >= 0 else -1
    registration = image.state.brokers.get(leader)
    if registration is None or registration.fenced:
        return _Found(COORDINATOR_NOT_AVAILABLE)
    endpoint = registration.endpoints.get(listener)
    if endpoint is None:
        return _Found(COORDINATOR_NOT_AVAILABLE)
    return _Found(0, leader, endpoint.host, endpoint.port)


def _of_key(key: str, found: _Found) -> CoordinatorData:
    return CoordinatorData(key, found.node_id, found.host, found.port, found.error, found.message)


def _of_one(found: _Found) -> FindCoordinatorResponseData:
    message = found.message or _MESSAGES[found.error]
    return FindCoordinatorResponseData(
        error_code=found.error,
        error_message=message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _failed(request: FindCoordinatorRequestData, error: KraftError) -> FindCoordinatorResponseData:
    found = _Found(error.kafka_code, message=str(error))
    if request.coordinator_keys:
        return FindCoordinatorResponseData(
            coordinators=[_of_key(key, found) for key in request.coordinator_keys]
        )
    return _of_one(found)
