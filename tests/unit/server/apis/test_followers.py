"""A follower's responses to requests that only the active controller may answer.

A broker looks for the new leader if NOT_CONTROLLER is anywhere in the response (``errorCounts``) or
is the error of an envelope. Without this error the broker keeps asking the follower.
"""

from __future__ import annotations

import re
from pathlib import Path

from kraft._core.codec.metadata_codec import Message
from kraft.errors import NOT_CONTROLLER
from kraft.image.configs import TOPIC
from kraft.metadata.identifiers import random_uuid
from kraft.protocol.add_raft_voter import AddRaftVoterRequestData
from kraft.protocol.allocate_producer_ids import AllocateProducerIdsRequestData
from kraft.protocol.alter_client_quotas import (
    AlterClientQuotasRequestData,
    QuotaEntity,
    QuotaEntry,
    QuotaOp,
)
from kraft.protocol.alter_configs import (
    AlterableConfig,
    AlterConfigsRequestData,
    AlterConfigsResource,
)
from kraft.protocol.alter_partition import AlterPartitionRequestData, IsrPartition, IsrTopic
from kraft.protocol.alter_partition_reassignments import AlterPartitionReassignmentsRequestData
from kraft.protocol.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequestData,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kraft.protocol.apis import RPC_BY_KEY
from kraft.protocol.assign_replicas_to_dirs import AssignReplicasToDirsRequestData
from kraft.protocol.broker_heartbeat import BrokerHeartbeatRequestData
from kraft.protocol.broker_registration import BrokerRegistrationRequestData
from kraft.protocol.controller_registration import ControllerRegistrationRequestData
from kraft.protocol.create_acls import AclCreation, CreateAclsRequestData
from kraft.protocol.create_delegation_token import CreateDelegationTokenRequestData
from kraft.protocol.create_partitions import CreatePartitionsRequestData, CreatePartitionsTopic
from kraft.protocol.create_topics import CreatableTopic, CreateTopicsRequestData
from kraft.protocol.delete_acls import DeleteAclsFilter, DeleteAclsRequestData
from kraft.protocol.delete_topics import DeleteTopicsRequestData, DeleteTopicState
from kraft.protocol.describe_acls import DESCRIBE_ACLS
from kraft.protocol.describe_cluster import DESCRIBE_CLUSTER
from kraft.protocol.describe_configs import DESCRIBE_CONFIGS
from kraft.protocol.describe_quorum import (
    DescribePartition,
    DescribeQuorumRequestData,
    DescribeTopic,
)
from kraft.protocol.elect_leaders import ElectLeadersRequestData
from kraft.protocol.envelope import ENVELOPE
from kraft.protocol.expire_delegation_token import ExpireDelegationTokenRequestData
from kraft.protocol.incremental_alter_configs import (
    IncrementalAlterConfigsRequestData,
    IncrementalAlterConfigsResource,
    IncrementalConfig,
)
from kraft.protocol.list_partition_reassignments import ListPartitionReassignmentsRequestData
from kraft.protocol.remove_raft_voter import RemoveRaftVoterRequestData
from kraft.protocol.renew_delegation_token import RenewDelegationTokenRequestData
from kraft.protocol.unregister_broker import UnregisterBrokerRequestData
from kraft.protocol.unregister_controller import UnregisterControllerRequestData
from kraft.protocol.update_features import FeatureUpdateData, UpdateFeaturesRequestData
from kraft.records import ZERO_UUID
from kraft.security.principals import KafkaPrincipal
from kraft.server.apis.forwarding import FORWARDABLE
from tests.harness.controller_nodes import Quorum, RunScenario, until
from tests.harness.listener_client import ask, forward

ALICE = KafkaPrincipal("User", "alice")
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:alice",
    "delegation.token.secret.key": "throwaway-1",
}
#: APIs that every controller answers.
OF_ANY_NODE = {DESCRIBE_ACLS.key, DESCRIBE_CLUSTER.key, DESCRIBE_CONFIGS.key, ENVELOPE.key}
#: APIs of the raft node, which answers with another error unless the request is in an envelope.
OF_THE_RAFT_NODE = {55, 80, 81}
#: APIs for authenticated clients; in this test only an envelope names such a client.
OF_KNOWN_CLIENTS = {38, 39, 40}

