"""Run a broker as a process: assemble it from a configuration, start it, stop it.

A broker's node is a node of the quorum (``kraft.server.process``), which replicates and applies the
metadata log, with the parts of the broker beside it. In combined mode the same process is a
controller.

    start   listeners (bound), the quorum's node, log directories, registration;
            once the metadata contain the registration: replicas, coordinators, then clients
    stop    the controller moves the leaders away; clients, replicas, logs (clean), the node

Only this module assembles a broker. Source: Kafka's ``BrokerServer`` (4.3.1).
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import time
from collections.abc import Iterable
from functools import partial

from kraft._core.log.segment import SegmentPool
from kraft.broker.apis.broker_apis import broker_handlers
from kraft.broker.apis.forwarding import AdminForwarding, advertised_apis
from kraft.broker.apis.topic_creation import NewTopicSettings, TopicCreation
from kraft.broker.changed_settings import ChangedSettings
from kraft.broker.config import ALL_DIRECTORIES, BrokerSettings
from kraft.broker.controller_channel import ControllerChannel
from kraft.broker.group_driver import GroupDriver
from kraft.broker.group_settings import GroupSettings
from kraft.broker.groups import OFFSETS_TOPIC
from kraft.broker.lacking_features import LackingFeatures
from kraft.broker.lifecycle import BrokerLifecycle, BrokerState
from kraft.broker.log.log_directory import LogDirectory
from kraft.broker.log.log_manager import LogManager
from kraft.broker.log.log_store import PartitionLogStore
from kraft.broker.log_upkeep import LogUpkeep
from kraft.broker.metadata_cache import MetadataCache, MetadataCacheSettings
from kraft.broker.observed_broker import ObservedBroker
from kraft.broker.producer_ids import AllocatedProducerIds
from kraft.broker.replica_driver import ReplicaDriver
from kraft.broker.replication.leader_fetcher import FetcherSettings
from kraft.broker.replication.quotas import ReplicationQuota, ReplicationQuotas
from kraft.broker.replication.replica_manager import ReplicaManager
from kraft.broker.replication.settings import ReplicationSettings
from kraft.broker.services import BrokerServices
from kraft.broker.topic_settings import EffectiveTopicSettings
from kraft.errors import StorageError
from kraft.image.nodes import SECURITY_PROTOCOLS
from kraft.image.publishing import Image, ImageDelta, ImagePublishing, Phase
from kraft.metadata.identifiers import random_uuid
from kraft.network.authentication import ListenerSecurity
from kraft.network.channel import Channel
from kraft.network.data_loop import data_listener_type
from kraft.network.listener import Listener
from kraft.network.server_connection import accept_connection
from kraft.network.throttled_log import DEAD_NODE_INTERVAL_S, ThrottledLog
from kraft.protocol.broker_registration import BrokerRegistrationRequestData
from kraft.protocol.common import AdvertisedListener, SupportedFeatureRange
from kraft.raft.voters import Endpoint
from kraft.records import Uuid
from kraft.records.versions import SUPPORTED_FEATURES
from kraft.server.config.loading import ServerConfig
from kraft.server.controller import ControllerRunner
from kraft.server.descriptors import bounded_limits, most_connections
from kraft.server.disk.directory_lock import DirectoryLock
from kraft.server.driver import now_ms
from kraft.server.dynamic_config import DynamicConfig
from kraft.server.opening import StoreOpening
from kraft.server.process import QuorumNode, end_process
from kraft.server.storage.meta_properties import NodeIdentity

logger = logging.getLogger(__name__)

#: How long the controller may take to move the leaders away (Kafka waits as long).
_CONTROLLED_SHUTDOWN_MS = 300_000.0
#: How long a stopping broker waits for a leader of the quorum, and how often it looks.
_LEADERLESS_MS = 4000.0
_LOOK_S = 0.05
#: The part of the free descriptors for connections; open segments have the rest, one each.
_CONNECTION_PART = 3
#: A closed segment's indexes stay mapped while it is in the pool; Linux allows 65,530 mappings.
_MOST_SEGMENTS = 20_000
#: The class of replica.selector.class that sends consumers to a replica of their rack (KIP-392).
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class BrokerNode:
    """A broker, and the node of the quorum beside it; call `start` and `stop` on its event loop.

    The arguments are those of `QuorumNode`.
    """

    def __init__(
        self,
        config: ServerConfig,
        *,
        max_transaction_ms: int | None = None,
        opening: StoreOpening | None = None,
    ) -> None:
        self.config = config
        self.settings = BrokerSettings.of(config)
        self.quorum = QuorumNode(config, max_transaction_ms=max_transaction_ms, opening=opening)
        controller = self.quorum.controller
        assert controller is not None
        self._runner: ControllerRunner = controller
        self._locks: list[DirectoryLock] = []
        #: The parts of the broker, from `start` to `stop`.
        self.broker: RunningBroker | None = None
        self._endpoints: tuple[Endpoint, ...] = ()
        self._entering: asyncio.Task[None] | None = None
        self.quorum.observed_parts.append(ObservedBroker(self))

    @property
    def images(self) -> ImagePublishing:
        """The published metadata of this node."""
        return self._runner.publishing.images

    @property
    def ignores_static_voters(self) -> bool:
        """Whether the log names other voters than controller.quorum.voters."""
        driver = self.quorum.driver
        return bool(self.config.voters) and driver is not None and driver.node.log.kraft_version > 0

    @property
    def identity(self) -> NodeIdentity:
        return self.quorum.identity

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The bound listeners, once started."""
        return (*self._endpoints, *self.quorum.endpoints)

    @property
    def state(self) -> BrokerState:
        lifecycle = None if self.broker is None else self.broker.lifecycle
        return BrokerState.NOT_RUNNING if lifecycle is None else lifecycle.state

    async def start(self) -> None:
        """Open the ports, join the quorum, and begin to enter the cluster.

        Raises OSError where a port is not available, StorageError where a directory is in use.
        """
        self._lock_directories()
        self.broker = broker = RunningBroker(self.config, self.settings, self.quorum, self._runner)
        self._endpoints = await broker.bind()
        await self.quorum.start()
        self._entering = asyncio.get_running_loop().create_task(self._enter(broker))

    async def _enter(self, broker: RunningBroker) -> None:
        """Register, wait for the metadata, load the partitions, and serve clients.

        A broker that cannot register in time ends its process, as in Kafka.
        """
        try:
            await broker.enter(self._endpoints)
        except Exception as error:
            end_process("the broker cannot enter the cluster", error)

    def _lock_directories(self) -> None:
        metadata_log_dir = self.config.metadata_log_dir
        try:
            for path in self.config.log_dirs:
                if path != metadata_log_dir and path in self.identity.directory_ids:
                    self._locks.append(DirectoryLock(path))
        except BaseException:
            self._unlock_directories()
            raise

    def _unlock_directories(self) -> None:
        while self._locks:
            self._locks.pop().release()

    async def stop(self, timeout_ms: int = 5000) -> None:
        """Leave the cluster, close the logs, then stop the node of the quorum."""
        if self._entering is not None:
            self._entering.cancel()
        broker, self.broker = self.broker, None
        if broker is not None:
            await broker.leave()
        await self.quorum.stop(timeout_ms)
        self._unlock_directories()


