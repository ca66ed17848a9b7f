"""Responses to requests that are rejected as a whole, of the APIs that a broker forwards.

The controller rejects a request that it may not or cannot decide; a broker rejects one that it
could not forward. Both answer with the error at the place that clients read: at each entry of the
request, or at the response. Called by the modules of the controller's APIs, and by
``kraft.broker.apis.forwarding``. Source: ``getErrorResponse`` of Kafka's requests (4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol, cast

from kraft._core.codec.metadata_codec import Message
from kraft.errors import NONE, InvalidUpdateVersionError, KraftError
from kraft.image.configs import ConfigResource
from kraft.protocol.add_raft_voter import ADD_RAFT_VOTER, AddRaftVoterRequestData
from kraft.protocol.alter_client_quotas import (
    ALTER_CLIENT_QUOTAS,
    AlterClientQuotasRequestData,
    AlterClientQuotasResponseData,
    QuotaEntity,
    QuotaEntryResult,
)
from kraft.protocol.alter_configs import (
    ALTER_CONFIGS,
    AlterConfigsRequestData,
    AlterConfigsResponseData,
    AlteredResource,
)
from kraft.protocol.alter_partition_reassignments import (
    ALTER_PARTITION_REASSIGNMENTS,
    AlterPartitionReassignmentsRequestData,
    AlterPartitionReassignmentsResponseData,
    ReassignedPartition,
    ReassignedTopic,
)
from kraft.protocol.alter_user_scram_credentials import (
    ALTER_USER_SCRAM_CREDENTIALS,
    AlterUserScramCredentialsRequestData,
    AlterUserScramCredentialsResponseData,
    ScramAlterationResult,
)
from kraft.protocol.create_acls import (
    CREATE_ACLS,
    AclCreationResult,
    CreateAclsRequestData,
    CreateAclsResponseData,
)
from kraft.protocol.create_delegation_token import (
    CREATE_DELEGATION_TOKEN,
    CreateDelegationTokenRequestData,
    CreateDelegationTokenResponseData,
)
from kraft.protocol.create_partitions import (
    CREATE_PARTITIONS,
    CreatePartitionsRequestData,
    CreatePartitionsResponseData,
    CreatePartitionsResult,
)
from kraft.protocol.create_topics import (
    CREATE_TOPICS,
    CreatedTopicData,
    CreateTopicsRequestData,
    CreateTopicsResponseData,
)
from kraft.protocol.delete_acls import (
    DELETE_ACLS,
    DeleteAclsFilterResult,
    DeleteAclsRequestData,
    DeleteAclsResponseData,
)
from kraft.protocol.delete_topics import (
    DELETE_TOPICS,
    DeletedTopicData,
    DeleteTopicsRequestData,
    DeleteTopicsResponseData,
)
from kraft.protocol.describe_quorum import (
    DESCRIBE_QUORUM,
    DescribeQuorumRequestData,
    DescribeQuorumResponseData,
)
from kraft.protocol.elect_leaders import (
    ELECT_LEADERS,
    ElectLeadersPartitionResult,
    ElectLeadersRequestData,
    ElectLeadersResponseData,
    ElectLeadersTopicResult,
)
from kraft.protocol.expire_delegation_token import (
    EXPIRE_DELEGATION_TOKEN,
    ExpireDelegationTokenRequestData,
    ExpireDelegationTokenResponseData,
)
from kraft.protocol.headers import Api, Body
from kraft.protocol.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    IncrementalAlterConfigsRequestData,
    IncrementalAlterConfigsResponseData,
)
from kraft.protocol.list_partition_reassignments import (
    LIST_PARTITION_REASSIGNMENTS,
    ListPartitionReassignmentsRequestData,
    ListPartitionReassignmentsResponseData,
)
from kraft.protocol.raft_voter import RaftVoterResponseData
from kraft.protocol.remove_raft_voter import REMOVE_RAFT_VOTER, RemoveRaftVoterRequestData
from kraft.protocol.renew_delegation_token import (
    RENEW_DELEGATION_TOKEN,
    RenewDelegationTokenRequestData,
    RenewDelegationTokenResponseData,
)
from kraft.protocol.unregister_broker import (
    UNREGISTER_BROKER,
    UnregisterBrokerRequestData,
    UnregisterBrokerResponseData,
)
from kraft.protocol.unregister_controller import (
    UNREGISTER_CONTROLLER,
    UnregisterControllerRequestData,
    UnregisterControllerResponseData,
)
from kraft.protocol.update_features import (
    UPDATE_FEATURES,
    UpdateFeaturesRequestData,
    UpdateFeaturesResponseData,
)
from kraft.records import ZERO_UUID, Uuid

#: The timestamp in the response to a rejected request (DelegationTokenManager.ERROR_TIMESTAMP).
NO_TIMESTAMP: Final = -1


# -- entries of a response, with an error


def rejected_topic(name: str, error: KraftError) -> CreatedTopicData:
    return CreatedTopicData(name, error_code=error.kafka_code, error_message=str(error), configs=[])


def rejected_deletion(name: str | None, topic_id: Uuid, error: KraftError) -> DeletedTopicData:
    return DeletedTopicData(name, topic_id, error.kafka_code, str(error))


def altered_resource(resource: ConfigResource, error: KraftError | None) -> AlteredResource:
    """Return the result of a resource whose configuration was to be changed."""
    kind, name = resource
    if error is None:
        return AlteredResource(0, None, kind, name)
    return AlteredResource(error.kafka_code, str(error), kind, name)


def altered_quotas(entity: list[QuotaEntity], error: KraftError | None) -> QuotaEntryResult:
    if error is None:
        return QuotaEntryResult(entity=entity)
    return QuotaEntryResult(error.kafka_code, str(error), entity)


def extended_topic(name: str, error: KraftError | None) -> CreatePartitionsResult:
    if error is None:
        return CreatePartitionsResult(name)
    return CreatePartitionsResult(name, error.kafka_code, str(error))


def reassigned_partition(partition: int, error: KraftError | None) -> ReassignedPartition:
    if error is None:
        return ReassignedPartition(partition)
    return ReassignedPartition(partition, error.kafka_code, str(error))


def created_acl(error: KraftError | None) -> AclCreationResult:
    return AclCreationResult() if error is None else AclCreationResult(error.kafka_code, str(error))


def altered_credential(user: str, error: KraftError | None) -> ScramAlterationResult:
    if error is None:
        return ScramAlterationResult(user)
    return ScramAlterationResult(user, error.kafka_code, str(error))


# -- whole responses


class _WithError(Protocol):
    error_code: int


def encode_rejection(response: Message, version: int) -> bytes:
    """Return the body of a response that rejects a whole request.

    A version without an error of the whole response (ElectLeaders 0) has only those of its entries.
    """
    specs = type(response).schema.specs
    if "error_code" in specs and version < specs["error_code"].since:
        cast(_WithError, response).error_code = NONE
    return response.encode(version)


def reject_create_topics(
    data: CreateTopicsRequestData, error: KraftError
) -> CreateTopicsResponseData:
    names = dict.fromkeys(topic.name for topic in data.topics)
    return CreateTopicsResponseData(topics=[rejected_topic(name, error) for name in names])


def reject_delete_topics(
    data: DeleteTopicsRequestData, error: KraftError
) -> DeleteTopicsResponseData:
    named = [rejected_deletion(name, ZERO_UUID, error) for name in data.topic_names]
    return DeleteTopicsResponseData(
        responses=named
        + [rejected_deletion(topic.name, topic.topic_id, error) for topic in data.topics]
    )


def reject_create_partitions(
    data: CreatePartitionsRequestData, error: KraftError
) -> CreatePartitionsResponseData:
    names = dict.fromkeys(topic.name for topic in data.topics)
    return CreatePartitionsResponseData(results=[extended_topic(name, error) for name in names])


def reject_alter_configs(
    data: AlterConfigsRequestData, error: KraftError
) -> AlterConfigsResponseData:
    names = dict.fromkeys((one.resource_type, one.resource_name) for one in data.resources)
    return AlterConfigsResponseData(responses=[altered_resource(name, error) for name in names])


def reject_incremental_alter_configs(
    data: IncrementalAlterConfigsRequestData, error: KraftError
) -> IncrementalAlterConfigsResponseData:
    names = dict.fromkeys((one.resource_type, one.resource_name) for one in data.resources)
    return IncrementalAlterConfigsResponseData(
        responses=[altered_resource(name, error) for name in names]
    )


def reject_alter_client_quotas(
    data: AlterClientQuotasRequestData, error: KraftError
) -> AlterClientQuotasResponseData:
    return AlterClientQuotasResponseData(
        entries=[altered_quotas(entry.entity, error) for entry in data.entries]
    )


def reject_elect_leaders(
    data: ElectLeadersRequestData, error: KraftError
) -> ElectLeadersResponseData:
    result = (error.kafka_code, str(error))
    return ElectLeadersResponseData(
        error_code=error.kafka_code,
        replica_election_results=[
            ElectLeadersTopicResult(
                topic.topic,
                [ElectLeadersPartitionResult(id, *result) for id in topic.partitions],
            )
            for topic in data.topic_partitions or ()
        ],
    )


def reject_alter_partition_reassignments(
    data: AlterPartitionReassignmentsRequestData, error: KraftError
) -> AlterPartitionReassignmentsResponseData:
    return AlterPartitionReassignmentsResponseData(
        allow_replication_factor_change=data.allow_replication_factor_change,
        error_code=error.kafka_code,
        error_message=str(error),
        responses=[
            ReassignedTopic(
                topic.name,
                [reassigned_partition(each.partition_index, error) for each in topic.partitions],
            )
            for topic in data.topics
        ],
    )


def reject_list_partition_reassignments(
    data: ListPartitionReassignmentsRequestData, error: KraftError
) -> ListPartitionReassignmentsResponseData:
    return ListPartitionReassignmentsResponseData(
        error_code=error.kafka_code, error_message=str(error)
    )


def reject_create_acls(data: CreateAclsRequestData, error: KraftError) -> CreateAclsResponseData:
    return CreateAclsResponseData(results=[created_acl(error) for _ in data.creations])


def reject_delete_acls(data: DeleteAclsRequestData, error: KraftError) -> DeleteAclsResponseData:
    return DeleteAclsResponseData(
        filter_results=[DeleteAclsFilterResult(error.kafka_code, str(error)) for _ in data.filters]
    )


def reject_alter_user_scram_credentials(
    data: AlterUserScramCredentialsRequestData, error: KraftError
) -> AlterUserScramCredentialsResponseData:
    users = dict.fromkeys(
        [each.name for each in data.deletions] + [each.name for each in data.upsertions]
    )
    return AlterUserScramCredentialsResponseData(
        results=[altered_credential(user, error) for user in users]
    )


def reject_create_delegation_token(
    data: CreateDelegationTokenRequestData, error: KraftError
) -> CreateDelegationTokenResponseData:
    return CreateDelegationTokenResponseData(
        error_code=error.kafka_code,
        issue_timestamp_ms=NO_TIMESTAMP,
        expiry_timestamp_ms=NO_TIMESTAMP,
        max_timestamp_ms=NO_TIMESTAMP,
    )


def reject_renew_delegation_token(
    data: RenewDelegationTokenRequestData, error: KraftError
) -> RenewDelegationTokenResponseData:
    return RenewDelegationTokenResponseData(
        error_code=error.kafka_code, expiry_timestamp_ms=NO_TIMESTAMP
    )


def reject_expire_delegation_token(
    data: ExpireDelegationTokenRequestData, error: KraftError
) -> ExpireDelegationTokenResponseData:
    return ExpireDelegationTokenResponseData(
        error_code=error.kafka_code, expiry_timestamp_ms=NO_TIMESTAMP
    )


def reject_update_features(
    data: UpdateFeaturesRequestData, error: KraftError
) -> UpdateFeaturesResponseData:
    message = str(error)
    if isinstance(error, InvalidUpdateVersionError):
        # Kafka's tools print this sentence; it says that the other features are unchanged too.
        message = (
            "The update failed for all features since the following feature had an error: "
            + message
        )
    return UpdateFeaturesResponseData(error_code=error.kafka_code, error_message=message)


def reject_unregister_broker(
    data: UnregisterBrokerRequestData, error: KraftError
) -> UnregisterBrokerResponseData:
    return UnregisterBrokerResponseData(error_code=error.kafka_code, error_message=str(error))


def reject_unregister_controller(
    data: UnregisterControllerRequestData, error: KraftError
) -> UnregisterControllerResponseData:
    return UnregisterControllerResponseData(error_code=error.kafka_code, error_message=str(error))


def _reject_describe_quorum(
    data: DescribeQuorumRequestData, error: KraftError
) -> DescribeQuorumResponseData:
    return DescribeQuorumResponseData(error_code=error.kafka_code)


def _reject_raft_voter(
    data: AddRaftVoterRequestData | RemoveRaftVoterRequestData, error: KraftError
) -> RaftVoterResponseData:
    return RaftVoterResponseData(error_code=error.kafka_code, error_message=str(error))


class Rejection(NamedTuple):
    """How one API reports an error of a whole request.

    ``decode`` reads a body of a version; ``reject`` returns the response to that request.
    """

    api: Api
    decode: Callable[[Body, int], Any]
    reject: Callable[[Any, KraftError], Message]


#: The APIs that brokers forward (``ApiKeys.forwardable``) and that clients use, by API key.
REJECTIONS: Final[Mapping[int, Rejection]] = MappingProxyType(
    {
        each.api.key: each
        for each in (
            Rejection(CREATE_TOPICS, CreateTopicsRequestData.decode, reject_create_topics),
            Rejection(DELETE_TOPICS, DeleteTopicsRequestData.decode, reject_delete_topics),
            Rejection(CREATE_ACLS, CreateAclsRequestData.decode, reject_create_acls),
            Rejection(DELETE_ACLS, DeleteAclsRequestData.decode, reject_delete_acls),
            Rejection(ALTER_CONFIGS, AlterConfigsRequestData.decode, reject_alter_configs),
            Rejection(
                CREATE_PARTITIONS, CreatePartitionsRequestData.decode, reject_create_partitions
            ),
            Rejection(
                CREATE_DELEGATION_TOKEN,
                CreateDelegationTokenRequestData.decode,
                reject_create_delegation_token,
            ),
            Rejection(
                RENEW_DELEGATION_TOKEN,
                RenewDelegationTokenRequestData.decode,
                reject_renew_delegation_token,
            ),
            Rejection(
                EXPIRE_DELEGATION_TOKEN,
                ExpireDelegationTokenRequestData.decode,
                reject_expire_delegation_token,
            ),
            Rejection(ELECT_LEADERS, ElectLeadersRequestData.decode, reject_elect_leaders),
            Rejection(
                INCREMENTAL_ALTER_CONFIGS,
                IncrementalAlterConfigsRequestData.decode,
                reject_incremental_alter_configs,
            ),
            Rejection(
                ALTER_PARTITION_REASSIGNMENTS,
                AlterPartitionReassignmentsRequestData.decode,
                reject_alter_partition_reassignments,
            ),
            Rejection(
                LIST_PARTITION_REASSIGNMENTS,
                ListPartitionReassignmentsRequestData.decode,
                reject_list_partition_reassignments,
            ),
            Rejection(
                ALTER_CLIENT_QUOTAS, AlterClientQuotasRequestData.decode, reject_alter_client_quotas
            ),
            Rejection(
                ALTER_USER_SCRAM_CREDENTIALS,
                AlterUserScramCredentialsRequestData.decode,
                reject_alter_user_scram_credentials,
            ),
            Rejection(DESCRIBE_QUORUM, DescribeQuorumRequestData.decode, _reject_describe_quorum),
            Rejection(UPDATE_FEATURES, UpdateFeaturesRequestData.decode, reject_update_features),
            Rejection(
                UNREGISTER_BROKER, UnregisterBrokerRequestData.decode, reject_unregister_broker
            ),
            Rejection(ADD_RAFT_VOTER, AddRaftVoterRequestData.decode, _reject_raft_voter),
            Rejection(REMOVE_RAFT_VOTER, RemoveRaftVoterRequestData.decode, _reject_raft_voter),
            Rejection(
                UNREGISTER_CONTROLLER,
                UnregisterControllerRequestData.decode,
                reject_unregister_controller,
            ),
        )
    }
)
