"""Broker liveness: which brokers the metadata shows as registered, unfenced and not stopping.

`BrokerLiveness` follows the deltas of the image and answers the leader's questions about its
followers. Rules: ``KRaftMetadataCache.getAliveBrokerEpoch``, ``Partition.isReplicaIsrEligible``
(KIP-841, KIP-903).
"""

from __future__ import annotations

from typing import NamedTuple

from kraft.broker.replication.messages import NO_EPOCH
from kraft.image.nodes import BrokerRegistration
from kraft.image.publishing import ImageDelta


class KnownBroker(NamedTuple):
    """What replication needs of a broker's registration."""

    epoch: int
    is_fenced: bool
    is_stopping: bool
    rack: str | None


class BrokerLiveness:
    """The registered brokers by id."""

    __slots__ = ("_brokers",)

    def __init__(self) -> None:
        self._brokers: dict[int, KnownBroker] = {}

    def apply_delta(self, delta: ImageDelta) -> None:
        if delta.is_full:
            self._brokers.clear()
        for id, change in delta.changes.get("broker", {}).items():
            assert isinstance(id, int)
            registration: BrokerRegistration | None = change.after
            if registration is None:
                self._brokers.pop(id, None)
            else:
                self.set(
                    id,
                    KnownBroker(
                        registration.epoch,
                        registration.fenced,
                        registration.in_controlled_shutdown,
                        registration.rack,
                    ),
                )

    def set(self, id: int, broker: KnownBroker) -> None:
        self._brokers[id] = broker

    def is_alive(self, id: int) -> bool:
        """Return whether a broker is registered and not fenced."""
        broker = self._brokers.get(id)
        return broker is not None and not broker.is_fenced

    def rack_of(self, id: int) -> str | None:
        """Return the rack of a broker that is alive, None if it has none."""
        broker = self._brokers.get(id)
        return None if broker is None or broker.is_fenced else broker.rack

    def is_stale(self, id: int, epoch: int) -> bool:
        """Return whether a broker's fetch comes from an earlier incarnation than the live one."""
        broker = self._brokers.get(id)
        return (
            epoch != NO_EPOCH
            and broker is not None
            and not broker.is_fenced
            and broker.epoch > epoch
        )

    def may_join_isr(self, id: int, fetch_epoch: int | None) -> bool:
        """Return whether a broker may be added to an ISR.

        It is unfenced, not in controlled shutdown, and the epoch of its last fetch (None before the
        first fetch) is that of its registration, or not given.
        """
        broker = self._brokers.get(id)
        return (
            broker is not None
            and not broker.is_fenced
            and not broker.is_stopping
            and fetch_epoch is not None
            and fetch_epoch in (NO_EPOCH, broker.epoch)
        )
