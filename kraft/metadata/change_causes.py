"""``ChangeCauses``: which record of a log last set each field of the state.

Knows, for each record type, the objects and fields that it sets, under the names that differences
use (``kraft.image.diff``, ``kraft.metadata.diff``). ``kraft.metadata.diff`` passes it the records
between two states in log order and asks it for causes.

Invariant: records of a metadata transaction count from its EndTransaction on; records of an aborted
or open transaction never count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kraft import records
from kraft.image.configs import TOPIC
from kraft.image.diff import Change
from kraft.image.features import ProducerIdState, ZkMigration
from kraft.image.quotas import quota_entity
from kraft.metadata.log_records import LogRecord
from kraft.records import Record

# Kind, key, field. A record that creates or removes the whole object sets every field: field "".
_FieldKey = tuple[str, Any, str]

_ELR = ("elr", "last_known_elr")


@dataclass(frozen=True, slots=True)
class ChangeCause:
    """The record that made a change: its offset and its type, such as ``PartitionChange``."""

    offset: int
    type: str

    def __str__(self) -> str:
        return f"{self.type} at offset {self.offset}"


class ChangeCauses:
    """The last record that set each field. ``topic_names``: topic id -> name before the first
    record.
    """

    def __init__(self, topic_names: dict[bytes, str]) -> None:
        self._names = topic_names
        self._causes: dict[_FieldKey, ChangeCause] = {}
        self._open: dict[_FieldKey, ChangeCause] | None = None

    def add(self, record: LogRecord) -> None:
        """Add the next record of the log."""
        made = record.record
        if isinstance(made, records.BeginTransaction):
            self._open = {}
        elif isinstance(made, records.EndTransaction):
            self._causes.update(self._open or {})
            self._open = None
        elif isinstance(made, records.AbortTransaction):
            self._open = None
        else:
            cause = ChangeCause(record.offset, type(made).__name__)
            target = self._causes if self._open is None else self._open
            for field_key in self._set_by(made):
                target[field_key] = cause

    def of(self, change: Change) -> ChangeCause | None:
        """Return the last record that set the changed field; None where no record did."""
        found = [self._causes[each] for each in _field_keys(change) if each in self._causes]
        return max(found, key=lambda cause: cause.offset, default=None)

    def _set_by(self, record: Record) -> Iterator[_FieldKey]:
        """Yield the keys of the objects and fields that a record sets."""
        match record:
            case records.PartitionChange():
                key = (self._names.get(record.topic_id, ""), record.partition_id)
                for field in _changed_fields(record):
                    yield "partition", key, field
            case records.Partition():
                key = (self._names.get(record.topic_id, ""), record.partition_id)
                yield "partition", key, ""
            case records.Topic():
                self._names[record.topic_id] = record.name
                yield "topic", record.topic_id, ""
            case records.RemoveTopic():
                yield "topic", record.topic_id, ""
                # Removing a topic removes its configs.
                yield "config", (TOPIC, self._names.get(record.topic_id, "")), ""
            case records.ClearElr():
                yield "cleared elr", record.topic_name, ""
            case records.Config():
                resource = (record.resource_type, record.resource_name)
                yield "config", resource, record.name
            case records.ClientQuota():
                parts = {part.entity_type: part.entity_name for part in record.entity}
                yield "client_quota", quota_entity(parts), record.key
            case records.BrokerRegistrationChange():
                for field in _changed_registration(record):
                    yield "broker", record.broker_id, field
            case _:
                yield from _whole(record)


def _field_keys(change: Change) -> Iterator[_FieldKey]:
    """Yield the keys under which a change's cause may be found."""
    key: Any = change.key
    if change.kind == "topic":
        # By id: a topic of the same name may have been created in between.
        shape: Any = change.before if change.after is None else change.after
        key = shape.topic_id
    yield change.kind, key, change.field
    yield change.kind, key, ""
    if change.kind == "partition" and change.field in _ELR:
        yield "cleared elr", key[0], ""
        yield "cleared elr", "", ""


def _changed_fields(record: records.PartitionChange) -> Iterator[str]:
    """Yield the partition fields that the record sets (Kafka's PartitionRegistration.merge)."""
    yield "partition_epoch"
    if record.leader != -2:
        yield "leader"
        yield "leader_epoch"
    if record.leader_recovery_state != -1:
        yield "leader_recovery_state"
    for field in ("isr", "replicas", "removing_replicas", "adding_replicas", "directories"):
        if getattr(record, field) is not None:
            yield field
    if record.eligible_leader_replicas is not None:
        yield "elr"
    if record.last_known_elr is not None:
        yield "last_known_elr"


def _changed_registration(record: records.BrokerRegistrationChange) -> Iterator[str]:
    if record.fenced:
        yield "fenced"
    if record.in_controlled_shutdown:
        yield "in_controlled_shutdown"
    if record.log_dirs:
        yield "log_dirs"
    if record.cordoned_log_dirs is not None:
        yield "cordoned_log_dirs"


def _whole(record: Record) -> Iterator[_FieldKey]:
    """Yield the key that a record of another type sets: one object or one of its fields."""
    match record:
        case records.RegisterBroker() | records.UnregisterBroker():
            yield "broker", record.broker_id, ""
        case records.FenceBroker() | records.UnfenceBroker():
            yield "broker", record.id, "fenced"
        case records.RegisterController() | records.UnregisterController():
            yield "controller", record.controller_id, ""
        case records.FeatureLevel():
            yield "feature", record.name, ""
        case records.ZkMigrationState():
            yield "zk_migration", ZkMigration.STATE, ""
        case records.ProducerIds():
            yield "producer_ids", ProducerIdState.NEXT, ""
        case records.AccessControlEntry() | records.RemoveAccessControlEntry():
            yield "acl", record.id, ""
        case records.UserScramCredential() | records.RemoveUserScramCredential():
            yield "scram_credential", (record.mechanism, record.name), ""
        case records.DelegationToken() | records.RemoveDelegationToken():
            yield "delegation_token", record.token_id, ""
        case records.KRaftVersion():
            yield "quorum", "", "kraft_version"
        case records.KRaftVoters():
            yield "quorum", "", "voters"
