"""The tables of the APIs: key -> API, request, response.

``RPCS`` has those of the controller listener, ``BROKER_RPCS`` those that only a broker listener
has. A listener derives its ApiVersions response from the APIs that it has a handler for. The APIs
and versions are those of Kafka 4.3.1, and of 4.4.0 UnregisterController and ApiVersions 5; tests
compare each schema with Kafka's classes.
"""

from __future__ import annotations

from typing import NamedTuple

from kraft._core.codec.metadata_codec import Message
from kraft.protocol.add_raft_voter import ADD_RAFT_VOTER, AddRaftVoterRequestData
from kraft.protocol.allocate_producer_ids import (
    ALLOCATE_PRODUCER_IDS,
    AllocateProducerIdsRequestData,
    AllocateProducerIdsResponseData,
)
from kraft.protocol.alter_client_quotas import (
    ALTER_CLIENT_QUOTAS,
    AlterClientQuotasRequestData,
    AlterClientQuotasResponseData,
)
from kraft.protocol.alter_configs import (
    ALTER_CONFIGS,
    AlterConfigsRequestData,
    AlterConfigsResponseData,
)
from kraft.protocol.alter_partition import (
    ALTER_PARTITION,
    AlterPartitionRequestData,
    AlterPartitionResponseData,
)
from kraft.protocol.alter_partition_reassignments import (
    ALTER_PARTITION_REASSIGNMENTS,
    AlterPartitionReassignmentsRequestData,
    AlterPartitionReassignmentsResponseData,
)
from kraft.protocol.alter_replica_log_dirs import (
    ALTER_REPLICA_LOG_DIRS,
    AlterReplicaLogDirsRequestData,
    AlterReplicaLogDirsResponseData,
)
from kraft.protocol.alter_user_scram_credentials import (
    ALTER_USER_SCRAM_CREDENTIALS,
    AlterUserScramCredentialsRequestData,
    AlterUserScramCredentialsResponseData,
)
from kraft.protocol.api_versions import (
    API_VERSIONS,
    ApiVersionsRequestData,
    ApiVersionsResponseData,
)
from kraft.protocol.assign_replicas_to_dirs import (
    ASSIGN_REPLICAS_TO_DIRS,
    AssignReplicasToDirsRequestData,
    AssignReplicasToDirsResponseData,
)
from kraft.protocol.begin_quorum_epoch import BEGIN_QUORUM_EPOCH, BeginQuorumEpochRequestData
from kraft.protocol.broker_heartbeat import (
    BROKER_HEARTBEAT,
    BrokerHeartbeatRequestData,
    BrokerHeartbeatResponseData,
)
from kraft.protocol.broker_registration import (
    BROKER_REGISTRATION,
    BrokerRegistrationRequestData,
    BrokerRegistrationResponseData,
)
from kraft.protocol.controller_registration import (
    CONTROLLER_REGISTRATION,
    ControllerRegistrationRequestData,
    ControllerRegistrationResponseData,
)
from kraft.protocol.create_acls import CREATE_ACLS, CreateAclsRequestData, CreateAclsResponseData
from kraft.protocol.create_delegation_token import (
    CREATE_DELEGATION_TOKEN,
    CreateDelegationTokenRequestData,
    CreateDelegationTokenResponseData,
)
from kraft.protocol.create_partitions import (
    CREATE_PARTITIONS,
    CreatePartitionsRequestData,
    CreatePartitionsResponseData,
)
from kraft.protocol.create_topics import (
    CREATE_TOPICS,
    CreateTopicsRequestData,
    CreateTopicsResponseData,
)
from kraft.protocol.delete_acls import DELETE_ACLS, DeleteAclsRequestData, DeleteAclsResponseData
from kraft.protocol.delete_groups import (
    DELETE_GROUPS,
    DeleteGroupsRequestData,
    DeleteGroupsResponseData,
)
from kraft.protocol.delete_records import (
    DELETE_RECORDS,
    DeleteRecordsRequestData,
    DeleteRecordsResponseData,
)
from kraft.protocol.delete_topics import (
    DELETE_TOPICS,
    DeleteTopicsRequestData,
    DeleteTopicsResponseData,
)
from kraft.protocol.describe_acls import (
    DESCRIBE_ACLS,
    DescribeAclsRequestData,
    DescribeAclsResponseData,
)
from kraft.protocol.describe_client_quotas import (
    DESCRIBE_CLIENT_QUOTAS,
    DescribeClientQuotasRequestData,
    DescribeClientQuotasResponseData,
)
from kraft.protocol.describe_cluster import (
    DESCRIBE_CLUSTER,
    DescribeClusterRequestData,
    DescribeClusterResponseData,
)
from kraft.protocol.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequestData,
    DescribeConfigsResponseData,
)
from kraft.protocol.describe_delegation_token import (
    DESCRIBE_DELEGATION_TOKEN,
    DescribeDelegationTokenRequestData,
    DescribeDelegationTokenResponseData,
)
from kraft.protocol.describe_groups import (
    DESCRIBE_GROUPS,
    DescribeGroupsRequestData,
    DescribeGroupsResponseData,
)
from kraft.protocol.describe_log_dirs import (
    DESCRIBE_LOG_DIRS,
    DescribeLogDirsRequestData,
    DescribeLogDirsResponseData,
)
from kraft.protocol.describe_producers import (
    DESCRIBE_PRODUCERS,
    DescribeProducersRequestData,
    DescribeProducersResponseData,
)
from kraft.protocol.describe_quorum import (
    DESCRIBE_QUORUM,
    DescribeQuorumRequestData,
    DescribeQuorumResponseData,
)
from kraft.protocol.describe_topic_partitions import (
    DESCRIBE_TOPIC_PARTITIONS,
    DescribeTopicPartitionsRequestData,
    DescribeTopicPartitionsResponseData,
)
from kraft.protocol.describe_user_scram_credentials import (
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    DescribeUserScramCredentialsRequestData,
    DescribeUserScramCredentialsResponseData,
)
from kraft.protocol.elect_leaders import (
    ELECT_LEADERS,
    ElectLeadersRequestData,
    ElectLeadersResponseData,
)
from kraft.protocol.end_quorum_epoch import END_QUORUM_EPOCH, EndQuorumEpochRequestData
from kraft.protocol.envelope import ENVELOPE, EnvelopeRequestData, EnvelopeResponseData
from kraft.protocol.expire_delegation_token import (
    EXPIRE_DELEGATION_TOKEN,
    ExpireDelegationTokenRequestData,
    ExpireDelegationTokenResponseData,
)
from kraft.protocol.fetch import FETCH, FetchRequestData, FetchResponseData
from kraft.protocol.fetch_snapshot import FETCH_SNAPSHOT, FetchSnapshotRequestData
from kraft.protocol.find_coordinator import (
    FIND_COORDINATOR,
    FindCoordinatorRequestData,
    FindCoordinatorResponseData,
)
from kraft.protocol.headers import Api
from kraft.protocol.heartbeat import HEARTBEAT, HeartbeatRequestData, HeartbeatResponseData
from kraft.protocol.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    IncrementalAlterConfigsRequestData,
    IncrementalAlterConfigsResponseData,
)
from kraft.protocol.init_producer_id import (
    INIT_PRODUCER_ID,
    InitProducerIdRequestData,
    InitProducerIdResponseData,
)
from kraft.protocol.join_group import JOIN_GROUP, JoinGroupRequestData, JoinGroupResponseData
from kraft.protocol.leave_group import LEAVE_GROUP, LeaveGroupRequestData, LeaveGroupResponseData
from kraft.protocol.list_config_resources import (
    LIST_CONFIG_RESOURCES,
    ListConfigResourcesRequestData,
    ListConfigResourcesResponseData,
)
from kraft.protocol.list_groups import LIST_GROUPS, ListGroupsRequestData, ListGroupsResponseData
from kraft.protocol.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsRequestData,
    ListOffsetsResponseData,
)
from kraft.protocol.list_partition_reassignments import (
    LIST_PARTITION_REASSIGNMENTS,
    ListPartitionReassignmentsRequestData,
    ListPartitionReassignmentsResponseData,
)
from kraft.protocol.metadata import METADATA, MetadataRequestData, MetadataResponseData
from kraft.protocol.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitRequestData,
    OffsetCommitResponseData,
)
from kraft.protocol.offset_delete import (
    OFFSET_DELETE,
    OffsetDeleteRequestData,
    OffsetDeleteResponseData,
)
from kraft.protocol.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchRequestData,
    OffsetFetchResponseData,
)
from kraft.protocol.offset_for_leader_epoch import (
    OFFSET_FOR_LEADER_EPOCH,
    OffsetForLeaderEpochRequestData,
    OffsetForLeaderEpochResponseData,
)
from kraft.protocol.produce import PRODUCE, ProduceRequestData, ProduceResponseData
from kraft.protocol.quorum_epoch import QuorumEpochResponseData
from kraft.protocol.raft_voter import RaftVoterResponseData
from kraft.protocol.remove_raft_voter import REMOVE_RAFT_VOTER, RemoveRaftVoterRequestData
from kraft.protocol.renew_delegation_token import (
    RENEW_DELEGATION_TOKEN,
    RenewDelegationTokenRequestData,
    RenewDelegationTokenResponseData,
)
from kraft.protocol.sasl_authenticate import (
    SASL_AUTHENTICATE,
    SaslAuthenticateRequestData,
    SaslAuthenticateResponseData,
)
from kraft.protocol.sasl_handshake import (
    SASL_HANDSHAKE,
    SaslHandshakeRequestData,
    SaslHandshakeResponseData,
)
from kraft.protocol.sync_group import SYNC_GROUP, SyncGroupRequestData, SyncGroupResponseData
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
from kraft.protocol.update_raft_voter import (
    UPDATE_RAFT_VOTER,
    UpdateRaftVoterRequestData,
    UpdateRaftVoterResponseData,
)
from kraft.protocol.vote import VOTE, VoteRequestData, VoteResponseData