class RunningBroker:
    """The parts of one broker. Create it on the event loop."""

    def __init__(
        self,
        config: ServerConfig,
        settings: BrokerSettings,
        quorum: QuorumNode,
        runner: ControllerRunner,
    ) -> None:
        self._config = config
        self._settings = settings
        self._quorum = quorum
        self._runner = runner
        self._loop = asyncio.get_running_loop()
        self._warnings = ThrottledLog(logger, time.monotonic)
        #: Those of connections to other nodes: each attempt to reach a dead node fails.
        self._connect_warnings = ThrottledLog(logger, time.monotonic, DEAD_NODE_INTERVAL_S)
        self._channels: list[ControllerChannel] = []
        self.cache = MetadataCache(
            quorum.identity.cluster_id,
            MetadataCacheSettings(
                settings.auto_create_topics_enable, settings.max_request_partition_size_limit
            ),
        )
        self.topics = EffectiveTopicSettings(config)
        free = most_connections(has_http=config.http_listener is not None)
        self._connections = free // _CONNECTION_PART
        self.logs = LogManager(self._directories(free), self.topics.log_settings)
        self.topics.attach(self.logs)
        store = PartitionLogStore(self.logs)
        manager = ReplicaManager(
            config.node_id,
            store,
            self.topics,
            partial(random.randint, 1, 2**31 - 1),
            _replication_settings(settings),
        )
        manager.context.quotas = _quotas(settings)
        self.replicas = ReplicaDriver(
            manager,
            store=store,
            channels=self._channel_to,
            isr_channel=self._controller_channel("alter-partition"),
            directory_channel=self._controller_channel("directory-assignments"),
            broker_id=config.node_id,
            request_timeout_ms=settings.replica_socket_timeout_ms,
        )
        groups = GroupSettings.of(config)
        self.groups = GroupDriver(
            self.replicas, groups, lambda: self.creation.create((OFFSETS_TOPIC,))
        )
        #: None before the registration.
        self.lifecycle: BrokerLifecycle | None = None
        self._heartbeats = self._controller_channel("heartbeat")
        self.producer_ids = AllocatedProducerIds(
            self._controller_channel("producer-ids"), config.node_id, self._epoch
        )
        forwarding_channel = self._controller_channel("forwarding")
        forwarding = AdminForwarding(forwarding_channel, quorum.security.encode_envelope_principal)
        self.creation = TopicCreation(forwarding, lambda: self._new_topics(groups))
        self.changed = ChangedSettings(
            config, settings, manager.context.quotas, self._settings_changed
        )
        self.services = BrokerServices(
            config,
            settings,
            self.topics,
            self.cache,
            self.replicas,
            self.logs,
            self.groups,
            self._image,
        )
        self.upkeep = LogUpkeep(
            self.logs,
            settings,
            self.replicas.note_high_watermarks,
            self.replicas.start_offsets_changed,
        )
        self.listener = Listener(
            accept_connection,
            bounded_limits(config.limits(), self._connections),
            quorum.features,
            broker_handlers(
                self.services,
                forwarding,
                self.creation,
                self.producer_ids,
                authorizer=quorum.authorizer,
                quotas=quorum.quotas,
                errors=quorum.traffic.errors,
            ),
            self._warnings,
            quorum.security.listeners,
            quorum.traffic,
            data_listener=data_listener_type(),
            advertised=lambda served: advertised_apis(served, forwarding_channel.versions),
        )

    # -- parts

    def _directories(self, free: int) -> list[LogDirectory]:
        pool = SegmentPool(max(16, min(free - free // _CONNECTION_PART, _MOST_SEGMENTS)))
        identity = self._quorum.identity
        return [
            LogDirectory(
                path,
                id=bytes(identity.directory_ids[path]),
                now_ms=lambda: int(now_ms()),
                pool=pool,
                producer_expiration_ms=self._settings.producer_id_expiration_ms,
                on_failure=self._directory_failed,
            )
            for path in self._config.log_dirs
            if path in identity.directory_ids
        ]

    def _controller_channel(self, use: str) -> ControllerChannel:
        config = self._config
        channel = ControllerChannel(
            self._quorum.leader_endpoint,
            f"broker-{config.node_id}-{use}",
            self._security(config.controller_listener_names[0]),
            self._connect_warnings,
            attempt_timeout_ms=self._settings.request_timeout_ms,
        )
        self._channels.append(channel)
        return channel

    def _security(self, listener: str) -> ListenerSecurity:
        return self._quorum.security.listeners.get(listener) or ListenerSecurity()

    def _channel_to(self, broker_id: int) -> Channel | None:
        """Return a new channel to another broker, None if its address is not known."""
        name = self._config.inter_broker_listener
        image = self._publishing.image
        broker = None if image is None else image.state.brokers.get(broker_id)
        endpoint = None if broker is None else broker.endpoints.get(name)
        if endpoint is None:
            return None
        return Channel(
            Endpoint(name, endpoint.host, endpoint.port),
            f"broker-{self._config.node_id}-fetcher",
            self._security(name),
            self._connect_warnings,
        )

    @property
    def _publishing(self) -> ImagePublishing:
        return self._runner.publishing.images

    def _image(self) -> Image:
        image = self._publishing.image
        assert image is not None, "clients are served once the metadata are published"
        return image

    def _epoch(self) -> int:
        return -1 if self.lifecycle is None else self.lifecycle.epoch

    def _new_topics(self, groups: GroupSettings) -> NewTopicSettings:
        """Return the layout of topics that are created by their use."""
        settings, offsets = self._config.settings, groups.offsets_topic
        return NewTopicSettings(
            settings.num_partitions,
            settings.default_replication_factor,
            self._settings.request_timeout_ms,
            {offsets.name: offsets},
        )

    # -- start

    async def bind(self) -> tuple[Endpoint, ...]:
        """Bind the listeners; clients wait until `enter`. Raises OSError."""
        listeners = self._config.broker_listeners
        names = {listener.name for listener in listeners}
        endpoints = tuple(Endpoint(each.name, each.host, each.port) for each in listeners)
        return await self.listener.start(endpoints, names)

    async def enter(self, bound: Iterable[Endpoint]) -> None:
        """Register, wait for the metadata, load the partitions, and serve clients.

        Raises RequestTimedOutError where the broker cannot register in time, StorageError where no
        log directory can be used.
        """
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self.logs.load)
        self.lifecycle = lifecycle = BrokerLifecycle(
            self._registration(bound),
            self._heartbeats,
            heartbeat_interval_ms=self._settings.broker_heartbeat_interval_ms,
            registration_timeout_ms=self._settings.initial_broker_registration_timeout_ms,
            applied_offset=lambda: self.replicas.applied_offset,
        )
        self.replicas.on_applied = lifecycle.note_applied
        self._cordon()
        images = self._publishing
        images.register(self.cache, Phase.METADATA_CACHE)
        # New logs are created with the settings of their topics, in no cordoned directory.
        images.register(self.changed, Phase.REPLICA_MANAGER)
        images.register(self.topics, Phase.REPLICA_MANAGER)
        images.register(self.replicas, Phase.REPLICA_MANAGER)
        images.register(
            DynamicConfig(
                self._config,
                lambda limits: self.listener.set_limits(bounded_limits(limits, self._connections)),
                "BrokerLimits",
            )
        )
        self.listener.rates.name = "BrokerConnectionRates"
        images.register(self.listener.rates)
        images.register(LackingFeatures())
        images.register(lifecycle, Phase.HEARTBEATS)
        epoch = await lifecycle.register()
        lifecycle.start()
        await lifecycle.caught_up()
        # Before, the metadata may show this broker as the leader of an earlier life.
        self.replicas.begin(epoch)
        images.register(self.groups, Phase.COORDINATORS)
        loaded = _Loaded()
        images.register(loaded, Phase.HEARTBEATS)
        self._runner.publish_soon()
        await loaded.done.wait()
        await self.replicas.settled()
        self.upkeep.start()
        self.listener.open_waiting()
        lifecycle.loaded()

    def _registration(self, bound: Iterable[Endpoint]) -> BrokerRegistrationRequestData:
        config, identity = self._config, self._quorum.identity
        ports = {endpoint.name: endpoint.port for endpoint in bound}
        online = {directory.path for directory in self.logs.online}
        return BrokerRegistrationRequestData(
            config.node_id,
            identity.cluster_id,
            random_uuid(),
            [
                AdvertisedListener(
                    each.name,
                    each.host or socket.getfqdn(),
                    each.port or ports[each.name],
                    SECURITY_PROTOCOLS.index(each.security_protocol),
                )
                for each in config.advertised_broker_listeners
            ],
            [SupportedFeatureRange(name, *levels) for name, levels in SUPPORTED_FEATURES.items()],
            self._settings.broker_rack,
            log_dirs=[id for path, id in identity.directory_ids.items() if path in online],
            previous_broker_epoch=self.logs.clean_broker_epoch,
        )

    # -- upkeep

    def _settings_changed(self, settings: BrokerSettings) -> None:
        """Apply dynamic settings."""
        for directory in self.logs.directories:
            directory.producer_expiration_ms = settings.producer_id_expiration_ms
        self.upkeep.set_settings(settings)
        self._cordon()

    def _cordon(self) -> None:
        """Cordon the directories of cordoned.log.dirs, and tell the controller.

        Only from metadata.version 4.3-IV0 on: controllers before do not know them.
        """
        names = self.changed.settings.cordoned_log_dirs
        for one in self.logs.directories:
            one.is_cordoned = one.path in names or ALL_DIRECTORIES in names
        lifecycle = self.lifecycle
        if lifecycle is None:
            return
        cordoned = [Uuid(one.id) for one in self.logs.online if one.is_cordoned]
        lifecycle.set_cordoned(cordoned if self.changed.knows_cordoned else None)

    def _directory_failed(self, directory: LogDirectory) -> None:
        """Take a failed directory out of service; without one, or without the metadata, end.

        May be called by any thread.
        """
        id = self._quorum.identity.directory_ids[directory.path]
        failure = directory.failure or StorageError(f"{directory.path} failed")
        if directory.path == self._config.metadata_log_dir:
            end_process("the directory of the metadata failed", failure)
        elif not self.logs.online:
            end_process("no log directory is left", failure)
        self.replicas.directory_failed(bytes(id))
        self._loop.call_soon_threadsafe(self._tell_failure, id)

    def _tell_failure(self, directory: Uuid) -> None:
        if self.lifecycle is not None:
            self.lifecycle.directory_failed(directory)

    # -- stop

    async def leave(self) -> None:
        """Let the controller move the leaders away, and close everything; the logs are clean."""
        lifecycle = self.lifecycle
        if lifecycle is not None:
            self.replicas.begin_controlled_shutdown()
            await self._move_leaders(lifecycle)
            lifecycle.close()
        self.groups.close()
        self.creation.close()
        self.producer_ids.close()
        self.replicas.close()
        await self.replicas.settled()
        await self.listener.close()
        await self.upkeep.close()
        self.replicas.note_high_watermarks()
        for channel in self._channels:
            channel.close()
        loop = asyncio.get_running_loop()
        epoch = -1 if lifecycle is None else lifecycle.epoch
        await loop.run_in_executor(None, self.logs.close, epoch)

    async def _move_leaders(self, lifecycle: BrokerLifecycle) -> None:
        """Wait until the controller has moved the leaders away.

        Give up after five minutes, as Kafka, and soon if the quorum has no leader: the last nodes
        of a combined cluster have none.
        """
        moving = asyncio.ensure_future(lifecycle.leave(_CONTROLLED_SHUTDOWN_MS))
        led_ms = now_ms()
        while not moving.done() and now_ms() < led_ms + _LEADERLESS_MS:
            await asyncio.wait((moving,), timeout=_LOOK_S)
            if self._quorum.leader_endpoint() is not None:
                led_ms = now_ms()
        if not moving.done():
            moving.cancel()
            logger.warning("stopping without a controlled shutdown: the quorum has no leader")
        elif moving.result():
            logger.info("the controller has moved the leaders of broker %d", self._config.node_id)


class _Loaded:
    """The last publisher: its first image has reached all parts of the broker."""

    name = "BrokerLoaded"

    def __init__(self) -> None:
        self.done = asyncio.Event()

    def on_metadata_update(self, delta: ImageDelta, image: Image) -> None:
        self.done.set()


def _quotas(settings: BrokerSettings) -> ReplicationQuotas:
    windows = settings.replication_quota_window_num, settings.replication_quota_window_size_seconds
    return ReplicationQuotas(
        ReplicationQuota(*windows),
        ReplicationQuota(*windows),
        ReplicationQuota(
            settings.alter_log_dirs_replication_quota_window_num,
            settings.alter_log_dirs_replication_quota_window_size_seconds,
        ),
    )


def _replication_settings(settings: BrokerSettings) -> ReplicationSettings:
    return ReplicationSettings(
        max_lag_ms=settings.replica_lag_time_max_ms,
        fetcher=FetcherSettings(
            max_wait_ms=settings.replica_fetch_wait_max_ms,
            min_bytes=settings.replica_fetch_min_bytes,
            partition_max_bytes=settings.replica_fetch_max_bytes,
            max_bytes=settings.replica_fetch_response_max_bytes,
            backoff_ms=settings.replica_fetch_backoff_ms,
        ),
        max_fetch_sessions=settings.max_incremental_fetch_session_cache_slots,
        is_rack_aware=settings.replica_selector_class == RACK_AWARE_SELECTOR,
    )