#: Requests that only the active controller may answer, by API key.
REQUESTS: dict[int, Message] = {
    19: CreateTopicsRequestData([CreatableTopic("a", 1, 1)], 30_000),
    20: DeleteTopicsRequestData([DeleteTopicState("a")], timeout_ms=30_000),
    30: CreateAclsRequestData([AclCreation(2, "a", 3, "User:alice", "*", 3, 3)]),
    31: DeleteAclsRequestData([DeleteAclsFilter(1, operation=1, permission_type=1)]),
    33: AlterConfigsRequestData(
        [AlterConfigsResource(TOPIC, "a", [AlterableConfig("retention.ms", "1")])]
    ),
    37: CreatePartitionsRequestData([CreatePartitionsTopic("a", 3)], 30_000),
    38: CreateDelegationTokenRequestData(max_lifetime_ms=-1),
    39: RenewDelegationTokenRequestData(b"x", 1),
    40: ExpireDelegationTokenRequestData(b"x", 1),
    43: ElectLeadersRequestData(),
    44: IncrementalAlterConfigsRequestData(
        [IncrementalAlterConfigsResource(TOPIC, "a", [IncrementalConfig("retention.ms", 0, "1")])]
    ),
    45: AlterPartitionReassignmentsRequestData(),
    46: ListPartitionReassignmentsRequestData(),
    49: AlterClientQuotasRequestData(
        [QuotaEntry([QuotaEntity("user", "a")], [QuotaOp("producer_byte_rate", 1.0)])]
    ),
    51: AlterUserScramCredentialsRequestData(
        [ScramCredentialDeletion("a", 1)],
        [ScramCredentialUpsertion("b", 1, 4096, b"s" * 20, b"p" * 32)],
    ),
    55: DescribeQuorumRequestData([DescribeTopic("__cluster_metadata", [DescribePartition(0)])]),
    # Without partitions there is nothing to decide, and every node answers it.
    56: AlterPartitionRequestData(1, 1, [IsrTopic(ZERO_UUID, [IsrPartition(0, 0)])]),
    57: UpdateFeaturesRequestData(feature_updates=[FeatureUpdateData("group.version", 1)]),
    62: BrokerRegistrationRequestData(1, "c", random_uuid()),
    63: BrokerHeartbeatRequestData(1, 1),
    64: UnregisterBrokerRequestData(1),
    67: AllocateProducerIdsRequestData(1, 1),
    70: ControllerRegistrationRequestData(1, random_uuid()),
    73: AssignReplicasToDirsRequestData(1, 1),
    80: AddRaftVoterRequestData(None, 1000, 9, random_uuid()),
    81: RemoveRaftVoterRequestData(None, 9, random_uuid()),
    94: UnregisterControllerRequestData(9),
}


def test_every_response_of_a_follower_says_that_it_does_not_lead(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    quorum = Quorum(tmp_path, 2, settings=SETTINGS)

    async def scenario() -> None:
        await quorum.start()
        active = await quorum.active()
        (id,) = quorum.running.keys() - {active}
        follower, images = quorum.running[id], quorum.runner(id).publishing.images
        await until(lambda: images.image is not None)
        served = follower.transport.listener.handlers.keys() - OF_ANY_NODE
        assert served - OF_THE_RAFT_NODE == REQUESTS.keys() - OF_THE_RAFT_NODE
        for key, request in REQUESTS.items():
            rpc = RPC_BY_KEY[key]
            assert rpc.response is not None
            api, version = rpc.api, rpc.api.highest
            if key not in OF_THE_RAFT_NODE | OF_KNOWN_CLIENTS:
                response = await ask(follower, api, version, request, rpc.response)
                codes = re.findall(r"\berror_code=(\d+)", repr(response))
                assert codes, api.name
                assert str(NOT_CONTROLLER) in codes, response
            found = await forward(follower, api, version, request, rpc.response, ALICE)
            assert (found == NOT_CONTROLLER) is (key in FORWARDABLE), (api.name, found)

    run_scenario(scenario, quorum)
