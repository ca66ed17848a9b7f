"""The RPCs between controllers and brokers of the ZooKeeper era, as Kafka 0.8.2 and 1.1 write them.

`VERSIONS_1_1` are those of inter.broker.protocol 1.0 and 1.1, which Kafka 3.9 also speaks at that
setting, `VERSIONS_0_8` those of Kafka 0.8.2. Functions convert between these bodies and
`broker_requests`. What they have of each partition is compiled: `partition_updates`.

Source: ``LeaderAndIsrRequest``, ``UpdateMetadataRequest``, ``StopReplicaRequest``,
``ControlledShutdownRequest`` and their responses in Kafka 0.8.2.2 and 1.1.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft._core.codec.partition_updates import (
    NEW_REPLICAS,
    OFFLINE_REPLICAS,
    PLAIN,
    decode_results,
    decode_updates,
    encode_results,
    encode_updates,
)
from kraft.errors import CorruptRecordError
from kraft.protocol.headers import Api
from kraft.zookeeper.broker_requests import (
    BrokerRequest,
    BrokerResponse,
    LeaderAndIsr,
    PartitionUpdate,
    StopReplica,
    UpdateMetadata,
)
from kraft.zookeeper.context import Leadership
from kraft.zookeeper.states import PartitionKey
from kraft.zookeeper.znodes import BrokerZnode, ListenerAddress

_NEVER_FLEXIBLE = 99
LEADER_AND_ISR = Api(4, "LeaderAndIsr", 0, 1, _NEVER_FLEXIBLE)
STOP_REPLICA = Api(5, "StopReplica", 0, 0, _NEVER_FLEXIBLE)
UPDATE_METADATA = Api(6, "UpdateMetadata", 0, 4, _NEVER_FLEXIBLE)
CONTROLLED_SHUTDOWN = Api(7, "ControlledShutdown", 0, 1, _NEVER_FLEXIBLE)


class RequestVersions(NamedTuple):
    """The versions in which a controller sends its requests."""

    leader_and_isr: int
    update_metadata: int
    stop_replica: int


VERSIONS_1_1 = RequestVersions(leader_and_isr=1, update_metadata=4, stop_replica=0)
VERSIONS_0_8 = RequestVersions(leader_and_isr=0, update_metadata=0, stop_replica=0)
#: Version -> what follows the replicas of each partition.
_LEADER_AND_ISR_LAYOUTS = {0: PLAIN, 1: NEW_REPLICAS}
_UPDATE_METADATA_LAYOUTS = {0: PLAIN, 4: OFFLINE_REPLICAS}

_SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class LiveLeader(Struct):
    id: int = field("int32")
    host: str = field("string")
    port: int = field("int32")


class LiveLeaders(Message, versions=(0, 1), flexible_since=_NEVER_FLEXIBLE):
    """What LeaderAndIsr has after its partitions."""

    live_leaders: list[LiveLeader] = field("[]struct", of=LiveLeader)


class UpdateMetadataEndpoint(Struct):
    port: int = field("int32")
    host: str = field("string")
    listener: str = field("string", since=3)
    security_protocol: int = field("int16")


class UpdateMetadataBroker(Struct):
    id: int = field("int32")
    host: str = field("string", until=0)
    port: int = field("int32", until=0)
    endpoints: list[UpdateMetadataEndpoint] = field("[]struct", since=1, of=UpdateMetadataEndpoint)
    rack: str | None = field("string", None, since=2, nullable=True, ignorable=True)


class LiveBrokers(Message, versions=(0, 4), flexible_since=_NEVER_FLEXIBLE):
    """What UpdateMetadata has after its partitions."""

    live_brokers: list[UpdateMetadataBroker] = field("[]struct", of=UpdateMetadataBroker)


class UpdateMetadataResponseData(Message, versions=(0, 4), flexible_since=_NEVER_FLEXIBLE):
    error_code: int = field("int16")


class StoppedPartition(Struct):
    topic: str = field("string")
    partition: int = field("int32")


class StopReplicaRequestData(Message, versions=(0, 0), flexible_since=_NEVER_FLEXIBLE):
    controller_id: int = field("int32")
    controller_epoch: int = field("int32")
    delete: bool = field("bool")
    partitions: list[StoppedPartition] = field("[]struct", of=StoppedPartition)


class ControlledShutdownRequestData(Message, versions=(0, 1), flexible_since=_NEVER_FLEXIBLE):
    broker_id: int = field("int32")


class ControlledShutdownResponseData(Message, versions=(0, 1), flexible_since=_NEVER_FLEXIBLE):
    error_code: int = field("int16")
    remaining: list[StoppedPartition] = field("[]struct", of=StoppedPartition)


def inter_broker_address(broker: BrokerZnode) -> ListenerAddress | None:
    """Return where controllers and brokers reach a broker: its first PLAINTEXT listener.

    None without one: other security protocols are not supported.
    """
    plain = (one for one in broker.listeners if one.security_protocol == "PLAINTEXT")
    return next(plain, None)


def encode_request(
    request: BrokerRequest, versions: RequestVersions = VERSIONS_1_1
) -> tuple[Api, int, bytes]:
    """Return the RPC, its version and the body of a request."""
    match request:
        case LeaderAndIsr():
            leaders = [
                LiveLeader(id=broker.id, host=address.host, port=address.port)
                for broker in request.live_leaders
                if (address := inter_broker_address(broker)) is not None
            ]
            return (
                LEADER_AND_ISR,
                versions.leader_and_isr,
                encode_updates(
                    request.controller_id,
                    request.controller_epoch,
                    request.partitions,
                    _LEADER_AND_ISR_LAYOUTS[versions.leader_and_isr],
                )
                + LiveLeaders(live_leaders=leaders).encode(versions.leader_and_isr),
            )
        case UpdateMetadata():
            return (
                UPDATE_METADATA,
                versions.update_metadata,
                encode_updates(
                    request.controller_id,
                    request.controller_epoch,
                    request.partitions,
                    _UPDATE_METADATA_LAYOUTS[versions.update_metadata],
                )
                + LiveBrokers(
                    live_brokers=[
                        one
                        for broker in request.live_brokers
                        if (one := _metadata_broker(broker, versions)) is not None
                    ]
                ).encode(versions.update_metadata),
            )
        case StopReplica():
            return (
                STOP_REPLICA,
                versions.stop_replica,
                StopReplicaRequestData(
                    controller_id=request.controller_id,
                    controller_epoch=request.controller_epoch,
                    delete=request.delete,
                    partitions=_partitions(request.partitions),
                ).encode(versions.stop_replica),
            )


def _metadata_broker(broker: BrokerZnode, versions: RequestVersions) -> UpdateMetadataBroker | None:
    """Return a broker with all its listeners; before version 1 with its plaintext one, if any."""
    if versions.update_metadata == 0:
        address = inter_broker_address(broker)
        if address is None:
            return None
        return UpdateMetadataBroker(id=broker.id, host=address.host, port=address.port)
    return UpdateMetadataBroker(
        id=broker.id,
        endpoints=[
            UpdateMetadataEndpoint(
                port=one.port,
                host=one.host,
                listener=one.listener,
                security_protocol=_SECURITY_PROTOCOLS.index(one.security_protocol),
            )
            for one in broker.listeners
            if one.security_protocol in _SECURITY_PROTOCOLS
        ],
        rack=broker.rack,
    )


def _partitions(keys: Iterable[PartitionKey]) -> list[StoppedPartition]:
    return [StoppedPartition(topic=topic, partition=partition) for topic, partition in keys]


def decode_response(api: Api, version: int, body: memoryview) -> BrokerResponse:
    """Return the response to a request of the controller. Raises CorruptRecordError."""
    if api is UPDATE_METADATA:
        return BrokerResponse(UpdateMetadataResponseData.decode(body, version).error_code, {})
    return BrokerResponse(*decode_results(body))


def decode_request(key: int, version: int, body: memoryview) -> BrokerRequest:
    """Return a request as a broker receives it. Raises CorruptRecordError for any other."""
    if (key, version) == (STOP_REPLICA.key, 0):
        stop = StopReplicaRequestData.decode(body, version)
        return StopReplica(
            stop.controller_id,
            stop.controller_epoch,
            stop.delete,
            [(one.topic, one.partition) for one in stop.partitions],
        )
    if key == LEADER_AND_ISR.key and version in LEADER_AND_ISR:
        id, epoch, updates, position = decode_updates(
            body, _LEADER_AND_ISR_LAYOUTS[version], PartitionUpdate, Leadership
        )
        leaders = LiveLeaders.decode(body, version, position).live_leaders
        return LeaderAndIsr(
            id,
            epoch,
            updates,
            [BrokerZnode(one.id, (ListenerAddress(one.host, one.port),)) for one in leaders],
        )
    if key == UPDATE_METADATA.key and version in _UPDATE_METADATA_LAYOUTS:
        id, epoch, updates, position = decode_updates(
            body, _UPDATE_METADATA_LAYOUTS[version], PartitionUpdate, Leadership
        )
        brokers = LiveBrokers.decode(body, version, position).live_brokers
        return UpdateMetadata(
            id,
            epoch,
            updates,
            [
                BrokerZnode(
                    broker.id,
                    (ListenerAddress(broker.host, broker.port),)
                    if version == 0
                    else tuple(
                        ListenerAddress(
                            one.host,
                            one.port,
                            one.listener,
                            _security_protocol(one.security_protocol),
                        )
                        for one in broker.endpoints
                    ),
                    broker.rack,
                )
                for broker in brokers
            ],
        )
    raise CorruptRecordError(f"no controller sends API {key} in version {version}")


def _security_protocol(number: int) -> str:
    if 0 <= number < len(_SECURITY_PROTOCOLS):
        return _SECURITY_PROTOCOLS[number]
    raise CorruptRecordError(f"there is no security protocol {number}")


def encode_response(request: BrokerRequest, version: int, response: BrokerResponse) -> bytes:
    """Return a broker's response to a request."""
    if isinstance(request, UpdateMetadata):
        return UpdateMetadataResponseData(error_code=response.error).encode(version)
    return encode_results(response.error, response.partitions)


def encode_shutdown_response(error: int, remaining: Iterable[PartitionKey]) -> bytes:
    """Return the controller's response to a broker that wants to stop."""
    data = ControlledShutdownResponseData(error_code=error, remaining=_partitions(remaining))
    # Both versions have the same response.
    return data.encode(CONTROLLED_SHUTDOWN.highest)
