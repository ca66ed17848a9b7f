"""The operation on the cluster that each API of a controller or broker needs as a whole.

The tables have the APIs whose request is allowed or rejected as a whole. The others are checked by
resource, with their own answers:

========================  ========================================================================
CreateTopics              CREATE on the cluster, else on each topic; DESCRIBE_CONFIGS on a topic
                          for the configuration in the response
DeleteTopics              DELETE on the cluster, else DESCRIBE and DELETE on each topic
CreatePartitions          ALTER on each topic
AlterConfigs,             ALTER_CONFIGS on the topic, group or (brokers, client metrics) cluster
IncrementalAlterConfigs   cluster; CLUSTER_ACTION on the cluster for the loggers of a broker
DescribeConfigs           DESCRIBE_CONFIGS on the topic, group or cluster
CreateDelegationToken     CREATE_TOKENS on the user, for a token of another owner
ApiVersions, SASL,        nothing (the owner or a renewer for the latter two)
Renew-, ExpireDelegationToken
========================  ========================================================================

Sources: Kafka's ``ControllerApis``, ``KafkaApis``, ``AclApis``, ``AuthHelper`` (4.3.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kraft.errors import ClusterAuthorizationError
from kraft.image.security import AclOperation, ResourceType
from kraft.security.authorizer import Action, Authorizer, RequestContext

#: The name of the only resource of type CLUSTER.
CLUSTER_NAME: Final = "kafka-cluster"

_BY_OPERATION = {
    AclOperation.CLUSTER_ACTION: (
        *("Fetch", "FetchSnapshot", "Vote", "BeginQuorumEpoch", "EndQuorumEpoch"),
        *("UpdateRaftVoter", "AlterPartition", "AssignReplicasToDirs", "AllocateProducerIds"),
        *("BrokerRegistration", "BrokerHeartbeat", "ControllerRegistration", "Envelope"),
    ),
    AclOperation.ALTER: (
        *("CreateAcls", "DeleteAcls", "AlterUserScramCredentials", "AlterPartitionReassignments"),
        *("ElectLeaders", "UpdateFeatures", "UnregisterBroker", "UnregisterController"),
        *("AddRaftVoter", "RemoveRaftVoter"),
        # On a controller's listener. On a broker's, DescribeCluster needs DESCRIBE.
        "DescribeCluster",
    ),
    AclOperation.ALTER_CONFIGS: ("AlterClientQuotas",),
    AclOperation.DESCRIBE: ("DescribeAcls", "DescribeQuorum", "ListPartitionReassignments"),
}
#: By Kafka's name of the API.
CLUSTER_OPERATIONS: Final[Mapping[str, AclOperation]] = {
    api_name: operation for operation, api_names in _BY_OPERATION.items() for api_name in api_names
}
#: The same for the APIs that a broker answers itself (``KafkaApis``). The controller checks the
#: requests that brokers forward; the broker does so only for the owners of delegation tokens.
BROKER_OPERATIONS: Final[Mapping[str, AclOperation]] = {
    "DescribeAcls": AclOperation.DESCRIBE,
    "DescribeClientQuotas": AclOperation.DESCRIBE_CONFIGS,
    "DescribeUserScramCredentials": AclOperation.DESCRIBE,
    "ListConfigResources": AclOperation.DESCRIBE_CONFIGS,
}


def check_cluster_operation(
    authorizer: Authorizer,
    context: RequestContext,
    operations: Mapping[str, AclOperation] = CLUSTER_OPERATIONS,
) -> None:
    """Check the operation on the cluster that the API of ``context`` needs, if it needs one.

    ``operations`` are those of a controller, or `BROKER_OPERATIONS`. Raises
    ClusterAuthorizationError if it is denied, AuthorizerNotReadyError as `Authorizer.authorize`.
    The principal of an Envelope's content is checked by another context.
    """
    operation = operations.get(context.api_name)
    if operation is None:
        return
    action = Action(operation, ResourceType.CLUSTER, CLUSTER_NAME)
    if not authorizer.authorize(context, action):
        raise ClusterAuthorizationError(
            f"{context.api_name} needs {operation.name} on the cluster, which {context.principal} "
            f"at {context.host} does not have"
        )
