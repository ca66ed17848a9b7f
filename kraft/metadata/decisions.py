"""``Decisions``: what Kafka's controller would write, asked of a ``Metadata``.

Owns nothing: each method hands the cluster to the function of ``kraft.controller`` that knows the
rule and gives the records back. Nothing changes until they are applied. ``kraft.controller`` is
imported when the first of them is called, so that opening and reading costs nothing of it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from kraft.errors import InvalidArgumentError, PolicyViolationError, TopicAlreadyExistsError
from kraft.image.configs import RESOURCE_TYPES
from kraft.image.replay import Cluster
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
from kraft.metadata.directory import METADATA_TOPIC_ID
from kraft.metadata.identifiers import random_uuid
from kraft.records import ZERO_UUID, Uuid

if TYPE_CHECKING:
    from kraft._core.placement import ReplicaPlacer
    from kraft.controller import Records

ConfigResource = tuple[int, str]
TopicPartition = tuple[str, int]

_RESERVED_TOPIC_IDS = (ZERO_UUID, Uuid.parse(METADATA_TOPIC_ID))


class Decisions:
    """Methods that return records, a sequence of typed ones that is encoded already."""

    cluster: Cluster

    def fence(self, broker_id: int) -> Records:
        """The broker's session has ended: its partitions get other leaders, it leaves every ISR and
        is fenced.

        Raises :class:`BrokerIdNotRegisteredError`.
        """
        from kraft.controller import fence_broker

        return fence_broker(self.cluster, _broker(broker_id)).records

    def unfence(self, broker_id: int) -> Records:
        """The broker is back: it is unfenced, and leaderless partitions that it may lead get it."""
        from kraft.controller import unfence_broker

        return unfence_broker(self.cluster, _broker(broker_id)).records

    def unregister(self, broker_id: int) -> Records:
        """The broker is forgotten, after it left every ISR."""
        from kraft.controller import unregister_broker

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
        """A new topic, placed as Kafka's striped placer does, or by ``assignments`` or another
        ``placer``.

        A decision writes at most 10,000 records (:class:`PolicyViolationError`): of a larger topic
        create a part, apply it, and add the rest by :meth:`create_partitions`.

        A random ``topic_id`` and a placer with a random seed stand in where none is given. Raises
        the error that Kafka would answer with, such as :class:`TopicAlreadyExistsError`.
        """
        from kraft.controller import NewTopic, create_topic

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
            raise InvalidArgumentError(f"topic_id {uuid!s} is reserved: leave it out for a new one")
        number = self.cluster.table.topic_number_by_id(uuid)
        if number >= 0:
            name = self.cluster.table.topic_name(number)
            raise TopicAlreadyExistsError(f"topic_id {uuid!s} is that of the topic {name!r}")
        return uuid

    def create_partitions(
        self,
        name: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None = None,
        *,
        placer: ReplicaPlacer | None = None,
    ) -> Records:
        """A topic grows to ``count`` partitions."""
        from kraft.controller import grow_topic

        text(name, "name")
        count = whole_number(count, "count", low=-(1 << 31), high=INT32_MAX)
        placed = None
        if assignments is not None:
            placed = [
                broker_ids(each, "an assignment")
                for each in sequence(assignments, "assignments", "lists of broker ids")
            ]
        with _advising("add fewer at a time, and apply each decision before the next"):
            return grow_topic(self.cluster, name, count, placed, placer=_placer(placer)).records

    def delete_topic(self, name: str) -> Records:
        """A topic goes, with its partitions and its configuration."""
        from kraft.controller import delete_topic

        return delete_topic(self.cluster, text(name, "name")).records

    def elect_leaders(self, election: Literal["preferred", "unclean"] = "preferred") -> Records:
        """Preferred replicas lead again wherever they can; or leaderless partitions of topics that
        allow unclean elections get a leader. All at once, without Kafka's limit a run.

        Raises :class:`InvalidRequestError` for any other ``election``.
        """
        from kraft.controller import balance_leaders, elect_unclean_leaders

        if election == "preferred":
            return balance_leaders(self.cluster, None).records
        if election == "unclean":
            return elect_unclean_leaders(self.cluster, None).records
        raise InvalidArgumentError(
            f"election must be 'preferred' or 'unclean', not {shown(election)}"
        )

    def expand_isrs(self) -> Records:
        """Every replica that is alive has caught up: what all leaders would ask for at once."""
        from kraft.controller import expand_isrs

        return expand_isrs(self.cluster).records

    def reassign(self, targets: Mapping[TopicPartition, Sequence[int] | None]) -> Records:
        """New replicas for partitions, None to cancel what is in progress.

        Raises the first error; then nothing is decided.
        """
        from kraft.controller import alter_reassignments

        checked = {
            _topic_partition(key): None if replicas is None else broker_ids(replicas, "a target")
            for key, replicas in mapping(
                targets, "targets", "(topic, partition) to broker ids or None"
            ).items()
        }
        with _advising("reassign fewer partitions at a time"):
            decision = alter_reassignments(self.cluster, checked)
        for error in decision.response.values():
            if error is not None:
                raise error
        return decision.records

    def alter_configs(self, changes: Mapping[ConfigResource, Mapping[str, str | None]]) -> Records:
        """Sets values, or with None deletes them; a resource is ``(type, name)``. Raises the first
        error.
        """
        from kraft.controller import ConfigChange, incremental_alter_configs

        with _advising("alter fewer settings at a time"):
            decision = incremental_alter_configs(
                self.cluster,
                [
                    (
                        _resource(resource),
                        [
                            ConfigChange(name, value)
                            for name, value in _settings(values, "settings", deletes=True).items()
                        ],
                    )
                    for resource, values in mapping(
                        changes, "changes", "(resource type, name) to settings"
                    ).items()
                ],
            )
        for error in decision.response.values():
            if error is not None:
                raise error
        return decision.records


@contextmanager
def _advising(advice: str) -> Iterator[None]:
    """Say in a refusal for too many records what to do instead."""
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


def _settings(values: Any, what: str, *, deletes: bool = False) -> dict[str, Any]:
    """Return settings by name, whose values are text; where it ``deletes``, or None."""
    checked = {}
    for name, value in mapping(values, what, "names to values").items():
        text(name, f"each name of {what}")
        if value is not None or not deletes:
            text(value, f"the value of {name!r}")
        checked[name] = value
    return checked


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
    from kraft._core.placement import JavaRandom, StripedPlacer

    if placer is not None:
        if not callable(getattr(placer, "place", None)):
            raise InvalidArgumentError(f"placer must have a method place, not {shown(placer)}")
        checked: ReplicaPlacer = placer
        return checked
    return StripedPlacer(JavaRandom(secrets.randbits(48)))
