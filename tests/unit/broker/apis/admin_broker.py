"""The admin APIs of a broker in front of a running quorum, for clients of any identity."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from kraft._core.codec.metadata_codec import Message
from kraft.broker.apis.config_changes import ConfigChangeRules, config_change_apis
from kraft.broker.apis.configs import config_apis
from kraft.broker.apis.descriptions import description_apis
from kraft.broker.apis.forwarding import AdminForwarding, forwarding_apis
from kraft.broker.apis.metadata import metadata_apis
from kraft.broker.apis.topic_creation import NewTopicSettings, TopicCreation
from kraft.broker.controller_channel import ControllerChannel
from kraft.broker.dynamic_settings import DynamicSettingsCheck
from kraft.broker.metadata_cache import MetadataCache
from kraft.controller.security.delegation_tokens import TokenSettings
from kraft.image.publishing import Image, ImageDelta, Phase
from kraft.network.authentication import ListenerSecurity
from kraft.network.throttled_log import ThrottledLog
from kraft.protocol.headers import Api, RequestHeader
from kraft.raft.voters import Endpoint
from kraft.security.authorizer import Authorizer
from kraft.security.controller_apis import BROKER_OPERATIONS
from kraft.security.principals import ANONYMOUS, KafkaPrincipal
from kraft.security.protocols import PeerIdentity, SecurityProtocol
from kraft.server.apis.api import handler_of
from kraft.server.client_quotas import ClientQuotaState
from kraft.server.config.settings import SETTINGS
from kraft.server.process import QuorumNode
from tests.harness.controller_nodes import Quorum, until

#: The id of the broker, and the name of its listener.
BROKER, LISTENER = 1, "PLAINTEXT"
LOG_DIRECTORIES = frozenset(("/data/a", "/data/b"))
CORRELATION = 4321
Answer = TypeVar("Answer", bound=Message)


class _Published:
    """The last publisher: all others have the image of `offset`."""

    name = "Published"

    def __init__(self) -> None:
        self.offset = -1

    def on_metadata_update(self, delta: ImageDelta, image: Image) -> None:
        self.offset = image.offset


def admin_quorum(home: Path, count: int = 1, settings: Mapping[str, str] | None = None) -> Quorum:
    """Return a quorum that publishes an image soon after a publisher registered."""
    return Quorum(home, count, settings={"metadata.max.idle.interval.ms": "20", **(settings or {})})


class AdminBroker:
    """A broker's admin APIs. Its metadata are those of one node of the quorum.

    Create it on the event loop. ``forwarding_ms`` is how long a request is forwarded.
    """

    def __init__(
        self,
        quorum: Quorum,
        node: QuorumNode,
        *,
        new_topics: NewTopicSettings | None = None,
        tokens: TokenSettings | None = None,
        static: Mapping[str, str] | None = None,
        quotas: ClientQuotaState | None = None,
        encode_principal: Callable[[str, KafkaPrincipal], bytes] | None = None,
        forwarding_ms: float = 20_000,
    ) -> None:
        runner = node.controller
        assert runner is not None
        self._runner = runner
        images = runner.publishing.images
        self.channel = ControllerChannel(
            lambda: active_endpoint(quorum),
            "broker-1",
            ListenerSecurity(),
            ThrottledLog(logging.getLogger(__name__), time.monotonic),
            attempt_timeout_ms=10_000,
        )
        self.forwarding = AdminForwarding(
            self.channel,
            encode_principal or node.security.encode_envelope_principal,
            timeout_ms=forwarding_ms,
        )
        settings = new_topics or NewTopicSettings()
        self.creation = TopicCreation(self.forwarding, lambda: settings)
        self.authorizer = None
        if (authorizer := node.config.authorizer()) is not None:
            self.authorizer = Authorizer(authorizer, is_current=lambda _: True)
            # The controller of the node has one of its own.
            self.authorizer.name = "BrokerAuthorizer"
            images.register(self.authorizer)
        if quotas is not None:
            quotas.name = "BrokerQuotas"
            images.register(quotas)
        cache = MetadataCache(node.identity.cluster_id)
        images.register(cache, Phase.METADATA_CACHE)
        self._published = _Published()
        images.register(self._published, Phase.METADATA_CACHE)
        given = dict(static or {})
        check = DynamicSettingsCheck(BROKER, given, SETTINGS, LOG_DIRECTORIES, node.config.limits)
        apis = (
            *metadata_apis(cache, self.creation),
            *forwarding_apis(self.forwarding),
            *config_apis(BROKER, given, self.image),
            *config_change_apis(ConfigChangeRules(BROKER, self.image, check), self.forwarding),
            *description_apis(self.image, tokens or TokenSettings()),
        )
        errors: Counter[tuple[str, int]] = Counter()
        self.handlers = {
            each.api.key: handler_of(each, self.authorizer, quotas, errors, BROKER_OPERATIONS)
            for each in apis
        }
        assert len(self.handlers) == len(apis)

    def image(self) -> Image:
        image = self._runner.publishing.images.image
        assert image is not None
        return image

    async def is_current(self) -> None:
        """Wait until the broker's metadata have all that is committed."""
        end = self._runner.controller.committed_offset
        await until(lambda: self._published.offset >= end)

    async def ask_bytes(
        self,
        api: Api,
        version: int,
        body: bytes,
        principal: KafkaPrincipal = ANONYMOUS,
        *,
        address: str = "127.0.0.1",
        protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT,
        client_id: str | None = "client",
    ) -> tuple[bytes, int]:
        """Return the body of the response, and for how long the connection is muted."""
        header = RequestHeader(api, version, CORRELATION, client_id)
        peer = PeerIdentity(address, principal, protocol, LISTENER)
        answer = await self.handlers[api.key].answer(header, memoryview(body), peer)
        return answer.body, answer.throttle_ms

    async def ask(
        self,
        api: Api,
        version: int,
        request: Message,
        answer: type[Answer],
        principal: KafkaPrincipal = ANONYMOUS,
        *,
        address: str = "127.0.0.1",
        protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT,
    ) -> Answer:
        """Send the bytes of a request; return the decoded response."""
        body, _ = await self.ask_bytes(
            *(api, version, request.encode(version), principal), address=address, protocol=protocol
        )
        return answer.decode(body, version)

    def close(self) -> None:
        self.creation.close()
        self.channel.close()


def active_endpoint(quorum: Quorum) -> Endpoint | None:
    """Return the listener of the leader that a running node knows; None if there is none."""
    for node in quorum.running.values():
        if node.driver is not None and node.driver.node.leader_id in quorum.running:
            return quorum.running[node.driver.node.leader_id].transport.endpoints[0]
    return None


async def started_broker(
    quorum: Quorum, *, static: Mapping[str, str] | None = None, forwarding_ms: float = 20_000
) -> AdminBroker:
    """Start the quorum and return a broker in front of its active controller."""
    await quorum.start()
    node = quorum.running[await quorum.active()]
    broker = AdminBroker(quorum, node, static=static, forwarding_ms=forwarding_ms)
    await broker.is_current()
    return broker
