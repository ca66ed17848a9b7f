"""``Decisions``: what Kafka's controller would write, asked of a ``Metadata``.

Owns nothing: each method hands the cluster to the function of ``kraft.controller`` that knows the
rule and gives the records back. Nothing changes until they are applied. ``kraft.controller`` is
imported when the first of them is called, so that opening and reading costs nothing of it.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from kraft.errors import InvalidRequestError
from kraft.image.replay import Cluster
from kraft.metadata.identifiers import random_uuid
from kraft.records import Uuid

if TYPE_CHECKING:
    from kraft._core.placement import ReplicaPlacer
    from kraft.controller import Records

ConfigResource = tuple[int, str]
TopicPartition = tuple[str, int]


class Decisions:
    """Methods that return records, a sequence of typed ones that is encoded already."""

    cluster: Cluster

    def fence(self, broker_id: int) -> Records:
        """The broker's session has ended: its partitions get other leaders, it leaves every ISR and
        is fenced.

        Raises :class:`BrokerIdNotRegisteredError`.
        """
        from kraft.controller import fence_broker

        return fence_broker(self.cluster, broker_id).records

    def unfence(self, broker_id: int) -> Records:
        """The broker is back: it is unfenced, and leaderless partitions that it may lead get it."""
        from kraft.controller import unfence_broker

        return unfence_broker(self.cluster, broker_id).records

    def unregister(self, broker_id: int) -> Records:
        """The broker is forgotten, after it left every ISR."""
        from kraft.controller import unregister_broker

        return unregister_broker(self.cluster, broker_id).records

    def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        *,
        assignments: Mapping[int, Sequence[int]] | None = None,
        configs: Mapping[str, str] | None = None,
        topic_id: bytes | None = None,
        placer: ReplicaPlacer | None = None,
    ) -> Records:
        """A new topic, placed as Kafka's striped placer does, or by ``assignments`` or another
        ``placer``.

        A random ``topic_id`` and a placer with a random seed stand in where none is given. Raises
        the error that Kafka would answer with, such as :class:`TopicAlreadyExistsError`.
        """
        from kraft.controller import NewTopic, create_topic

        topic = NewTopic(
            name=name,
            topic_id=Uuid(topic_id) if topic_id is not None else random_uuid(),
            num_partitions=partitions,
            replication_factor=replication_factor,
            assignments=assignments or {},
            configs=configs or {},
        )
        return create_topic(self.cluster, topic, placer=placer or _striped_placer()).records

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

        decision = grow_topic(
            self.cluster, name, count, assignments, placer=placer or _striped_placer()
        )
        return decision.records

    def delete_topic(self, name: str) -> Records:
        """A topic goes, with its partitions and its configuration."""
        from kraft.controller import delete_topic

        return delete_topic(self.cluster, name).records

    def elect_leaders(self, election: Literal["preferred", "unclean"] = "preferred") -> Records:
        """Preferred replicas lead again wherever they can; or leaderless partitions of topics that
        allow unclean elections get a leader. All at once, without Kafka's limit a run.

        Raises :class:`InvalidRequestError` for any other ``election``.
        """
        from kraft.controller import balance_leaders, elect_unclean_leaders

        if election == "preferred":
            return balance_leaders(self.cluster, None).records
        if election != "unclean":
            raise InvalidRequestError(
                f"an election is 'preferred' or 'unclean', not {election!r:.80}"
            )
        return elect_unclean_leaders(self.cluster, None).records

    def expand_isrs(self) -> Records:
        """Every replica that is alive has caught up: what all leaders would ask for at once."""
        from kraft.controller import expand_isrs

        return expand_isrs(self.cluster).records

    def reassign(self, targets: Mapping[TopicPartition, Sequence[int] | None]) -> Records:
        """New replicas for partitions, None to cancel what is in progress.

        Raises the first error; then nothing is decided.
        """
        from kraft.controller import alter_reassignments

        decision = alter_reassignments(self.cluster, targets)
        for error in decision.response.values():
            if error is not None:
                raise error
        return decision.records

    def alter_configs(self, changes: Mapping[ConfigResource, Mapping[str, str | None]]) -> Records:
        """Sets values, or with None deletes them; a resource is ``(type, name)``. Raises the first
        error.
        """
        from kraft.controller import ConfigChange, incremental_alter_configs

        decision = incremental_alter_configs(
            self.cluster,
            [
                (resource, [ConfigChange(name, value) for name, value in values.items()])
                for resource, values in changes.items()
            ],
        )
        for error in decision.response.values():
            if error is not None:
                raise error
        return decision.records


def _striped_placer() -> ReplicaPlacer:
    from kraft._core.placement import JavaRandom, StripedPlacer

    return StripedPlacer(JavaRandom(secrets.randbits(48)))
