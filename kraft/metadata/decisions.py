"""``Decisions``: the methods of ``Metadata`` that return the records Kafka's controller would
write.

Each method passes the state to one function of ``kraft.controller`` and returns its records. The
state changes only when the caller applies them. ``kraft.controller`` is imported on the first call,
so that opening and reading metadata does not pay for it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from kraft._core.codec.fetch import METADATA_TOPIC_ID
from kraft.errors import (
    InvalidArgumentError,
    KraftError,
    PolicyViolationError,
    TopicAlreadyExistsError,
)
from kraft.image.configs import RESOURCE_TYPES
from kraft.image.replay import MetadataState
from kraft.metadata.arguments import (
    INT16_MAX,
    INT32_MAX,
    broker_ids,
    mapping,
    sequence,
    shown,
    text,
    uuid_of,
    whole_number,
)
from kraft.metadata.identifiers import random_uuid
from kraft.records import ZERO_UUID, Uuid

if TYPE_CHECKING:
    from kraft._core.decide.placement import ReplicaPlacer
    from kraft.controller.decision import Decision, Records

ConfigResource = tuple[int, str]
TopicPartition = tuple[str, int]

_RESERVED_TOPIC_IDS = (ZERO_UUID, METADATA_TOPIC_ID)


class Decisions:
    """Methods that return a decision's records: a sequence of typed records, already encoded."""

    cluster: MetadataState

    def fence_broker(self, broker_id: int) -> Records:
        """Return the records for the end of a broker's session.

        They elect other leaders for its partitions, remove it from every ISR and fence it. Raises
        :class:`BrokerIdNotRegisteredError`.
        """
        from kraft.controller.brokers.broker_lifecycle import fence_broker

        return fence_broker(self.cluster, _broker(broker_id)).records

    def unfence_broker(self, broker_id: int) -> Records:
        """Return the records that unfence a broker and make it leader where it is eligible and none
        exists.
        """
        from kraft.controller.brokers.broker_lifecycle import unfence_broker

        return unfence_broker(self.cluster, _broker(broker_id)).records

    def unregister_broker(self, broker_id: int) -> Records:
        """Return the records that remove a broker from every ISR and unregister it."""
        from kraft.controller.brokers.broker_lifecycle import unregister_broker

        return unregister_broker(self.cluster, _broker(broker_id)).records

    def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        *,
        assignments: Mapping[int, Sequence[int]] | None = None,
        configs: Mapping[str, str] | None = None,
        topic_id: bytes | str | None = None,
        placer: ReplicaPlacer | None = None,
    ) -> Records:
        """Return the records of a new topic, placed by ``assignments``, by ``placer`` or as Kafka
        does.

        The default ``placer`` is Kafka's striped placer with a random seed; the default
        ``topic_id`` is random. More than 10,000 records are one metadata transaction. Below
        metadata.version 3.6-IV1, which has no transactions, they raise
        :class:`PolicyViolationError`: create a larger topic in parts, with
        :meth:`create_partitions` after each apply.

        Raises the error that Kafka would return, such as :class:`TopicAlreadyExistsError`.
        """
        from kraft.controller.topics.topic_creation import NewTopic, create_topic

        topic = NewTopic(
            name=text(name, "name"),
            topic_id=random_uuid() if topic_id is None else self._free_topic_id(topic_id),
            num_partitions=whole_number(partitions, "partitions", low=-1, high=INT32_MAX),
            replication_factor=whole_number(
                replication_factor, "replication_factor", low=-1, high=INT16_MAX
            ),
            assignments={} if assignments is None else _assignments(assignments),
            configs={} if configs is None else _settings(configs, "configs"),
        )
        with _advising("create fewer partitions, apply, and add the rest by create_partitions"):
            return create_topic(self.cluster, topic, placer=_placer(placer)).records

    def _free_topic_id(self, topic_id: bytes | str) -> Uuid:
        uuid = uuid_of(topic_id, "topic_id")
        if uuid in _RESERVED_TOPIC_IDS:
            raise InvalidArgumentError(
                f"topic_id {uuid!s} is reserved: omit it to get a random one"
            )
        number = self.cluster.table.topic_number_by_id(uuid)
        if number >= 0:
            name = self.cluster.table.topic_name(number)
            raise TopicAlreadyExistsError(f"topic_id {uuid!s} belongs to the topic {name!r}")
        return uuid

    def create_partitions(
        self,
        name: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None = None,
        *,
        placer: ReplicaPlacer | None = None,
    ) -> Records:
        """Return the records that increase a topic to ``count`` partitions."""
        from kraft.controller.topics.partition_creation import add_partitions

        text(name, "name")
        count = whole_number(count, "count", low=-(1 << 31), high=INT32_MAX)
        placed = None
        if assignments is not None:
            placed = [
                broker_ids(each, "an assignment")
                for each in sequence(assignments, "assignments", "lists of broker ids")
            ]
        with _advising("add fewer at a time, and apply each decision before the next"):
            return add_partitions(self.cluster, name, count, placed, placer=_placer(placer)).records

    def delete_topic(self, name: str) -> Records:
        """Return the records that delete a topic with its partitions and configs."""
        from kraft.controller.topics.topic_deletion import delete_topic

        return delete_topic(self.cluster, text(name, "name")).records

    def elect_leaders(self, election: Literal["preferred", "unclean"] = "preferred") -> Records:
        """Return the records of an election over all partitions, without Kafka's limit for one run.

        ``preferred``: the first replica leads wherever it is eligible. ``unclean``: leaderless
        partitions of topics that allow unclean elections get a leader. Raises
        :class:`InvalidArgumentError` for any other ``election``.
        """
        from kraft.controller.topics.elections import balance_leaders, elect_unclean_leaders

        if election == "preferred":
            return balance_leaders(self.cluster, None).records
        if election == "unclean":
            return elect_unclean_leaders(self.cluster, None).records
        raise InvalidArgumentError(
            f"election must be 'preferred' or 'unclean', not {shown(election)}"
        )

    def expand_isrs(self) -> Records:
        """Return the records that add every live replica to its ISR, as if all had caught up."""
        from kraft.controller.topics.isr_changes import expand_isrs

        return expand_isrs(self.cluster).records

    def alter_partition_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None]
    ) -> Records:
        """Return the records that start reassignments; None as target cancels one in progress.

        Raises the first error; then no partition is reassigned.
        """
        from kraft.controller.decision import decide_whole
        from kraft.controller.topics.reassignment import alter_partition_reassignments

        checked = {
            _topic_partition(key): None if replicas is None else broker_ids(replicas, "a target")
            for key, replicas in mapping(
                targets, "targets", "(topic, partition) to broker ids or None"
            ).items()
        }
        with _advising("reassign fewer partitions at a time"):
            decision = decide_whole(
                "alter partition reassignments",
                alter_partition_reassignments(self.cluster, checked),
                self.cluster.state.metadata_version,
            )
        for error in decision.response.values():
            if error is not None:
                raise error
        return decision.records

    def incremental_alter_configs(
        self, changes: Mapping[ConfigResource, Mapping[str, str | None]]
    ) -> Records:
        """Return the records that set config values, or delete them (None); a resource is ``(type,
        name)``.

        Raises the first error.
        """
        from kraft.controller.configs.config_changes import ConfigChange, incremental_alter_configs
        from kraft.controller.decision import decide_whole

        checked = [
            (
                _resource(resource),
                [
                    ConfigChange(name, value)
                    for name, value in _changed_settings(values, "settings").items()
                ],
            )
            for resource, values in mapping(
                changes, "changes", "(resource type, name) to settings"
            ).items()
        ]

        def decided(at_once: int) -> Decision[dict[ConfigResource, KraftError | None]]:
            return decide_whole(
                "incremental alter configs",
                incremental_alter_configs(self.cluster, checked, at_once=at_once),
                self.cluster.state.metadata_version,
            )

        try:
            decision = decided(at_once=len(checked))
        except PolicyViolationError:
            with _advising("alter fewer settings at a time"):
                decision = decided(at_once=0)
        for error in decision.response.values():
            if error is not None:
                raise error
        return decision.records


