"""InitProducerId: a new producer id for an idempotent producer.

Every request gets a new id, also that of a producer which names its old one, as in Kafka: only a
transactional producer keeps its id. There are no transactions: a request with a transactional id
gets UNSUPPORTED_VERSION, by which clients report a broker without transactions. Source:
``KafkaApis.handleInitProducerIdRequest``, ``TransactionCoordinator`` (4.3.1), KIP-98, KIP-360.
"""

from __future__ import annotations

from kraft.broker.producer_ids import AllocatedProducerIds
from kraft.errors import (
    CLUSTER_AUTHORIZATION_FAILED,
    COORDINATOR_LOAD_IN_PROGRESS,
    INVALID_REQUEST,
    NONE,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    UNSUPPORTED_VERSION,
    KraftError,
    RequestTimedOutError,
)
from kraft.image.security import AclOperation, ResourceType
from kraft.protocol.init_producer_id import (
    INIT_PRODUCER_ID,
    InitProducerIdRequestData,
    InitProducerIdResponseData,
)
from kraft.security.authorizer import RequestContext
from kraft.security.controller_apis import CLUSTER_NAME
from kraft.server.apis.api import AnyApi, CallContext, ListenerApi

#: How long a request waits for a block of ids. Then its client asks again, as at once in Kafka.
MAX_WAIT_MS = 2_000.0
_FIRST_EPOCH = 0
_NO_ID = -1


def init_producer_id_api(ids: AllocatedProducerIds) -> AnyApi:
    """Return the API InitProducerId."""

    async def answer(
        data: InitProducerIdRequestData, context: CallContext
    ) -> InitProducerIdResponseData:
        error = _error_of(data, context)
        if error:
            return InitProducerIdResponseData(error_code=error, producer_epoch=_NO_ID)
        try:
            producer_id = await ids.next_id(MAX_WAIT_MS)
        except RequestTimedOutError:
            return InitProducerIdResponseData(
                error_code=COORDINATOR_LOAD_IN_PROGRESS, producer_epoch=_NO_ID
            )
        return InitProducerIdResponseData(producer_id=producer_id, producer_epoch=_FIRST_EPOCH)

    def failed(data: InitProducerIdRequestData, error: KraftError) -> InitProducerIdResponseData:
        return InitProducerIdResponseData(error_code=error.kafka_code, producer_epoch=_NO_ID)

    return ListenerApi(INIT_PRODUCER_ID, InitProducerIdRequestData.decode, answer, failed)


def _error_of(data: InitProducerIdRequestData, context: CallContext) -> int:
    """Return the error of a request that gets no id, 0 if it gets one."""
    if data.transactional_id is not None:
        if not context.allows(
            AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, data.transactional_id
        ):
            return TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return UNSUPPORTED_VERSION
    if not _may_be_idempotent(context):
        return CLUSTER_AUTHORIZATION_FAILED
    if (data.producer_id == _NO_ID) != (data.producer_epoch == _NO_ID):
        return INVALID_REQUEST
    return NONE


def _may_be_idempotent(context: CallContext) -> bool:
    """Return whether a client may write idempotently: IDEMPOTENT_WRITE, or WRITE on any topic."""
    if context.authorizer is None or context.allows(
        AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME
    ):
        return True
    who = RequestContext(context.principal, context.host, context.api_name)
    return context.authorizer.authorize_by_resource_type(
        who, AclOperation.WRITE, ResourceType.TOPIC
    )