class Rpc(NamedTuple):
    """An API and the classes of its bodies; None for a body that ``kraft._core.codec`` has."""

    api: Api
    request: type[Message] | None
    response: type[Message] | None


#: The APIs of the controller listener, by ascending API key.
RPCS: tuple[Rpc, ...] = (
    Rpc(FETCH, FetchRequestData, FetchResponseData),
    Rpc(SASL_HANDSHAKE, SaslHandshakeRequestData, SaslHandshakeResponseData),
    Rpc(API_VERSIONS, ApiVersionsRequestData, ApiVersionsResponseData),
    Rpc(CREATE_TOPICS, CreateTopicsRequestData, CreateTopicsResponseData),
    Rpc(DELETE_TOPICS, DeleteTopicsRequestData, DeleteTopicsResponseData),
    Rpc(DESCRIBE_ACLS, DescribeAclsRequestData, DescribeAclsResponseData),
    Rpc(CREATE_ACLS, CreateAclsRequestData, CreateAclsResponseData),
    Rpc(DELETE_ACLS, DeleteAclsRequestData, DeleteAclsResponseData),
    Rpc(DESCRIBE_CONFIGS, DescribeConfigsRequestData, DescribeConfigsResponseData),
    Rpc(ALTER_CONFIGS, AlterConfigsRequestData, AlterConfigsResponseData),
    Rpc(SASL_AUTHENTICATE, SaslAuthenticateRequestData, SaslAuthenticateResponseData),
    Rpc(CREATE_PARTITIONS, CreatePartitionsRequestData, CreatePartitionsResponseData),
    Rpc(
        CREATE_DELEGATION_TOKEN, CreateDelegationTokenRequestData, CreateDelegationTokenResponseData
    ),
    Rpc(RENEW_DELEGATION_TOKEN, RenewDelegationTokenRequestData, RenewDelegationTokenResponseData),
    Rpc(
        EXPIRE_DELEGATION_TOKEN, ExpireDelegationTokenRequestData, ExpireDelegationTokenResponseData
    ),
    Rpc(
        DESCRIBE_DELEGATION_TOKEN,
        DescribeDelegationTokenRequestData,
        DescribeDelegationTokenResponseData,
    ),
    Rpc(ELECT_LEADERS, ElectLeadersRequestData, ElectLeadersResponseData),
    Rpc(
        INCREMENTAL_ALTER_CONFIGS,
        IncrementalAlterConfigsRequestData,
        IncrementalAlterConfigsResponseData,
    ),
    Rpc(
        ALTER_PARTITION_REASSIGNMENTS,
        AlterPartitionReassignmentsRequestData,
        AlterPartitionReassignmentsResponseData,
    ),
    Rpc(
        LIST_PARTITION_REASSIGNMENTS,
        ListPartitionReassignmentsRequestData,
        ListPartitionReassignmentsResponseData,
    ),
    Rpc(ALTER_CLIENT_QUOTAS, AlterClientQuotasRequestData, AlterClientQuotasResponseData),
    Rpc(
        DESCRIBE_USER_SCRAM_CREDENTIALS,
        DescribeUserScramCredentialsRequestData,
        DescribeUserScramCredentialsResponseData,
    ),
    Rpc(
        ALTER_USER_SCRAM_CREDENTIALS,
        AlterUserScramCredentialsRequestData,
        AlterUserScramCredentialsResponseData,
    ),
    Rpc(VOTE, VoteRequestData, VoteResponseData),
    Rpc(BEGIN_QUORUM_EPOCH, BeginQuorumEpochRequestData, QuorumEpochResponseData),
    Rpc(END_QUORUM_EPOCH, EndQuorumEpochRequestData, QuorumEpochResponseData),
    Rpc(DESCRIBE_QUORUM, DescribeQuorumRequestData, DescribeQuorumResponseData),
    Rpc(ALTER_PARTITION, AlterPartitionRequestData, AlterPartitionResponseData),
    Rpc(UPDATE_FEATURES, UpdateFeaturesRequestData, UpdateFeaturesResponseData),
    Rpc(ENVELOPE, EnvelopeRequestData, EnvelopeResponseData),
    Rpc(FETCH_SNAPSHOT, FetchSnapshotRequestData, None),
    Rpc(DESCRIBE_CLUSTER, DescribeClusterRequestData, DescribeClusterResponseData),
    Rpc(BROKER_REGISTRATION, BrokerRegistrationRequestData, BrokerRegistrationResponseData),
    Rpc(BROKER_HEARTBEAT, BrokerHeartbeatRequestData, BrokerHeartbeatResponseData),
    Rpc(UNREGISTER_BROKER, UnregisterBrokerRequestData, UnregisterBrokerResponseData),
    Rpc(ALLOCATE_PRODUCER_IDS, AllocateProducerIdsRequestData, AllocateProducerIdsResponseData),
    Rpc(
        CONTROLLER_REGISTRATION,
        ControllerRegistrationRequestData,
        ControllerRegistrationResponseData,
    ),
    Rpc(ASSIGN_REPLICAS_TO_DIRS, AssignReplicasToDirsRequestData, AssignReplicasToDirsResponseData),
    Rpc(ADD_RAFT_VOTER, AddRaftVoterRequestData, RaftVoterResponseData),
    Rpc(REMOVE_RAFT_VOTER, RemoveRaftVoterRequestData, RaftVoterResponseData),
    Rpc(UPDATE_RAFT_VOTER, UpdateRaftVoterRequestData, UpdateRaftVoterResponseData),
    Rpc(UNREGISTER_CONTROLLER, UnregisterControllerRequestData, UnregisterControllerResponseData),
)

