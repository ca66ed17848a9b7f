"""The authorization matrix: every API of the controller listener, by every kind of principal.

A *kind* is a set of ACLs of one user, or no ACL, or a super user. Each kind sends each request
itself, and those that brokers forward in an envelope too. An outcome is the error codes of a
response with the resources that they belong to, sorted; ``closed`` for a connection that the server
closes. The requests change nothing, except DeleteTopics: `restored` topics exist before each.

`tests/interop/authorization.py` asks Apache Kafka's controller and keeps its outcomes as the table
``tests/data/authorization-4.3.1.json.gz``; `tests/unit/server/apis` compares kraft's with them.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from kraft._core.codec.metadata_codec import Message, Struct
from kraft.image.configs import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from kraft.image.security import AccessControl, AclOperation, PermissionType, ResourceType
from kraft.protocol import raft_rpcs
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
from kraft.protocol.alter_partition import AlterPartitionRequestData
from kraft.protocol.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequestData,
    ReassignablePartition,
    ReassignableTopic,
)
from kraft.protocol.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequestData,
    ScramCredentialDeletion,
)
from kraft.protocol.api_versions import ApiVersionsRequestData
from kraft.protocol.apis import RPC_BY_KEY, RPCS
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
from kraft.protocol.describe_acls import DescribeAclsRequestData
from kraft.protocol.describe_cluster import DescribeClusterRequestData
from kraft.protocol.describe_configs import DescribeConfigsRequestData, DescribeConfigsResource
from kraft.protocol.elect_leaders import ElectLeadersRequestData, ElectLeadersTopic
from kraft.protocol.envelope import EnvelopeRequestData, EnvelopeResponseData
from kraft.protocol.expire_delegation_token import ExpireDelegationTokenRequestData
from kraft.protocol.headers import Api, read_response_header, request_frame
from kraft.protocol.incremental_alter_configs import (
    IncrementalAlterConfigsRequestData,
    IncrementalAlterConfigsResource,
    IncrementalConfig,
)
from kraft.protocol.list_partition_reassignments import ListPartitionReassignmentsRequestData
from kraft.protocol.renew_delegation_token import RenewDelegationTokenRequestData
from kraft.protocol.unregister_broker import UnregisterBrokerRequestData
from kraft.protocol.update_features import FeatureUpdateData, UpdateFeaturesRequestData
from kraft.raft import rpc as m
from kraft.raft.voters import KRaftVersionRange, ReplicaKey
from kraft.records import Uuid
from kraft.security.principals import KafkaPrincipal, encode_principal

TABLE = Path(__file__).parents[1] / "data" / "authorization-4.3.1.json.gz"
#: The id of the node that is asked.
NODE_ID = 1
ROOT = "root"
#: Topics that exist before each request: the ACLs of kinds name the first.
RESTORED = ("orders", "other")
LOCAL_ADDRESS = bytes((127, 0, 0, 1))
_OTHER_CLUSTER = "b3RoZXIgY2x1c3RlciEhIQ"
_ID = Uuid(b"an id of nothing")
_CORRELATION = 7
_FRAME_SIZE = 4
_OPERATIONS = [each for each in AclOperation if each >= AclOperation.ALL]
_LITERAL, _PREFIXED = 3, 4
_ALLOW, _DENY = PermissionType.ALLOW, PermissionType.DENY
_CLUSTER = (ResourceType.CLUSTER, "kafka-cluster", _LITERAL)
_TOPIC = (ResourceType.TOPIC, "orders", _LITERAL)
_GROUP = (ResourceType.GROUP, "g", _LITERAL)
_USER = (ResourceType.USER, "User:owner", _LITERAL)

Outcome = list[str]
Rule = tuple[tuple[ResourceType, str, int], AclOperation, PermissionType, str]
Table = dict[str, dict[str, Outcome]]


# -- the kinds of principals


def kinds() -> dict[str, list[Rule]]:
    """Return the rules of each kind, by its description; the super user has none."""
    found: dict[str, list[Rule]] = {"super user": [], "no ACL": []}
    everything = [
        _CLUSTER,
        *((kind, "*", _LITERAL) for kind in (ResourceType.TOPIC, ResourceType.GROUP)),
        (ResourceType.USER, "*", _LITERAL),
    ]

    def allow(*resources: tuple[ResourceType, str, int], host: str = "*") -> list[Rule]:
        return [(each, AclOperation.ALL, _ALLOW, host) for each in resources]

    found["everything"] = allow(*everything)
    found["everything, from this host"] = allow(*everything, host="127.0.0.1")
    found["everything, from another host"] = allow(*everything, host="10.9.9.9")
    found["everything allowed and denied"] = found["everything"] + [
        (each, AclOperation.ALL, _DENY, "*") for each in everything
    ]
    for operation in _OPERATIONS:
        name = operation.name
        for described, resource in (
            ("the cluster", _CLUSTER),
            ("the topic", _TOPIC),
            ("topics by prefix", (ResourceType.TOPIC, "ord", _PREFIXED)),
            ("all topics", (ResourceType.TOPIC, "*", _LITERAL)),
            ("the group", _GROUP),
            ("the user", _USER),
        ):
            found[f"{name} on {described}"] = [(resource, operation, _ALLOW, "*")]
        for described, resource in (("the cluster", _CLUSTER), ("the topic", _TOPIC)):
            denied = (resource, operation, _DENY, "*")
            found[f"everything but {name} on {described}"] = [*found["everything"], denied]
        prefix = ((ResourceType.TOPIC, "o", _PREFIXED), operation, _DENY, "*")
        found[f"the topic but {name} by prefix"] = [*allow(_TOPIC), prefix]
    return found


def user_of(kind: str, number: int) -> str:
    """Return the name of the user of a kind."""
    return ROOT if kind == "super user" else f"u{number:03}"


def acls_of(rules: list[Rule], user: str) -> list[AccessControl]:
    return [
        AccessControl(*resource, f"User:{user}", host, operation, permission)
        for resource, operation, permission, host in rules
    ]


# -- the requests


@dataclass(frozen=True)
class AskedRequest:
    """One request of the matrix; ``body`` receives the ids of the restored topics."""

    name: str
    api: Api
    body: Callable[[Mapping[str, Uuid]], bytes]
    is_forwarded: bool = False


#: As in Kafka's ``ApiKeys.forwardable``.
_FORWARDED = frozenset(
    {
        *("CreateTopics", "DeleteTopics", "CreateAcls", "DeleteAcls", "AlterConfigs"),
        *("CreatePartitions", "CreateDelegationToken", "RenewDelegationToken"),
        *("ExpireDelegationToken", "ElectLeaders", "IncrementalAlterConfigs"),
        *("AlterPartitionReassignments", "ListPartitionReassignments", "AlterClientQuotas"),
        *("AlterUserScramCredentials", "UpdateFeatures", "DescribeQuorum", "UnregisterBroker"),
    }
)
_KINDS_OF_RESOURCES = (
    (TOPIC, "orders"),
    (TOPIC, "other"),
    (TOPIC, "missing"),
    (BROKER, str(NODE_ID)),
    (BROKER_LOGGER, str(NODE_ID)),
    (GROUP, "g"),
    (GROUP, "h"),
    (CLIENT_METRICS, "m"),
)
_CONFIG_NAMES = {
    TOPIC: ("retention.ms", "5000"),
    BROKER: ("log.retention.ms", "5000"),
    BROKER_LOGGER: ("no.such.logger", "INFO"),
    GROUP: ("consumer.session.timeout.ms", "50000"),
    CLIENT_METRICS: ("interval.ms", "1000"),
}


def version_of(api: Api) -> int:
    """Return the version that is sent: the newest of Kafka 4.3.1."""
    return 4 if api.name == "ApiVersions" else api.highest


def requests() -> list[AskedRequest]:
    """Return the requests; each API of the listener has at least one."""
    apis = {rpc.api.name: rpc.api for rpc in RPCS}
    found: list[AskedRequest] = []

    def add(
        name: str,
        make: Message | m.Request | Callable[[Mapping[str, Uuid]], Message],
        what: str = "",
    ) -> None:
        api = apis[name]
        version = version_of(api)

        def body(ids: Mapping[str, Uuid]) -> bytes:
            if isinstance(make, Message):
                return make.encode(version)
            if callable(make):
                return make(ids).encode(version)
            return raft_rpcs.encode_request(make, version)

        is_forwarded = name in _FORWARDED
        found.append(AskedRequest(f"{name}{what and f' {what}'}", api, body, is_forwarded))

    names = ("orders", "ordersx", "missing")
    add(
        "CreateTopics",
        CreateTopicsRequestData([CreatableTopic(each, 1, 1) for each in names], 5000, True),
    )
    add(
        "DeleteTopics",
        DeleteTopicsRequestData(
            [DeleteTopicState("missing"), DeleteTopicState("orders")], timeout_ms=5000
        ),
    )
    add(
        "DeleteTopics",
        lambda ids: DeleteTopicsRequestData(
            [DeleteTopicState(None, each) for each in (ids["orders"], ids["other"], _ID)],
            timeout_ms=5000,
        ),
        "by id",
    )
    add(
        "CreatePartitions",
        CreatePartitionsRequestData(
            [CreatePartitionsTopic(each, 9) for each in ("orders", "other", "missing")], 5000, True
        ),
    )
    add("DescribeAcls", DescribeAclsRequestData(2, "nothing", 3, None, None, 1, 1))
    add("CreateAcls", CreateAclsRequestData([AclCreation(2, "", 3, "User:x", "*", 3, 3)]))
    add("DeleteAcls", DeleteAclsRequestData([DeleteAclsFilter(2, "nothing", 3, None, None, 1, 1)]))
    add(
        "DescribeConfigs",
        DescribeConfigsRequestData(
            [DescribeConfigsResource(*each, ["no.such"]) for each in _KINDS_OF_RESOURCES]
        ),
    )
    add(
        "AlterConfigs",
        AlterConfigsRequestData(
            [
                AlterConfigsResource(kind, name, [AlterableConfig(*_CONFIG_NAMES[kind])])
                for kind, name in _KINDS_OF_RESOURCES
                if kind != BROKER_LOGGER
            ],
            True,
        ),
    )
    add(
        "IncrementalAlterConfigs",
        IncrementalAlterConfigsRequestData(
            [
                IncrementalAlterConfigsResource(
                    kind,
                    name,
                    [IncrementalConfig(_CONFIG_NAMES[kind][0], 0, _CONFIG_NAMES[kind][1])],
                )
                for kind, name in _KINDS_OF_RESOURCES
                if kind != BROKER_LOGGER
            ],
            True,
        ),
    )
    add("CreateDelegationToken", CreateDelegationTokenRequestData(None, None, [], -1), "of oneself")
    add(
        "CreateDelegationToken",
        CreateDelegationTokenRequestData("User", "owner", [], -1),
        "of another owner",
    )
    add("RenewDelegationToken", RenewDelegationTokenRequestData(b"nothing", 1000))
    add("ExpireDelegationToken", ExpireDelegationTokenRequestData(b"nothing", -1))
    add(
        "ElectLeaders",
        ElectLeadersRequestData(
            0, [ElectLeadersTopic(each, [0]) for each in ("orders", "missing")], 5000
        ),
    )
    add(
        "AlterPartitionReassignments",
        AlterPartitionReassignmentsRequestData(
            5000,
            True,
            [
                ReassignableTopic(each, [ReassignablePartition(0, None)])
                for each in ("orders", "missing")
            ],
        ),
    )
    add("ListPartitionReassignments", ListPartitionReassignmentsRequestData(5000, None))
    add(
        "AlterClientQuotas",
        AlterClientQuotasRequestData(
            [QuotaEntry([QuotaEntity("user", "x")], [QuotaOp("producer_byte_rate", 5.0, False)])],
            True,
        ),
    )
    add(
        "AlterUserScramCredentials",
        AlterUserScramCredentialsRequestData([ScramCredentialDeletion("nobody", 1)], []),
    )
    add(
        "UpdateFeatures",
        UpdateFeaturesRequestData(5000, [FeatureUpdateData("no.such", 1, upgrade_type=1)], True),
    )
    add("UnregisterBroker", UnregisterBrokerRequestData(77))
    add("AllocateProducerIds", AllocateProducerIdsRequestData(77, 1))
    add("AlterPartition", AlterPartitionRequestData(77, 1, []))
    add("AssignReplicasToDirs", AssignReplicasToDirsRequestData(77, 1, []))
    add("BrokerRegistration", BrokerRegistrationRequestData(77, _OTHER_CLUSTER, _ID, [], []))
    add("BrokerHeartbeat", BrokerHeartbeatRequestData(77, 1, 1))
    add(
        "ControllerRegistration", ControllerRegistrationRequestData(NODE_ID + 7, _ID, False, [], [])
    )
    add("DescribeCluster", DescribeClusterRequestData(False, 2, False))
    add("ApiVersions", ApiVersionsRequestData("test", "1"))
    add("DescribeQuorum", m.DescribeQuorumRequest())
    reader = ReplicaKey(-1)
    add("Fetch", m.FetchRequest(_OTHER_CLUSTER, reader, 1, 0, 0))
    snapshot_id = m.OffsetAndEpoch(0, 0)
    add("FetchSnapshot", m.FetchSnapshotRequest(_OTHER_CLUSTER, reader, 1, snapshot_id, 0))
    stranger = ReplicaKey(77, _ID)
    add("Vote", m.VoteRequest(_OTHER_CLUSTER, 1, stranger, ReplicaKey(NODE_ID, _ID), 0, 0))
    add("BeginQuorumEpoch", m.BeginQuorumEpochRequest(_OTHER_CLUSTER, 1, 77, stranger))
    add("EndQuorumEpoch", m.EndQuorumEpochRequest(_OTHER_CLUSTER, 1, 77, ()))
    add("AddRaftVoter", m.AddRaftVoterRequest(_OTHER_CLUSTER, 1000, stranger, ()))
    add("RemoveRaftVoter", m.RemoveRaftVoterRequest(_OTHER_CLUSTER, stranger))
    add(
        "UpdateRaftVoter",
        m.UpdateRaftVoterRequest(_OTHER_CLUSTER, 1, stranger, (), KRaftVersionRange(0, 1)),
    )
    inner = request_frame(
        apis["ListPartitionReassignments"],
        0,
        _CORRELATION,
        "test",
        ListPartitionReassignmentsRequestData(5000, None).encode(0),
    )
    add(
        "Envelope",
        EnvelopeRequestData(
            inner[_FRAME_SIZE:], encode_principal(KafkaPrincipal("User", ROOT)), LOCAL_ADDRESS
        ),
    )
    return found


def forwarded(request: AskedRequest, user: str, ids: Mapping[str, Uuid]) -> bytes:
    """Return the frame of an envelope with the request of a user."""
    inner = frame_of(request, ids)
    data = EnvelopeRequestData(
        inner[_FRAME_SIZE:], encode_principal(KafkaPrincipal("User", user)), LOCAL_ADDRESS
    )
    api = next(rpc.api for rpc in RPCS if rpc.request is EnvelopeRequestData)
    return request_frame(api, 0, _CORRELATION, "test", data.encode(0))


def frame_of(request: AskedRequest, ids: Mapping[str, Uuid]) -> bytes:
    return request_frame(
        request.api, version_of(request.api), _CORRELATION, "test", request.body(ids)
    )


# -- outcomes


def outcome(request: AskedRequest, frame: bytes) -> Outcome:
    """Return the error codes of a response without its size; b"" is a closed connection."""
    if not frame:
        return ["closed"]
    api, version = request.api, version_of(request.api)
    _, position = read_response_header(frame, api, version)
    response_type = RPC_BY_KEY[api.key].response
    if api.key in raft_rpcs.RAFT_APIS:
        return [str(raft_rpcs.decode_response(api, version, frame, position, "CONTROLLER").error)]
    assert response_type is not None
    return sorted(_codes(response_type.decode(frame, version, position)))


def forwarded_outcome(request: AskedRequest, frame: bytes) -> Outcome:
    """Return the outcome of the request in an envelope, or ``envelope: CODE``."""
    if not frame:
        return ["closed"]
    api = next(rpc.api for rpc in RPCS if rpc.response is EnvelopeResponseData)
    _, position = read_response_header(frame, api, 0)
    response = EnvelopeResponseData.decode(frame, 0, position)
    if response.error_code:
        return [f"envelope: {response.error_code}"]
    assert response.response_data is not None
    return outcome(request, response.response_data)


_LABELS = (
    *("name", "resource_type", "resource_name", "topic", "topic_name", "user", "feature"),
    *("partition_index", "partition_id"),
)


def _codes(data: Struct | Message, label: str = "") -> Iterator[str]:
    """Yield the error codes of a response, each with the resources it belongs to."""
    own = [str(getattr(data, name)) for name in _LABELS if hasattr(data, name)]
    label = "/".join((*([label] if label else []), *own))
    for name in type(data).__annotations__:
        value: Any = getattr(data, name)
        if name.endswith("error_code"):
            kind = name.removesuffix("error_code").strip("_")
            yield ": ".join(filter(None, (label, kind, str(value))))
        elif isinstance(value, list):
            for each in value:
                if isinstance(each, Struct):
                    yield from _codes(each, label)


class MatrixServer(Protocol):
    """A controller with the ACLs of all kinds."""

    def ids(self) -> dict[str, Uuid]:
        """Create those of the restored topics that do not exist; return their ids."""

    def ask(self, user: str, frame: bytes) -> bytes:
        """Return the response to a request of a user."""

    def forward(self, frame: bytes) -> bytes:
        """Return the response to an envelope of a broker."""


def ask_all(server: MatrixServer) -> Table:
    """Return the outcomes of all requests of all kinds: kind -> request -> outcome."""
    table: Table = {kind: {} for kind in kinds()}
    asked, ids = requests(), server.ids()
    for is_forwarded in (False, True):
        for number, kind in enumerate(table):
            user = user_of(kind, number)
            for request in asked:
                if request.api.name == "DeleteTopics":
                    ids = server.ids()
                if not is_forwarded:
                    found = outcome(request, server.ask(user, frame_of(request, ids)))
                    table[kind][request.name] = found
                elif request.is_forwarded:
                    found = forwarded_outcome(
                        request, server.forward(forwarded(request, user, ids))
                    )
                    table[kind][f"forwarded {request.name}"] = found
                if request.api.name == "DeleteTopics":
                    ids = server.ids()
    return table


def load_table() -> Table:
    """Return the outcomes of Kafka's controller."""
    table: Table = json.loads(gzip.decompress(TABLE.read_bytes()))
    return table


def save_table(table: Table) -> None:
    text = json.dumps(table, indent=0, sort_keys=True)
    TABLE.write_bytes(gzip.compress(text.encode(), mtime=0))


def differences(ours: Table, kafkas: Table) -> list[str]:
    """Return a line for each outcome that differs."""
    found = []
    for kind in sorted(ours.keys() | kafkas.keys()):
        mine, theirs = ours.get(kind, {}), kafkas.get(kind, {})
        found += [
            f"{kind}: {name}: Kafka {theirs.get(name)}, kraft {mine.get(name)}"
            for name in sorted(mine.keys() | theirs.keys())
            if mine.get(name) != theirs.get(name)
        ]
    return found
