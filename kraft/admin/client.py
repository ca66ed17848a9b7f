"""The admin client: `connect` for asyncio, `connect_blocking` for other programs.

The blocking client is the base. It is a `QuorumClient`, which finds the active controller and
follows it, with the admin functions of this package as its methods. The client for asyncio runs the
same functions in threads: a controller answers one request of a connection at a time anyway, and
Kafka's Admin has a thread of its own as well. Each request in progress has a blocking client of its
own, up to `MAX_CONCURRENT_CALLS`; a call that is cancelled closes its connection, so that its
thread ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from kraft.admin import acls, cluster, configs, partitions, quotas, scram, tokens, topics
from kraft.admin.calls import ControllerCalls
from kraft.admin.settings import AdminSettings, Properties, read_admin_settings
from kraft.network.quorum_client import QuorumClient

P = ParamSpec("P")
R = TypeVar("R")

#: Calls of one `Admin` that run at the same time; more wait.
MAX_CONCURRENT_CALLS = 8

_Function = Callable[Concatenate[ControllerCalls, P], R]


def _blocking(function: _Function[P, R]) -> Callable[Concatenate[BlockingAdmin, P], R]:
    """Return an admin function as a method of `BlockingAdmin`."""

    @wraps(function)
    def method(self: BlockingAdmin, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return function(self.calls, *args, **kwargs)

    return method


def _awaited(
    function: _Function[P, R],
) -> Callable[Concatenate[Admin, P], Coroutine[Any, Any, R]]:
    """Return an admin function as a coroutine method of `Admin`."""

    @wraps(function)
    async def method(self: Admin, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self.run(lambda calls: function(calls, *args, **kwargs))

    return method


class BlockingAdmin:
    """An admin client whose calls return when their response has arrived; for one thread.

    The methods are the functions of the modules of ``kraft.admin``, without their first argument.
    Every call raises QuorumUnreachableError where no controller answers, or none leads, within its
    time, and UnsupportedVersionError where the controllers lack the API.
    """

    def __init__(self, settings: AdminSettings) -> None:
        wait_ms = settings.leader_wait_ms
        self.calls = ControllerCalls(
            QuorumClient(
                settings.bootstrap_controllers,
                timeout_s=settings.default_api_timeout_ms / 1000,
                request_timeout_s=settings.request_timeout_ms / 1000,
                leader_wait_s=None if wait_ms is None else wait_ms / 1000,
                client_id=settings.client_id,
                security=settings.security,
            )
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        type: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self.calls.client.close()

    create_topics = _blocking(topics.create_topics)
    create_partitions = _blocking(topics.create_partitions)
    delete_topics = _blocking(topics.delete_topics)
    describe_configs = _blocking(configs.describe_configs)
    incremental_alter_configs = _blocking(configs.incremental_alter_configs)
    alter_configs = _blocking(configs.alter_configs)
    describe_acls = _blocking(acls.describe_acls)
    create_acls = _blocking(acls.create_acls)
    delete_acls = _blocking(acls.delete_acls)
    elect_leaders = _blocking(partitions.elect_leaders)
    alter_partition_reassignments = _blocking(partitions.alter_partition_reassignments)
    list_partition_reassignments = _blocking(partitions.list_partition_reassignments)
    describe_client_quotas = _blocking(quotas.describe_client_quotas)
    alter_client_quotas = _blocking(quotas.alter_client_quotas)
    describe_user_scram_credentials = _blocking(scram.describe_user_scram_credentials)
    alter_user_scram_credentials = _blocking(scram.alter_user_scram_credentials)
    create_delegation_token = _blocking(tokens.create_delegation_token)
    describe_delegation_token = _blocking(tokens.describe_delegation_token)
    renew_delegation_token = _blocking(tokens.renew_delegation_token)
    expire_delegation_token = _blocking(tokens.expire_delegation_token)
    describe_cluster = _blocking(cluster.describe_cluster)
    describe_features = _blocking(cluster.describe_features)
    update_features = _blocking(cluster.update_features)
    describe_metadata_quorum = _blocking(cluster.describe_metadata_quorum)
    add_raft_voter = _blocking(cluster.add_raft_voter)
    remove_raft_voter = _blocking(cluster.remove_raft_voter)
    unregister_broker = _blocking(cluster.unregister_broker)
    unregister_controller = _blocking(cluster.unregister_controller)
    read_metadata = _blocking(cluster.read_metadata)


class Admin:
    """An admin client for asyncio; an asynchronous context manager, used on one event loop.

    The methods are those of `BlockingAdmin` as coroutines. Several may run at the same time. A
    cancelled call, for example by ``asyncio.timeout``, ends at once; the quorum may have carried it
    out.
    """

    def __init__(self, settings: AdminSettings) -> None:
        self._settings = settings
        self._threads = ThreadPoolExecutor(MAX_CONCURRENT_CALLS, "kraft-admin")
        self._free = asyncio.Semaphore(MAX_CONCURRENT_CALLS)
        self._idle: list[BlockingAdmin] = []
        self._busy: set[BlockingAdmin] = set()
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        type: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; calls in progress fail with QuorumUnreachableError."""
        self._is_closed = True
        for admin in self._busy:
            admin.calls.client.abort()
        while self._idle:
            self._idle.pop().close()
        self._threads.shutdown(wait=False)

    async def run(self, function: Callable[[ControllerCalls], R]) -> R:
        """Run a function of a blocking client's requests in a thread; return its result."""
        async with self._free:
            admin = self._idle.pop() if self._idle else BlockingAdmin(self._settings)
            self._busy.add(admin)
            loop = asyncio.get_running_loop()
            running = loop.run_in_executor(self._threads, partial(function, admin.calls))
            try:
                result = await asyncio.shield(running)
            except asyncio.CancelledError:
                admin.calls.client.abort()
                running.add_done_callback(partial(_drop, admin))
                raise
            except Exception:
                self._release(admin)
                raise
            finally:
                self._busy.discard(admin)
            self._release(admin)
            return result

    def _release(self, admin: BlockingAdmin) -> None:
        if self._is_closed:
            admin.close()
        else:
            self._idle.append(admin)

    create_topics = _awaited(topics.create_topics)
    create_partitions = _awaited(topics.create_partitions)
    delete_topics = _awaited(topics.delete_topics)
    describe_configs = _awaited(configs.describe_configs)
    incremental_alter_configs = _awaited(configs.incremental_alter_configs)
    alter_configs = _awaited(configs.alter_configs)
    describe_acls = _awaited(acls.describe_acls)
    create_acls = _awaited(acls.create_acls)
    delete_acls = _awaited(acls.delete_acls)
    elect_leaders = _awaited(partitions.elect_leaders)
    alter_partition_reassignments = _awaited(partitions.alter_partition_reassignments)
    list_partition_reassignments = _awaited(partitions.list_partition_reassignments)
    describe_client_quotas = _awaited(quotas.describe_client_quotas)
    alter_client_quotas = _awaited(quotas.alter_client_quotas)
    describe_user_scram_credentials = _awaited(scram.describe_user_scram_credentials)
    alter_user_scram_credentials = _awaited(scram.alter_user_scram_credentials)
    create_delegation_token = _awaited(tokens.create_delegation_token)
    describe_delegation_token = _awaited(tokens.describe_delegation_token)
    renew_delegation_token = _awaited(tokens.renew_delegation_token)
    expire_delegation_token = _awaited(tokens.expire_delegation_token)
    describe_cluster = _awaited(cluster.describe_cluster)
    describe_features = _awaited(cluster.describe_features)
    update_features = _awaited(cluster.update_features)
    describe_metadata_quorum = _awaited(cluster.describe_metadata_quorum)
    add_raft_voter = _awaited(cluster.add_raft_voter)
    remove_raft_voter = _awaited(cluster.remove_raft_voter)
    unregister_broker = _awaited(cluster.unregister_broker)
    unregister_controller = _awaited(cluster.unregister_controller)
    read_metadata = _awaited(cluster.read_metadata)


def connect(
    bootstrap_controllers: str | Iterable[str], properties: Properties | None = None
) -> Admin:
    """Return an admin client for asyncio: ``async with connect("localhost:9093") as admin``.

    ``bootstrap_controllers`` are addresses ``host:port``, separated by commas or as a list; any
    controller of the quorum can name the active one. ``properties`` are those of Kafka's clients,
    or the path of a file with them (`kraft.admin.settings`). The first call connects. Raises
    InvalidArgumentError, InvalidConfigError.
    """
    return Admin(read_admin_settings(bootstrap_controllers, properties))


def connect_blocking(
    bootstrap_controllers: str | Iterable[str], properties: Properties | None = None
) -> BlockingAdmin:
    """Return an admin client for other programs: ``with connect_blocking("localhost:9093") as
    admin``.

    The arguments and errors are those of `connect`.
    """
    return BlockingAdmin(read_admin_settings(bootstrap_controllers, properties))


def _drop(admin: BlockingAdmin, running: asyncio.Future[Any]) -> None:
    """Close the client of a cancelled call; its outcome is nobody's any more."""
    admin.close()
    if not running.cancelled():
        running.exception()
