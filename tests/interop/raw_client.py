"""Send single requests in any version to a node, Kafka's or kraft's.

Kafka's Admin client sends only the newest versions, and no CreateTopics to a controller.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from typing import TypeVar

from kraft._core.codec.metadata_codec import Message
from kraft.metadata.identifiers import random_uuid
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
from kraft.protocol.common import AdvertisedListener, SupportedFeatureRange
from kraft.protocol.headers import Api, read_response_header, request_frame
from kraft.records import Uuid
from tests.interop.cluster import HOST, ClusterError, Node, wait_for

#: Enough for Kafka 4.3's default features.
FEATURES = {
    "metadata.version": (7, 33),
    "kraft.version": (0, 1),
    "eligible.leader.replicas.version": (0, 1),
    "group.version": (0, 1),
    "transaction.version": (0, 2),
    "share.version": (0, 1),
    "streams.version": (0, 1),
}
PLAIN_LISTENER = AdvertisedListener("PLAINTEXT", HOST, 9092, 0)
TIMEOUT_S = 120.0
Answer = TypeVar("Answer", bound=Message)


def ask_node(node: Node, api: Api, version: int, request: Message, answer: type[Answer]) -> Answer:
    """Return the node's response to one request."""
    with socket.create_connection((HOST, node.port), timeout=TIMEOUT_S) as connection:
        connection.sendall(request_frame(api, version, 7, "test", request.encode(version)))
        with connection.makefile("rb") as responses:
            frame = responses.read(int.from_bytes(responses.read(4), "big"))
    _, position = read_response_header(frame, api, version)
    return answer.decode(frame, version, position)


def unfenced_broker(
    node: Node,
    cluster_id: str,
    broker_id: int,
    listener: AdvertisedListener = PLAIN_LISTENER,
    features: Mapping[str, tuple[int, int]] = FEATURES,
    log_dir: Uuid | None = None,
) -> int:
    """Register a broker that no process runs, and unfence it; return its epoch.

    Requests to the broker go to its ``listener``. The default ``log_dir`` is random.
    """
    request = BrokerRegistrationRequestData(
        broker_id,
        cluster_id,
        random_uuid(),
        [listener],
        [SupportedFeatureRange(name, *levels) for name, levels in features.items()],
        log_dirs=[log_dir or random_uuid()],
    )

    def epoch() -> int:
        registered = ask_node(node, BROKER_REGISTRATION, 4, request, BrokerRegistrationResponseData)
        if registered.error_code:
            raise ClusterError(f"BrokerRegistration has the error {registered.error_code}")
        return registered.broker_epoch

    broker_epoch = wait_for(f"{node.id} to register broker {broker_id}", epoch)
    deadline = time.monotonic() + TIMEOUT_S
    while keep_alive(node, broker_id, broker_epoch).is_fenced:
        assert time.monotonic() < deadline, f"broker {broker_id} stays fenced"
    return broker_epoch


def keep_alive(node: Node, broker_id: int, broker_epoch: int) -> BrokerHeartbeatResponseData:
    """Send the heartbeat of a broker that has all metadata."""
    beat = BrokerHeartbeatRequestData(broker_id, broker_epoch, broker_epoch + 1_000_000)
    return ask_node(node, BROKER_HEARTBEAT, 1, beat, BrokerHeartbeatResponseData)
