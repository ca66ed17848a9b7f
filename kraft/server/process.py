"""Run a quorum node as a process: assemble it from a configuration, start it, stop it.

Responsible for the order of start and stop, and for signals. Only this module assembles a node:
directories -> store -> state machine -> writer, transport, driver.

    start   identity (meta.properties), store (recovery), writer, transport (opens the port),
            driver (the first step)
    stop    driver (a leader resigns and sends EndQuorumEpoch), transport, writer, store
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import random
import secrets
import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from kraft.controller.features import LocalFeatures
from kraft.errors import NONE, KraftError, NotControllerError
from kraft.image.publishing import Image, ImageDelta
from kraft.image.snapshot_generation import SnapshotPolicy
from kraft.network.admission import Standing, standing_of
from kraft.network.handler import Handler
from kraft.network.traffic import Traffic
from kraft.network.transport import Transport, TransportConfig
from kraft.protocol.api_versions import NodeFeatures
from kraft.protocol.describe_cluster import DESCRIBE_CLUSTER, ClusterDescription
from kraft.protocol.headers import Api
from kraft.raft.interface import Event, RoleChange
from kraft.raft.node import Node
from kraft.raft.rpc import OffsetAndEpoch, Request, Response
from kraft.raft.voters import Endpoint, KRaftVersionRange
from kraft.records.versions import SUPPORTED_FEATURES
from kraft.security.authorizer import Authorizer, RequestContext
from kraft.security.controller_apis import check_cluster_operation
from kraft.security.hosts import java_host
from kraft.security.protocols import PeerIdentity
from kraft.security.sasl.credentials import PublishedCredentials
from kraft.server.apis.api import handler_of
from kraft.server.apis.controller_apis import controller_handlers
from kraft.server.client_quotas import ClientQuotaState
from kraft.server.cluster_description import describe_cluster_api, describe_controllers
from kraft.server.config.loading import ServerConfig
from kraft.server.controller import ControllerRunner, load_bootstrap
from kraft.server.descriptors import (
    bounded_limits,
    most_connections,
    raise_soft_limit,
)
from kraft.server.disk.snapshots import StoredSnapshot
from kraft.server.disk.writer import WriterThread
from kraft.server.driver import Driver, now_ms
from kraft.server.dynamic_config import DynamicConfig
from kraft.server.logs import configure_logging
from kraft.server.node_security import NodeSecurity
from kraft.server.observation.observed_node import ObservedNode, ObservedPart, no_registration
from kraft.server.opening import StoreOpening, check_served
from kraft.server.plugins import load_policies, load_quota_callback
from kraft.server.registration import ControllerRegistrar, Leader, registration_request
from kraft.server.snapshot_upkeep import SnapshotUpkeep
from kraft.server.storage.meta_properties import NodeIdentity

if TYPE_CHECKING:
    from kraft.server.observation.http_server import HttpServer

logger = logging.getLogger(__name__)
#: For changes of role, epoch and leader: the raft layer itself is pure and does not log.
raft_logger = logging.getLogger("kraft.raft")

#: Interval of cleaning by retention (Kafka's metadata log cleaner).
CLEAN_INTERVAL_S = 60.0
#: A collection of the youngest generation visits 10,000 objects, one of the next 50,000: a few
#: milliseconds.
GC_THRESHOLDS = (10_000, 5, 1_000_000_000)


def end_process(what: str, error: BaseException) -> None:
    """Log the error and exit at once: no code may run on a state or disk that is in doubt."""
    logger.critical("%s, this node stops: %s", what, error, exc_info=error)
    logging.shutdown()
    os._exit(1)


class _ListenerOpener:
    """A publisher after the authorizer: opens the waiting listeners once the ACLs are loaded.

    The authorizer loads many ACLs after the image; images follow every few hundred milliseconds.
    """

    name = "ListenerOpener"

    def __init__(self, authorizer: Authorizer, open_waiting: Callable[[], None]) -> None:
        self._authorizer = authorizer
        self._open_waiting = open_waiting

    def on_metadata_update(self, delta: ImageDelta, image: Image) -> None:
        if self._authorizer.is_ready:
            self._open_waiting()


class QuorumNode:
    """One node of the quorum; call `start` and `stop` on its event loop.

    A node without the role of a controller observes: it replicates and applies the metadata log,
    and has no listener. ``kraft.broker.node`` adds the broker. ``on_committed`` and ``on_role`` are
    callbacks of the driver. Without ``has_controller`` the node replicates a log whose records it
    does not apply. ``max_transaction_ms`` limits a metadata transaction, see
    `ServerConfig.controller`. ``opening`` is the store where it is being opened already.
    """

    def __init__(
        self,
        config: ServerConfig,
        *,
        on_committed: Callable[[int], None] = lambda high_watermark: None,
        on_role: Callable[[RoleChange], None] = lambda change: None,
        has_controller: bool = True,
        max_transaction_ms: int | None = None,
        opening: StoreOpening | None = None,
    ) -> None:
        check_served(config)
        self._policies = load_policies(config.given)
        self._quota_callback = load_quota_callback(config.given)
        self.config = config
        settings = config.settings
        opening = opening or StoreOpening(config, has_controller=has_controller)
        self.identity: NodeIdentity = opening.identity
        self.store, cluster, unread = opening.result()
        self.writer = WriterThread(
            self.store, self._deliver, on_failure=partial(end_process, "a write failed")
        )
        self.controller = (
            ControllerRunner(
                self.store,
                config.controller(max_transaction_ms),
                SnapshotPolicy(
                    now_ms(),
                    max_record_bytes=settings.metadata_log_max_record_bytes_between_snapshots,
                    max_interval_ms=settings.metadata_log_max_snapshot_interval_ms,
                ),
                cluster=cluster,
                bootstrap=load_bootstrap(config.metadata_log_dir),
                on_failure=partial(end_process, "the controller cannot continue"),
            )
            if has_controller
            else None
        )
        credentials = PublishedCredentials(
            secret=secrets.token_bytes(32), token_key=config.tokens().secret_key
        )
        self.security = NodeSecurity(config, credentials)
        if self.controller is not None:
            self.controller.publishing.images.register(credentials)
        authorizer = config.authorizer()
        #: The decisions about requests; None: all are allowed.
        self.authorizer: Authorizer | None = None
        #: The first known high watermark since the start; -1 before.
        self._first_high_watermark = -1
        if authorizer is not None and self.controller is not None:
            self.authorizer = Authorizer(authorizer, is_current=self._is_current)
            self.controller.publishing.images.register(self.authorizer)
            self.controller.publishing.background.append(self.authorizer)
            self.controller.publishing.images.register(
                _ListenerOpener(self.authorizer, self._open_waiting)
            )
        self.quotas: ClientQuotaState | None = None
        if self.controller is not None:
            self.quotas = ClientQuotaState(config.quotas(), self._quota_callback)
            self.controller.publishing.images.register(self.quotas)
        most = most_connections(has_http=config.http_listener is not None)
        self.traffic = Traffic()
        self.transport = Transport(
            TransportConfig(
                node_id=config.node_id,
                listeners=tuple(
                    Endpoint(listener.name, listener.host, listener.port)
                    for listener in config.controller_listeners
                ),
                request_timeout_ms=settings.controller_quorum_request_timeout_ms,
                limits=bounded_limits(config.limits(), most),
                security=self.security.listeners,
                client_listener=config.controller_listener_names[0],
                waiting=config.waiting_listeners if self.authorizer is not None else frozenset(),
            ),
            self._deliver,
            self.store.read,
            self.features,
            self._handlers(),
            self._standing_of,
            self._denial_of,
            self.traffic,
        )
        if self.controller is not None:
            images, listener = self.controller.publishing.images, self.transport.listener
            images.register(listener.rates)
            images.register(
                DynamicConfig(
                    config, lambda limits: listener.set_limits(bounded_limits(limits, most))
                )
            )
        self._on_committed = on_committed
        self._on_role = on_role
        self.driver: Driver | None = None
        self._registration: ControllerRegistrar | None = None
        self._cleaner: asyncio.TimerHandle | None = None
        self._http: HttpServer | None = None
        #: What runs beside this node in its process; set before `start`.
        self.observed_parts: list[ObservedPart] = []
        self._upkeep = SnapshotUpkeep(
            self.store,
            unread=unread,
            table=None if cluster is None else cluster.table,
            resolve=self._resolve_snapshot,
            on_failure=partial(end_process, "the snapshot of this node's start is damaged"),
        )

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The bound listeners, once started."""
        return self.transport.endpoints

    async def start(self) -> None:
        """Open the port and join the quorum. Raises OSError where the address is not available."""
        await self.transport.start()
        ports = {endpoint.name: endpoint.port for endpoint in self.transport.endpoints}
        raft = self.config.raft(
            self.identity.directory_id, self.identity.cluster_id, bound_ports=ports
        )
        node = Node(raft, self.store.view, self.store.election, random.random, now_ms())
        self.writer.start()
        self.driver = Driver(
            node,
            self.store,
            self.writer,
            self.transport.send,
            on_committed=self._committed,
            on_role=self._role_changed,
            on_control_batch=self._control_batch_appended,
            on_snapshot=self._snapshot_installed,
            on_failure=partial(end_process, "a step of the raft node failed"),
        )
        if self.controller is not None:
            self.controller.begin(self.driver)
        self.driver.start()
        self.security.start()
        if self.controller is not None and self.config.is_controller:
            request = registration_request(self.config, node.config.endpoints)
            self._registration = ControllerRegistrar(
                request, self.controller, self.transport, self._leader
            )
            self._registration.start()
        self._clean_later()
        self._upkeep.begin()
        await self._serve_observation()

    async def stop(self, timeout_ms: int = 5000) -> None:
        """Leave the quorum and close everything; acknowledged records are on disk in any case."""
        if self._cleaner is not None:
            self._cleaner.cancel()
        self._upkeep.close()
        self.security.close()
        if self._http is not None:
            await self._http.close()
        if self._registration is not None:
            self._registration.close()
        if self.controller is not None:
            self.controller.close()
        if self.driver is not None:
            await self.driver.shut_down(timeout_ms)
        await self.transport.close()
        if self.driver is not None:
            self.driver.close()
            await self.writer.close()
            # The loop still runs for a moment: a late event would write to a closed log.
            self.driver = None
        self.store.close()

    def _deliver(self, event: Event) -> None:
        # A request may arrive before the first step, or an event after the last. It is dropped.
        if self.driver is not None:
            self.driver.deliver(event)

    async def _ask(self, request: Request) -> Response:
        if self.driver is None:
            raise NotControllerError("the node is starting")
        return await self.driver.ask(request)

    def _role_changed(self, change: RoleChange) -> None:
        leader = f"leader {change.leader_id}" if change.leader_id >= 0 else "no leader"
        active = ", active" if change.is_active else ""
        raft_logger.info(
            *("%s in epoch %d, %s%s: %s", change.role.name, change.epoch),
            *(leader, active, change.reason),
        )
        self._on_role(change)
        if self.controller is not None:
            self.controller.role_changed(change)
        if self._registration is not None:
            self._registration.leader_changed()

    def _committed(self, high_watermark: int) -> None:
        self._on_committed(high_watermark)
        if self.controller is not None:
            self.controller.committed(high_watermark)

    def _control_batch_appended(self, base_offset: int, batch: memoryview) -> None:
        if self.controller is not None:
            self.controller.control_batch_appended(base_offset, batch)

    def _snapshot_installed(self, id: OffsetAndEpoch) -> None:
        if self.controller is not None:
            self.controller.snapshot_installed(id)

    def _handlers(self) -> dict[int, Handler]:
        if not self.config.is_controller:
            return {}
        describe_cluster = describe_cluster_api(self._describe)
        handlers = {
            DESCRIBE_CLUSTER.key: handler_of(
                describe_cluster, self.authorizer, self.quotas, self.traffic.errors
            )
        }
        if self.controller is not None:
            voter_ids = tuple(voter.id for voter in self.config.voters or ())
            local = LocalFeatures(self.config.node_id, voter_ids)
            handlers |= controller_handlers(
                self.controller,
                self._ask,
                cluster_id=self.identity.cluster_id,
                listener=self.config.controller_listeners[0].name,
                local=local,
                tokens=self.config.tokens(),
                authorizer=self.authorizer,
                quotas=self.quotas,
                policies=self._policies,
                read_principal=self.security.envelope_principal,
                errors=self.traffic.errors,
            )
        return handlers

    async def _serve_observation(self) -> None:
        """Serve metrics and health checks where kraft.http.listener is set."""
        if self.config.http_listener is None or self.controller is None or self.driver is None:
            return
        # Imported here: a node without this listener does not need prometheus_client.
        from kraft.server.observation.routes import serve_observation

        node = ObservedNode(
            self.config,
            self.identity.cluster_id,
            self.driver,
            self.writer,
            self.controller,
            self.transport.listener,
            self._registration.why_unregistered if self._registration else no_registration,
            self.observed_parts,
        )
        self.controller.publishing.images.register(node.elections)
        self._http = await serve_observation(node, *self.config.http_listener)

    def _is_current(self, offset: int) -> bool:
        """Return whether an image at this offset has the records that were committed at the start.

        Before the high watermark is known, a node may have an image of an old snapshot.
        """
        if self._first_high_watermark < 0 and self.driver is not None:
            self._first_high_watermark = self.driver.node.log.high_watermark
        return 0 <= self._first_high_watermark <= offset

    def _open_waiting(self) -> None:
        """Open the listeners that have waited for the ACLs."""
        self.transport.open_waiting()

    def _denial_of(self, api: Api, peer: PeerIdentity) -> int:
        """Return the error code for a peer that may not send requests of this API to the raft node.

        0 if it may. Before the ACLs are loaded, the code is UNKNOWN_SERVER_ERROR, as of other APIs:
        a raft node of Kafka's fails for good when it gets CLUSTER_AUTHORIZATION_FAILED.
        """
        if self.authorizer is None:
            return NONE
        who = RequestContext(peer.principal, java_host(peer.address), api.name)
        try:
            check_cluster_operation(self.authorizer, who)
        except KraftError as error:
            return error.kafka_code
        return NONE

    def features(self) -> NodeFeatures:
        """Return the supported levels, and those of the last published image."""
        supported = {
            name: KRaftVersionRange(*levels) for name, levels in SUPPORTED_FEATURES.items()
        }
        finalized = {}
        if self.driver is not None and self.driver.node.log.kraft_version:
            finalized["kraft.version"] = self.driver.node.log.kraft_version
        image, epoch = self._image, -1
        if image is not None:
            finalized |= {"metadata.version": image.state.metadata_version, **image.state.features}
            epoch = image.offset - 1
        cluster_id, node_id = self.identity.cluster_id, self.identity.node_id
        return NodeFeatures(supported, finalized, epoch, cluster_id, node_id)

    @property
    def _image(self) -> Image | None:
        """The last published image."""
        return None if self.controller is None else self.controller.publishing.images.image

    def _standing_of(self, request: Request) -> tuple[Standing, int]:
        if self.driver is None:
            return Standing.CLIENT, -1
        return standing_of(request, self.identity.cluster_id, self.driver.node.voters)

    def _describe(self, listener: str) -> ClusterDescription:
        node = None if self.driver is None else self.driver.node
        return describe_controllers(self.identity.cluster_id, listener, node, self._image)

    def _leader(self) -> Leader:
        if self.driver is None or self.driver.node.leader_id < 0:
            return None
        node = self.driver.node
        return node.leader_id, node.endpoint_of(node.leader_id)

    def leader_endpoint(self) -> Endpoint | None:
        """Return where the present leader listens, None if it is not known.

        It may be this node: its broker connects to it as to any other.
        """
        if self.driver is None or self.driver.node.leader_id < 0:
            return None
        node = self.driver.node
        if node.leader_id != self.config.node_id:
            return node.endpoint_of(node.leader_id)
        return node.config.endpoints[0]

    def _resolve_snapshot(self, id: OffsetAndEpoch, snapshot: StoredSnapshot | None) -> None:
        if self.driver is not None:
            self.driver.resolve_snapshot(id, snapshot)

    def _clean_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._cleaner = loop.call_later(CLEAN_INTERVAL_S, self._clean)

    def _clean(self) -> None:
        assert self.driver is not None
        settings = self.config.settings
        self.driver.clean(settings.metadata_max_retention_bytes, settings.metadata_max_retention_ms)
        self._clean_later()