@contextmanager
def _advising(advice: str) -> Iterator[None]:
    """Append ``advice`` to the error for too many records."""
    try:
        yield
    except PolicyViolationError as error:
        raise PolicyViolationError(f"{error}: {advice}") from None


def _broker(broker_id: Any) -> int:
    return whole_number(broker_id, "broker_id", low=-(1 << 31), high=INT32_MAX)


def _assignments(assignments: Any) -> dict[int, list[int]]:
    return {
        whole_number(partition, "each partition of assignments", high=INT32_MAX): broker_ids(
            brokers, f"the assignment of partition {partition}"
        )
        for partition, brokers in mapping(
            assignments, "assignments", "partition ids to lists of broker ids"
        ).items()
    }


def _settings(values: Any, what: str) -> dict[str, str]:
    """Return settings by name with text values."""
    return {
        text(name, f"each name of {what}"): text(value, f"the value of {name!r}")
        for name, value in mapping(values, what, "names to values").items()
    }


def _changed_settings(values: Any, what: str) -> dict[str, str | None]:
    """Return settings by name; None deletes one."""
    return {
        text(name, f"each name of {what}"): None
        if value is None
        else text(value, f"the value of {name!r}")
        for name, value in mapping(values, what, "names to values").items()
    }


def _topic_partition(key: Any) -> TopicPartition:
    if not isinstance(key, tuple) or len(key) != 2:
        raise InvalidArgumentError(f"a target is (topic, partition), not {shown(key)}")
    topic, partition = key
    return text(topic, "topic"), whole_number(partition, "partition", high=INT32_MAX)


def _resource(resource: Any) -> ConfigResource:
    known = ", ".join(f"{number} ({name})" for number, name in RESOURCE_TYPES.items())
    if not isinstance(resource, tuple) or len(resource) != 2:
        raise InvalidArgumentError(
            f"a resource is (type, name) with the type one of {known}, not {shown(resource)}"
        )
    kind, name = resource
    if isinstance(kind, bool) or not isinstance(kind, int) or kind not in RESOURCE_TYPES:
        raise InvalidArgumentError(f"a resource type must be one of {known}, not {shown(kind)}")
    return int(kind), text(name, "the name of a resource")


def _placer(placer: Any) -> ReplicaPlacer:
    from kraft._core.decide.placement import JavaRandom, StripedPlacer

    if placer is not None:
        if not callable(getattr(placer, "place", None)):
            raise InvalidArgumentError(f"placer must have a method place, not {shown(placer)}")
        checked: ReplicaPlacer = placer
        return checked
    return StripedPlacer(JavaRandom(secrets.randbits(48)))
