"""Client quotas by entity.

Holds the rules by which ClientQuota records change the quotas. An entity is a set of (type, name):
a user, a client id, both, or an ip; the name None is the default entity of that type. Called by
``kraft.image.cluster``. Sources: Kafka's ``ClientQuotasDelta``, ``ClientQuotaImage``,
``ClientQuotaControlManager``.

Invariants: the parts of an entity are sorted by type, so that the order in a record does not
matter; an entity without a quota is not in the mapping.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import ClassVar

from kraft import records
from kraft.image.journal import JournaledGroups
from kraft.records import Record

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"

QuotaEntity = tuple[tuple[str, str | None], ...]
_NOTHING: Mapping[str, float] = MappingProxyType({})


class ClientQuotas(JournaledGroups[QuotaEntity, float]):
    """Quotas by entity such as ``(("user", "alice"),)``, then by key such as
    ``producer_byte_rate``.
    """

    __slots__ = ()
    kind: ClassVar[str] = "client_quota"

    def of(self, entity: Mapping[str, str | None]) -> Mapping[str, float]:
        """Return the quotas of exactly this entity, given as ``{"user": "alice"}``."""
        quotas = self._entries.get(quota_entity(entity))
        return _NOTHING if quotas is None else MappingProxyType(quotas)

    def replay(self, record: records.ClientQuota, offset: int) -> None:
        entity = quota_entity({part.entity_type: part.entity_name for part in record.entity})
        if record.remove:
            self._unset(entity, record.key, offset)
        else:
            self._set(entity, record.key, record.value, offset)

    def snapshot_records(self) -> Iterator[records.ClientQuota]:
        """Return one ClientQuota for each quota, by entity and key."""
        return self.snapshot_records_in_order(0)

    @staticmethod
    def snapshot_order(key: QuotaEntity) -> tuple[tuple[str, bool, str], ...]:
        """Sort a default entity (name None) before the named ones."""
        return tuple((entity_type, name is not None, name or "") for entity_type, name in key)

    def snapshot_records_of(self, key: QuotaEntity, metadata_version: int) -> Iterator[Record]:
        for name, value in sorted(self._entries.get(key, _NOTHING).items()):
            yield records.ClientQuota(
                entity=[
                    records.EntityData(entity_type=entity_type, entity_name=entity_name)
                    for entity_type, entity_name in key
                ],
                key=name,
                value=value,
                remove=False,
                version=0,
            )


def quota_entity(parts: Mapping[str, str | None]) -> QuotaEntity:
    """Return the key of an entity: its parts sorted by type."""
    if len(parts) == 1:
        return tuple(parts.items())
    return tuple(sorted(parts.items(), key=lambda part: part[0]))