#: The APIs that only a broker listener has, by ascending API key.
BROKER_RPCS: tuple[Rpc, ...] = (
    Rpc(PRODUCE, ProduceRequestData, ProduceResponseData),
    Rpc(LIST_OFFSETS, ListOffsetsRequestData, ListOffsetsResponseData),
    Rpc(METADATA, MetadataRequestData, MetadataResponseData),
    Rpc(OFFSET_COMMIT, OffsetCommitRequestData, OffsetCommitResponseData),
    Rpc(OFFSET_FETCH, OffsetFetchRequestData, OffsetFetchResponseData),
    Rpc(FIND_COORDINATOR, FindCoordinatorRequestData, FindCoordinatorResponseData),
    Rpc(JOIN_GROUP, JoinGroupRequestData, JoinGroupResponseData),
    Rpc(HEARTBEAT, HeartbeatRequestData, HeartbeatResponseData),
    Rpc(LEAVE_GROUP, LeaveGroupRequestData, LeaveGroupResponseData),
    Rpc(SYNC_GROUP, SyncGroupRequestData, SyncGroupResponseData),
    Rpc(DESCRIBE_GROUPS, DescribeGroupsRequestData, DescribeGroupsResponseData),
    Rpc(LIST_GROUPS, ListGroupsRequestData, ListGroupsResponseData),
    Rpc(DELETE_RECORDS, DeleteRecordsRequestData, DeleteRecordsResponseData),
    Rpc(INIT_PRODUCER_ID, InitProducerIdRequestData, InitProducerIdResponseData),
    Rpc(OFFSET_FOR_LEADER_EPOCH, OffsetForLeaderEpochRequestData, OffsetForLeaderEpochResponseData),
    Rpc(ALTER_REPLICA_LOG_DIRS, AlterReplicaLogDirsRequestData, AlterReplicaLogDirsResponseData),
    Rpc(DESCRIBE_LOG_DIRS, DescribeLogDirsRequestData, DescribeLogDirsResponseData),
    Rpc(DELETE_GROUPS, DeleteGroupsRequestData, DeleteGroupsResponseData),
    Rpc(OFFSET_DELETE, OffsetDeleteRequestData, OffsetDeleteResponseData),
    Rpc(DESCRIBE_CLIENT_QUOTAS, DescribeClientQuotasRequestData, DescribeClientQuotasResponseData),
    Rpc(DESCRIBE_PRODUCERS, DescribeProducersRequestData, DescribeProducersResponseData),
    Rpc(LIST_CONFIG_RESOURCES, ListConfigResourcesRequestData, ListConfigResourcesResponseData),
    Rpc(
        DESCRIBE_TOPIC_PARTITIONS,
        DescribeTopicPartitionsRequestData,
        DescribeTopicPartitionsResponseData,
    ),
)

#: Of the controller listener.
RPC_BY_KEY: dict[int, Rpc] = {rpc.api.key: rpc for rpc in RPCS}
