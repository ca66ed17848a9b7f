"""Which partitions without a leader the election for a returning broker has to look at.

An election for an unfenced broker looks at every partition without a leader, as in Kafka. While
all brokers of a cluster return, each looks at up to all partitions: 8 ms a million, a thousand
times. If an election has shown that the active brokers can lead none of the partitions that are
left, the next broker can lead its own partitions only, as long as nothing but such elections,
registrations and changes of ISRs was written since. The records are the same.

Invariant: at ``closed_offset`` no partition without a leader has an active replica that may be
elected. It is not known to hold where the log ends elsewhere. A `BrokerSessions` has one, and
``heartbeats`` calls it.
"""

from __future__ import annotations

from numpy import int32
from numpy.typing import NDArray

from kraft.controller.state import ClusterMetadata

_UNKNOWN = -1


class LeaderlessSearch:
    """The rows that the next election needs, for one active controller."""

    __slots__ = ("_closed_offset", "_decided_broker")

    def __init__(self) -> None:
        #: The end of the log at which the invariant is known to hold.
        self._closed_offset = _UNKNOWN
        #: The broker of the last decision, if the invariant holds once its records are applied.
        self._decided_broker: int | None = None

    def clear(self) -> None:
        """Forget what is known: another node may have led meanwhile."""
        self._closed_offset, self._decided_broker = _UNKNOWN, None

    def rows(
        self, cluster: ClusterMetadata, broker_id: int, next_offset: int
    ) -> NDArray[int32] | None:
        """Return the rows that the broker's return may change, None for all; changes nothing.

        ``next_offset`` is the end of the log.
        """
        if next_offset != self._closed_offset:
            return None
        return cluster.table.broker_rows(broker_id)

    def decided(self, broker_id: int, *, is_closed: bool) -> None:
        """Note what is decided for a broker's heartbeat. ``is_closed``: it holds an election for
        all rows, or for those of `rows`, and changes no other partitions.
        """
        self._decided_broker = broker_id if is_closed else None

    def applied(self, broker_id: int, next_offset: int) -> None:
        """Note that the records of this broker's last decision are applied, up to the offset."""
        if broker_id == self._decided_broker:
            self._closed_offset = next_offset
        self._decided_broker = None

    def registered(self, epoch: int, next_offset: int) -> None:
        """Note that a registration is applied, up to the offset.

        That of a new incarnation begins at its epoch. If it is the only record, no partition has
        changed, and the broker is fenced.
        """
        if epoch == self._closed_offset and next_offset == epoch + 1:
            self._closed_offset = next_offset

    def isrs_changed(self, first_offset: int, next_offset: int) -> None:
        """Note that the records of an AlterPartition are applied, between the offsets.

        It changes partitions that have a leader, and leaves one without only if no active replica
        may be elected.
        """
        if first_offset == self._closed_offset:
            self._closed_offset = next_offset
