"""The znodes that controllers read and write, in batches that the port pipelines.

`ControllerZnodes` knows which paths are watched: a read of such a path sets its watch again, as the
handlers of Kafka's client do.

Rules: ``KafkaZkClient.scala`` of Kafka 1.1.1, ``ZkUtils.scala`` of 0.8.2.2.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from kraft.errors import ZooKeeperError
from kraft.zookeeper import znodes
from kraft.zookeeper.port import (
    CreateZnode,
    DeleteZnode,
    FindZnode,
    GetZnode,
    ListZnodes,
    SetZnode,
    ZkCode,
    ZkOperation,
    ZkResult,
    ZooKeeperPort,
)
from kraft.zookeeper.states import PartitionKey
from kraft.zookeeper.znodes import BrokerZnode, ControllerZnode, PartitionStateZnode, TopicZnode


class ControllerMovedError(ZooKeeperError):
    """Another controller was elected meanwhile; this one resigns."""


class ControllerZnodes:
    """The controller's access to its cluster's tree. Errors of the port pass through.

    A result code that has no meaning for the operation raises ZooKeeperError.
    """

    def __init__(self, port: ZooKeeperPort) -> None:
        self._port = port
        self._last_topic: tuple[str, bytes, TopicZnode] | None = None
        self._watched: set[str] = set()
        self._watched_children: set[str] = set()

    # -- watches

    def watch(self, *paths: str) -> list[bool]:
        """Watch znodes for creation, change and deletion; return which of them exist."""
        self._watched.update(paths)
        return [one.is_ok for one in self._port.run([FindZnode(path, True) for path in paths])]

    def watch_children(self, *paths: str) -> None:
        """Set the watch for children whenever they are listed."""
        self._watched_children.update(paths)

    def unwatch(self, *paths: str) -> None:
        """Report the changes of these paths no more, nor of their children."""
        self._watched.difference_update(paths)
        self._watched_children.difference_update(paths)

    def is_watched(self, path: str) -> bool:
        """Return whether an event of this path concerns the controller."""
        return path in self._watched or path in self._watched_children

    def watch_only(self, path: str) -> None:
        """Report this path, whose watch is set, and no other. Touches no znode."""
        self._watched = {path}
        self._watched_children = set()

    # -- the election

    def create_persistent_paths(self, wanted: Sequence[str] = znodes.PERSISTENT_PATHS) -> None:
        """Create the znodes below which the cluster's data is, where they are missing."""
        paths: dict[str, None] = {}
        for path in wanted:
            names = path.split("/")[1:]
            paths |= dict.fromkeys("/" + "/".join(names[: i + 1]) for i in range(len(names)))
        for result in self._port.run([CreateZnode(path) for path in paths]):
            _expect(result, "the cluster's paths", ZkCode.NODE_EXISTS)

    def controller(self) -> tuple[int, bool]:
        """Return the broker id in ``/controller``, -1 without one, and if it is this session's."""
        result = self._get(znodes.CONTROLLER)
        if result is None:
            return -1, False
        broker_id = ControllerZnode.decode(result.data).broker_id
        return broker_id, result.owner == self._port.session_id

    def create_controller(self, broker_id: int, timestamp_ms: int) -> bool:
        """Create ``/controller``; return False if another session has it.

        A create whose answer was lost finds its own znode, which counts as created.
        """
        data = ControllerZnode(broker_id, timestamp_ms).encode()
        return self._create_ephemeral(znodes.CONTROLLER, data)

    def register(self, controller: BrokerZnode, version: int = 4) -> None:
        """Create the registration of a controller. Raises ZooKeeperError if another session has it.

        Only the active controller has one: controllers of Apache Kafka would take it for a broker.
        """
        path = znodes.broker_path(controller.id)
        if not self._create_ephemeral(path, controller.encode(version)):
            raise ZooKeeperError(f"{path} belongs to another session: is the id used twice?")

    def unregister(self, controller_id: int) -> None:
        """Delete the registration if it is this session's."""
        self._delete_own(znodes.broker_path(controller_id))

    def _create_ephemeral(self, path: str, data: bytes) -> bool:
        while True:
            (result,) = self._port.run([CreateZnode(path, data, is_ephemeral=True)])
            if _expect(result, path, ZkCode.NODE_EXISTS).is_ok:
                return True
            (found,) = self._port.run([FindZnode(path)])
            if found.is_ok:
                return found.owner == self._port.session_id

    def delete_controller(self) -> None:
        """Delete ``/controller`` if it is this session's.

        Kafka 1.1 deletes also the znode of another controller (KAFKA-6082).
        """
        self._delete_own(znodes.CONTROLLER)

    def _delete_own(self, path: str) -> None:
        (found,) = self._port.run([FindZnode(path)])
        if found.is_ok and found.owner == self._port.session_id:
            self._delete([path])

    def controller_epoch(self) -> tuple[int, int]:
        """Return the controller epoch and its znode's version; zeros without one."""
        result = self._get(znodes.CONTROLLER_EPOCH)
        if result is None:
            return 0, 0
        return znodes.decode_controller_epoch(result.data), result.version

    def raise_controller_epoch(self, epoch: int, version: int) -> tuple[int, int]:
        """Write ``epoch`` + 1 over the given version; return the new epoch and version.

        Raises ControllerMovedError if another controller wrote it since it was read.
        """
        data = znodes.encode_controller_epoch(epoch + 1)
        (result,) = self._port.run([SetZnode(znodes.CONTROLLER_EPOCH, data, version)])
        if result.code == ZkCode.NO_NODE:
            first = CreateZnode(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(1))
            (result,) = self._port.run([first])
            if result.is_ok:
                return 1, 0
        if not result.is_ok:
            raise ControllerMovedError(
                f"controller epoch {epoch} was raised by another controller: {result.code.name}"
            )
        return epoch + 1, result.version

    # -- brokers, topics, partitions

    def brokers(self) -> dict[int, BrokerZnode]:
        """Return the registered brokers by id, without controllers that are no brokers.

        A corrupt registration raises CorruptZnodeError.
        """
        names = self._children(znodes.BROKER_IDS)
        ids = sorted(int(name) for name in names if name.isdigit())
        found = self._get_all([znodes.broker_path(id) for id in ids])
        brokers = [
            BrokerZnode.decode(result.data, id)
            for id, result in zip(ids, found, strict=True)
            if result is not None
        ]
        return {broker.id: broker for broker in brokers if not broker.is_controller_only}

    def topics(self) -> set[str]:
        """Return the names of all topics."""
        return set(self._children(znodes.TOPICS))

    def assignments(self, topics: Iterable[str]) -> dict[str, dict[int, tuple[int, ...]]]:
        """Return the replicas of each topic's partitions; a topic without znode is left out."""
        names = list(topics)
        found = self._get_all([znodes.topic_path(topic) for topic in names])
        return {
            topic: dict(TopicZnode.decode(result.data, topic).assignment)
            for topic, result in zip(names, found, strict=True)
            if result is not None
        }

    def replicas(self, key: PartitionKey) -> tuple[int, ...]:
        """Return the replicas of one partition; none if it is gone.

        Reads the topic's whole znode, as Kafka 0.8 does for every new partition: creating a topic
        costs the square of its partitions. An unchanged content is decoded once.
        """
        topic, partition = key
        result = self._get(znodes.topic_path(topic))
        if result is None:
            return ()
        if self._last_topic is None or self._last_topic[:2] != (topic, result.data):
            self._last_topic = topic, result.data, TopicZnode.decode(result.data, topic)
        return self._last_topic[2].assignment.get(partition, ())

    def write_assignment(self, topic: str, assignment: Mapping[int, tuple[int, ...]]) -> None:
        """Replace the replicas of all partitions of a topic."""
        path = znodes.topic_path(topic)
        (result,) = self._port.run([SetZnode(path, TopicZnode(assignment).encode())])
        _expect(result, path)

    def states(
        self, keys: Sequence[PartitionKey]
    ) -> dict[PartitionKey, tuple[PartitionStateZnode, int] | None]:
        """Return leader and ISR of partitions, with the version; None without one."""
        paths = [znodes.state_path(*key) for key in keys]
        return {
            key: None
            if result is None
            else (PartitionStateZnode.decode(result.data, path), result.version)
            for key, path, result in zip(keys, paths, self._get_all(paths), strict=True)
        }

    def create_states(
        self, states: Mapping[PartitionKey, PartitionStateZnode]
    ) -> dict[PartitionKey, bool]:
        """Create the states of partitions with their parents; return which did not exist yet."""
        topics = dict.fromkeys(topic for topic, _ in states)
        parents = [CreateZnode(znodes.partitions_path(topic)) for topic in topics]
        parents += [CreateZnode(znodes.partition_path(*key)) for key in states]
        created = [
            CreateZnode(znodes.state_path(*key), state.encode()) for key, state in states.items()
        ]
        results = self._port.run([*parents, *created])
        # The topic may have been deleted: its partitions have no parent then.
        for operation, result in zip(parents, results, strict=False):
            _expect(result, operation.path, ZkCode.NODE_EXISTS, ZkCode.NO_NODE)
        return {
            key: _expect(result, znodes.state_path(*key), ZkCode.NODE_EXISTS, ZkCode.NO_NODE).is_ok
            for key, result in zip(states, results[len(parents) :], strict=True)
        }

    def write_states(
        self, states: Mapping[PartitionKey, tuple[PartitionStateZnode, int]]
    ) -> dict[PartitionKey, ZkResult]:
        """Write states over the given versions.

        Return the results: OK with the new version, BAD_VERSION or NO_NODE.
        """
        results = self._port.run(
            [
                SetZnode(znodes.state_path(*key), state.encode(), version)
                for key, (state, version) in states.items()
            ]
        )
        return {
            key: _expect(result, znodes.state_path(*key), ZkCode.BAD_VERSION, ZkCode.NO_NODE)
            for key, result in zip(states, results, strict=True)
        }

    def topic_configs(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the configs of topics; empty for a topic without one."""
        names = list(topics)
        paths = [znodes.config_path("topics", topic) for topic in names]
        return {
            topic: {} if result is None else znodes.decode_config(result.data, path)
            for topic, path, result in zip(names, paths, self._get_all(paths), strict=True)
        }

    # -- requests of administrators, notifications

    def reassignments(self) -> dict[PartitionKey, tuple[int, ...]]:
        """Return the wanted replicas in ``/admin/reassign_partitions``; none without it."""
        result = self._get(znodes.REASSIGN_PARTITIONS)
        return {} if result is None else znodes.decode_reassignment(result.data)

    def write_reassignments(self, replicas: Mapping[PartitionKey, tuple[int, ...]]) -> None:
        """Replace ``/admin/reassign_partitions``; delete it if nothing is left.

        If somebody deleted it, it is created again: the controller goes on with what is left
        (``setOrCreatePartitionReassignment``).
        """
        path = znodes.REASSIGN_PARTITIONS
        if not replicas:
            self._delete([path])
            return
        data = znodes.encode_reassignment(replicas)
        (result,) = self._port.run([SetZnode(path, data)])
        if _expect(result, path, ZkCode.NO_NODE).code == ZkCode.NO_NODE:
            (result,) = self._port.run([CreateZnode(path, data)])
            _expect(result, path)

    def preferred_elections(self) -> list[PartitionKey]:
        """Return the partitions in ``/admin/preferred_replica_election``; none without it."""
        path = znodes.PREFERRED_ELECTION
        result = self._get(path)
        return [] if result is None else znodes.decode_partitions(result.data, path)

    def delete_preferred_election(self) -> None:
        """Delete the request for preferred elections: it is carried out."""
        self._delete([znodes.PREFERRED_ELECTION])

    def topic_deletions(self) -> set[str]:
        """Return the topics that are to be deleted."""
        return set(self._children(znodes.DELETE_TOPICS))

    def delete_topic_deletions(self, topics: Iterable[str]) -> None:
        """Delete the requests to delete topics."""
        self._delete([znodes.delete_topic_path(topic) for topic in topics])

    def delete_topic(self, topic: str, partitions: Iterable[int]) -> None:
        """Delete a topic's znodes, children first, then its config and the request.

        ``partitions`` are the known ones; others below the topic are deleted too. If a znode
        cannot be deleted, the request stays: without it the topic would be a usual one again.
        """
        known = {str(partition) for partition in partitions}
        known.update(self._children(znodes.partitions_path(topic)))
        folders = [f"{znodes.partitions_path(topic)}/{name}" for name in sorted(known)]
        self._delete(
            [
                *(f"{folder}/state" for folder in folders),
                *folders,
                znodes.partitions_path(topic),
                znodes.topic_path(topic),
                znodes.config_path("topics", topic),
            ]
        )
        self._delete([znodes.delete_topic_path(topic)])

    def isr_changes(self) -> tuple[list[str], list[PartitionKey]]:
        """Return the paths of the ISR change notifications, and their partitions, each once."""
        paths = self._child_paths(znodes.ISR_CHANGES)
        keys: dict[PartitionKey, None] = {}
        for path, result in zip(paths, self._get_all(paths), strict=True):
            if result is not None:
                keys |= dict.fromkeys(znodes.decode_partitions(result.data, path))
        return paths, list(keys)

    def log_dir_events(self) -> tuple[list[str], set[int]]:
        """Return the paths of the notifications of failed directories, and their brokers."""
        paths = self._child_paths(znodes.LOG_DIR_EVENTS)
        return paths, {
            znodes.decode_log_dir_event(result.data, path)
            for path, result in zip(paths, self._get_all(paths), strict=True)
            if result is not None
        }

    def notification_paths(self) -> list[str]:
        """Return the paths of all notifications, and watch for new ones."""
        return self._child_paths(znodes.LOG_DIR_EVENTS) + self._child_paths(znodes.ISR_CHANGES)

    def delete(self, paths: Collection[str]) -> None:
        """Delete notifications."""
        self._delete(list(paths))

    # -- single operations

    def _child_paths(self, path: str) -> list[str]:
        return [f"{path}/{name}" for name in self._children(path)]

    def _children(self, path: str) -> tuple[str, ...]:
        (result,) = self._port.run([ListZnodes(path, path in self._watched_children)])
        return _expect(result, path, ZkCode.NO_NODE).children

    def _get(self, path: str) -> ZkResult | None:
        (result,) = self._get_all([path])
        return result

    def _get_all(self, paths: Sequence[str]) -> list[ZkResult | None]:
        """Read znodes; None for those that do not exist."""
        operations: list[ZkOperation] = [GetZnode(path, path in self._watched) for path in paths]
        results = self._port.run(operations)
        return [
            result if _expect(result, path, ZkCode.NO_NODE).is_ok else None
            for path, result in zip(paths, results, strict=True)
        ]

    def _delete(self, paths: Sequence[str]) -> None:
        results = self._port.run([DeleteZnode(path) for path in paths])
        for path, result in zip(paths, results, strict=True):
            _expect(result, path, ZkCode.NO_NODE)


def _expect(result: ZkResult, path: str, *others: ZkCode) -> ZkResult:
    """Return the result; raise ZooKeeperError unless it is OK or one of ``others``."""
    if not result.is_ok and result.code not in others:
        raise ZooKeeperError(f"{path}: ZooKeeper answers {result.code.name}")
    return result
