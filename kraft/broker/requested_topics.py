"""Which topics a Metadata request asks for, may describe, and would create.

`RequestedTopics` turns names or ids into numbers of topics, and adds a topic with an error for each
one that does not exist, has no partitions, or that the client may not describe or create. Called by
``kraft.broker.metadata_cache``. Sources: Kafka's ``KafkaApis.handleTopicMetadataRequest``,
``KafkaApis.getTopicMetadata``, ``DefaultAutoTopicCreationManager`` (4.3.1).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kraft._core.table.images import TableImage
from kraft._core.table.topic_bodies import partition_counts
from kraft.controller.configs.config_validation import check_topic_name
from kraft.errors import (
    INVALID_TOPIC_EXCEPTION,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    InvalidRequestError,
    InvalidTopicError,
    UnknownServerError,
)
from kraft.image.security import AclOperation, ResourceType
from kraft.protocol.metadata import (
    INTERNAL_TOPICS,
    OPERATIONS_NOT_REQUESTED,
    MetadataRequestData,
    MetadataResponseTopic,
)
from kraft.records import ZERO_UUID, Uuid
from kraft.security.controller_apis import CLUSTER_NAME
from kraft.security.operations import OperationCheck, authorized_operations

#: The first version of Metadata in which a topic may be requested by its id.
_FIRST_BY_ID = 12

#: Numbers of topics.
Numbers = NDArray[np.int32]


class RequestedTopics:
    """The topics that a Metadata request asks for.

    ``others`` are those that the response has without partitions, ``to_create`` the names of topics
    to create; `find` fills both.
    """

    def __init__(
        self,
        table: TableImage,
        request: MetadataRequestData,
        version: int,
        allows: OperationCheck | None,
        *,
        may_create: bool,
    ) -> None:
        self._table = table
        self._request = request
        self._allows = allows
        requested = request.topics
        self.is_all = requested is None or (version == 0 and not requested)
        self._may_create = may_create and request.allow_auto_topic_creation
        self.others: list[MetadataResponseTopic] = []
        self.to_create: list[str] = []

    def find(self) -> Numbers:
        """Return the numbers of the requested topics that the response describes."""
        requested = self._request.topics or []
        ids = dict.fromkeys(one.topic_id for one in requested if one.topic_id != ZERO_UUID)
        numbers: dict[str, int] = {}
        for topic_id in ids:
            number = self._table.topic_number_by_id(topic_id)
            if number < 0:
                self._add(UNKNOWN_TOPIC_ID, None, topic_id)
            else:
                numbers[self._table.topic_name(number)] = number
        if not ids:
            names = dict.fromkeys(one.name for one in requested if one.name is not None)
            numbers = {name: self._table.topic_number(name) for name in names}
        numbers = self._describable(numbers, by_id=bool(ids))
        self._refuse_creations(numbers)
        found = np.array([number for number in numbers.values() if number >= 0], np.int32)
        counts = dict(zip(found, partition_counts(self._table, found), strict=True))
        # Kafka takes a topic without partitions for an unknown one.
        for name, number in numbers.items():
            if not counts.get(number, 0):
                self._add_unknown(name, number)
        return found

    def _add(
        self,
        error: int,
        name: str | None,
        topic_id: Uuid = ZERO_UUID,
        operations: int = OPERATIONS_NOT_REQUESTED,
        *,
        shows_internal: bool = True,
    ) -> None:
        self.others.append(
            MetadataResponseTopic(
                error,
                name,
                topic_id,
                shows_internal and name in INTERNAL_TOPICS,
                topic_authorized_operations=operations,
            )
        )

    def _describable(self, numbers: dict[str, int], *, by_id: bool) -> dict[str, int]:
        """Return the topics that the client may describe; the response has an error for others.

        Does not show whether a topic exists that was requested by its name.
        """
        if self._allows is None:
            return numbers
        kept = {}
        for name, number in numbers.items():
            if self._allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
                kept[name] = number
            elif by_id:
                self._add(TOPIC_AUTHORIZATION_FAILED, None, Uuid(self._table.topic_id_of(number)))
            else:
                self._add(TOPIC_AUTHORIZATION_FAILED, name, shows_internal=False)
        return kept

    def _refuse_creations(self, numbers: dict[str, int]) -> None:
        """Remove the unknown topics that would be created but that the client may not create."""
        allows = self._allows
        unknown = [name for name, number in numbers.items() if number < 0]
        if allows is None or not self._may_create or not unknown:
            return
        if allows(AclOperation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME, log_if_denied=False):
            return
        for name in unknown:
            if not allows(AclOperation.CREATE, ResourceType.TOPIC, name):
                del numbers[name]
                self._add(TOPIC_AUTHORIZATION_FAILED, name)

    def _add_unknown(self, name: str, number: int) -> None:
        error = absence_error(name)
        topic_id = ZERO_UUID
        if self._may_create:
            if error == UNKNOWN_TOPIC_OR_PARTITION:
                self.to_create.append(name)
        elif number >= 0:
            topic_id = Uuid(self._table.topic_id_of(number))
        operations = OPERATIONS_NOT_REQUESTED
        if self._request.include_topic_authorized_operations:
            operations = authorized_operations(self._allows, ResourceType.TOPIC, name)
        self._add(error, name, topic_id, operations)


def check_metadata_request(request: MetadataRequestData, version: int) -> None:
    """Raise InvalidRequestError for ids or null names in a version without them.

    Raises UnknownServerError, as Kafka, for a topic with neither a name nor an id.
    """
    topics = request.topics or []
    if version < _FIRST_BY_ID:
        for topic in topics:
            if topic.name is None:
                raise InvalidRequestError(f"a topic's name is null in version {version}")
            if topic.topic_id != ZERO_UUID:
                raise InvalidRequestError(
                    f"topics are requested by their ids from version {_FIRST_BY_ID} on, and this "
                    f"is version {version}"
                )
    elif all(topic.topic_id == ZERO_UUID for topic in topics) and any(
        topic.name is None for topic in topics
    ):
        raise UnknownServerError("a topic is requested by neither name nor id")


def absence_error(name: str) -> int:
    """Return the error of a topic that does not exist."""
    try:
        check_topic_name(name)
    except InvalidTopicError:
        return INVALID_TOPIC_EXCEPTION
    return UNKNOWN_TOPIC_OR_PARTITION