class ServedNode(Protocol):
    """A node that runs as a process: `QuorumNode`, or a broker's."""

    @property
    def identity(self) -> NodeIdentity: ...
    @property
    def endpoints(self) -> tuple[Endpoint, ...]: ...
    async def start(self) -> None: ...
    async def stop(self) -> None: ...


async def serve(node: ServedNode, *, until_stdin_closes: bool = False) -> None:
    """Run a node until SIGTERM or SIGINT; a second signal ends the process at once."""
    await node.start()
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    if until_stdin_closes:
        loop.add_reader(sys.stdin.fileno(), _read_stdin, loop, ended)
    listeners = ", ".join(map(repr, node.endpoints))
    identity = node.identity
    logger.info("node %d of cluster %s at %s", identity.node_id, identity.cluster_id, listeners)
    await ended.wait()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(number)
    logger.info("stopping")
    await node.stop()
    logger.info("stopped")


def _read_stdin(loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 4096):
        loop.remove_reader(sys.stdin.fileno())
        ended.set()


def run(
    config: ServerConfig,
    *,
    until_stdin_closes: bool = False,
    make_node: Callable[[ServerConfig], ServedNode] = QuorumNode,
) -> None:
    """Run `serve` on uvloop where installed; log to stderr unless the caller configured the log.

    The garbage collector skips objects that exist at the start, and never collects the oldest
    generation by itself: a pass over a large cluster's state would block the loop for a tenth of a
    second, and this code creates almost no cycles.
    """
    configure_logging(config.node_id, as_json=False)
    raise_soft_limit()
    node = make_node(config)
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()
    with contextlib.suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=loop_factory()) as it:
        it.run(serve(node, until_stdin_closes=until_stdin_closes))


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's factory of event loops where installed, else None for asyncio's loop."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
