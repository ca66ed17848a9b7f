"""AlterClientQuotas and DescribeClientQuotas.

Checks the parts of an entity (a user, a client id, both, or an ip), the names of its quotas and
their values. Sources: Kafka's ``ClientQuotaControlManager``, ``QuotaConfig``,
``ClientQuotasImage.describe`` (4.3.1).

Two intended differences from Kafka: the caller resolves host names (``resolvable``), because
Kafka's controller thread blocks while it does; and a NaN quota is rejected.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv6Address
from numbers import Real

from kraft import records
from kraft.configdef import ConfigType
from kraft.controller.decision import (
    MAX_RECORDS_PER_BATCH,
    NO_RECORDS,
    ChunkedDecision,
    Decision,
    Records,
)
from kraft.controller.state import ClusterMetadata, ReadableMetadata
from kraft.errors import (
    InvalidRequestError,
    KraftError,
    PolicyViolationError,
    UnsupportedVersionError,
)
from kraft.image.quotas import CLIENT_ID, IP, USER, QuotaEntity, quota_entity

#: An entity, as ``{"user": "alice", "client-id": None}``; None is the default of that type.
Entity = Mapping[str, str | None]
Results = dict[QuotaEntity, KraftError | None]

_USER_QUOTAS = {
    "consumer_byte_rate": ConfigType.LONG,
    "controller_mutation_rate": ConfigType.DOUBLE,
    "producer_byte_rate": ConfigType.LONG,
    "request_percentage": ConfigType.DOUBLE,
}
_IP_QUOTAS = {"connection_creation_rate": ConfigType.INT}
# Doubles, as Kafka compares them.
_HIGHEST = {
    ConfigType.INT: float((1 << 31) - 1),
    ConfigType.LONG: float(1 << 63),
    ConfigType.DOUBLE: math.inf,
}
_NEARLY_WHOLE = 1e-6
# A chunk takes a few milliseconds: the fixed cost of an entity, in quotas, and the cost of one
# chunk.
_COST_OF_ENTITY = 2
_COST_PER_CHUNK = 1_200
# One to four numbers; the last one fills the remaining bytes.
_IPV4 = r"([0-9]{1,10})(?:\.([0-9]{1,10}))?(?:\.([0-9]{1,10}))?(?:\.([0-9]{1,10}))?"
# The order in which Kafka writes the parts of an entity.
_ORDER = (CLIENT_ID, USER, IP)


@dataclass(frozen=True, slots=True)
class QuotaAlteration:
    """New quotas of an entity by key; None removes a quota."""

    entity: Entity
    quotas: Sequence[tuple[str, float | None]]


def alter_client_quotas(
    cluster: ClusterMetadata,
    alterations: Sequence[QuotaAlteration],
    *,
    validate_only: bool = False,
    resolvable: Collection[str] = (),
    at_once: int = MAX_RECORDS_PER_BATCH,
) -> ChunkedDecision[Results]:
    """Set and remove quotas; the response maps each entity to its error or None.

    Only changes are written. If an entity is named twice, the first entry applies and the response
    is InvalidRequestError. ``resolvable`` are host names that may stand for an ip. The records of
    more than ``at_once`` entities are written in chunks. Raises PolicyViolationError for more than
    10,000 records at once.
    """
    is_large = len(alterations) > at_once
    is_split = is_large and not validate_only
    if is_split:
        yield NO_RECORDS
    response: Results = {}
    written: list[records.ClientQuota] = []
    level = cluster.state.metadata_version
    cost = 0
    for alteration in alterations:
        written += _records_of(cluster, alteration, resolvable, response)
        cost += len(alteration.quotas) + _COST_OF_ENTITY
        if cost > _COST_PER_CHUNK:
            cost = 0
            if is_split:
                yield Records.of(written, level)
                written = []
            else:
                if is_large:
                    written = []
                yield NO_RECORDS
    if not is_large and len(written) > MAX_RECORDS_PER_BATCH:
        raise PolicyViolationError(
            f"an operation writes at most {MAX_RECORDS_PER_BATCH} records, not {len(written)}"
        )
    last = NO_RECORDS if validate_only else Records.of(written, level)
    return Decision(last, response, is_atomic=True)


def _records_of(
    cluster: ClusterMetadata,
    alteration: QuotaAlteration,
    resolvable: Collection[str],
    response: Results,
) -> list[records.ClientQuota]:
    """Return the records of an alteration, and put its result into ``response``."""
    entity = quota_entity(alteration.entity)
    if entity in response:
        response[entity] = InvalidRequestError(
            f"{_entity_text(entity)} is named twice in the request"
        )
        return []
    try:
        written = _altered(cluster, entity, alteration, resolvable)
    except KraftError as error:
        response[entity] = error.as_result()
        return []
    response[entity] = None
    return written


@dataclass(frozen=True, slots=True)
class QuotaFilter:
    """A filter of one entity type: the name ``name`` (None is the default entity), or any."""

    entity_type: str
    name: str | None = None
    is_any: bool = False


def describe_client_quotas(
    cluster: ReadableMetadata, filters: Sequence[QuotaFilter], *, is_strict: bool = False
) -> dict[QuotaEntity, Mapping[str, float]]:
    """Return the quotas of every entity that all filters match; strictly, only if it has no other
    parts.

    Raises InvalidRequestError for types that are named twice or cannot be combined,
    UnsupportedVersionError for an unknown type.
    """
    types = [one.entity_type for one in filters]
    if "" in types or len(set(types)) < len(types):
        raise InvalidRequestError(
            "a filter names each entity type at most once, and none is empty; this one names "
            f"{types!r:.200}"
        )
    if unknown := set(types).difference(_ORDER):
        raise UnsupportedVersionError(f"unknown types of an entity: {', '.join(sorted(unknown))}")
    if IP in types and len(types) > 1:
        raise InvalidRequestError(
            "an entity with an ip has neither a user nor a client id: filter for one or the other"
        )
    quotas = cluster.state.client_quotas
    if is_strict and filters and not any(one.is_any for one in filters):
        exact = quota_entity({one.entity_type: one.name for one in filters})
        return {exact: dict(quotas[exact])} if exact in quotas else {}
    return {
        entity: dict(values)
        for entity, values in quotas.items()
        if (not is_strict or len(entity) == len(filters)) and _holds(dict(entity), filters)
    }


def _holds(entity: Entity, filters: Sequence[QuotaFilter]) -> bool:
    return all(
        one.entity_type in entity and (one.is_any or entity[one.entity_type] == one.name)
        for one in filters
    )


def _altered(
    cluster: ClusterMetadata,
    entity: QuotaEntity,
    alteration: QuotaAlteration,
    resolvable: Collection[str],
) -> list[records.ClientQuota]:
    quotas = dict(alteration.quotas)
    if len(quotas) < len(alteration.quotas):
        raise InvalidRequestError(f"a quota of {_entity_text(entity)} is named twice")
    kinds = _check_entity(dict(entity), resolvable)
    present = cluster.state.client_quotas.get(entity, {})
    written = []
    for key, value in quotas.items():
        if value is None:
            if key in present:
                written.append(_record(entity, key, 0.0, remove=True))
            continue
        _check_quota(kinds, key, value)
        if present.get(key) != value:
            written.append(_record(entity, key, value, remove=False))
    return written


def _check_entity(entity: Entity, resolvable: Collection[str]) -> Mapping[str, ConfigType]:
    """Return the quotas that the entity may have."""
    if not entity:
        raise InvalidRequestError("the entity is empty: name a user, a client id or an ip")
    for entity_type, name in entity.items():
        if entity_type not in _ORDER:
            raise InvalidRequestError(f"unknown type {entity_type!r:.80} of an entity")
        if name == "":
            raise InvalidRequestError(f"the name of the {entity_type} is empty")
    if IP not in entity:
        return _USER_QUOTAS
    if len(entity) > 1:
        raise InvalidRequestError(
            "Invalid quota entity combination: an ip does not go with a user or a client id"
        )
    ip = entity[IP]
    if ip is not None and ip not in resolvable and not is_ip_address(ip):
        raise InvalidRequestError(f"{ip!r:.80} is not a valid IP address or a known host")
    return _IP_QUOTAS


def is_ip_address(text: str) -> bool:
    """Return whether Java parses ``text`` as an address without a name lookup
    (``InetAddress.getByName``).
    """
    if text[:1] == "[" and text[-1:] == "]":
        return _is_ipv6(text[1:-1])
    if ":" in text:
        return _is_ipv6(text)
    found = re.fullmatch(_IPV4, text)
    if found is None:
        return False
    numbers = [int(number) for number in found.groups() if number is not None]
    last = numbers.pop()
    return all(number < 256 for number in numbers) and last < 1 << (32 - 8 * len(numbers))


def _is_ipv6(text: str) -> bool:
    try:
        IPv6Address(text)
    except AddressValueError:
        return False
    return True


def _check_quota(kinds: Mapping[str, ConfigType], key: str, value: float) -> None:
    kind = kinds.get(key)
    if kind is None:
        raise InvalidRequestError(
            f"there is no quota {key!r:.80}; these entities have {', '.join(kinds)}"
        )
    if isinstance(value, bool) or not isinstance(value, Real) or math.isnan(value) or value <= 0:
        raise InvalidRequestError(f"{key} must be larger than 0, not {value!r:.80}")
    if kind is ConfigType.DOUBLE:
        return
    if value > _HIGHEST[kind]:
        raise InvalidRequestError(f"{key} must be at most {_HIGHEST[kind]:.0f}, not {value}")
    if value % 1.0 > _NEARLY_WHOLE:
        raise InvalidRequestError(f"{key} must be a whole number, not {value}")


def _record(entity: QuotaEntity, key: str, value: float, *, remove: bool) -> records.ClientQuota:
    parts = dict(entity)
    return records.ClientQuota(
        entity=[
            records.EntityData(entity_type=entity_type, entity_name=parts[entity_type])
            for entity_type in _ORDER
            if entity_type in parts
        ],
        key=key,
        value=value,
        remove=remove,
    )


def _entity_text(entity: QuotaEntity) -> str:
    return ", ".join(f"{kind} {'(default)' if name is None else name}" for kind, name in entity)
