"""``Causes``: which record of a log set what.

Owns the rule for each record type: the things and fields that it sets, under the names that
differences have (``kraft.image.diff``, ``kraft.metadata.diff``). Fed with the records between two
states in the order of the log; asked by ``kraft.metadata.diff``.

Invariant: records of a metadata transaction count once it has ended; those of an aborted one, or
of one that is still open, never do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kraft import records
from kraft.image.configs import TOPIC
from kraft.image.diff import Change
from kraft.image.features import ProducerIds, ZkMigration
from kraft.image.quotas import quota_entity
from kraft.metadata.reading import LogRecord
from kraft.records import Record

# Kind, key, field; a field of "" is the thing as a whole, which a record makes or removes and so
# sets every field of.
_Thing = tuple[str, Any, str]

_ELR = ("elr", "last_known_elr")


@dataclass(frozen=True, slots=True)
class Cause:
    """The record that made a difference: where it stands and its type, ``PartitionChange``."""

    offset: int
    type: str

    def __str__(self) -> str:
        return f"{self.type} at offset {self.offset}"


class Causes:
    """The last record that set each thing. ``topic_names`` are those at the start, by topic id."""

    def __init__(self, topic_names: dict[bytes, str]) -> None:
        self._names = topic_names
        self._causes: dict[_Thing, Cause] = {}
        self._open: dict[_Thing, Cause] | None = None

    def add(self, record: LogRecord) -> None:
        """The next record of the log."""
        made = record.record
        if isinstance(made, records.BeginTransaction):
            self._open = {}
        elif isinstance(made, records.EndTransaction):
            self._causes.update(self._open or {})
            self._open = None
        elif isinstance(made, records.AbortTransaction):
            self._open = None
        else:
            cause = Cause(record.offset, type(made).__name__)
            target = self._causes if self._open is None else self._open
            for thing in self._set_by(made):
                target[thing] = cause

    def of(self, change: Change) -> Cause | None:
        """The last record that set what changed; None where no record did."""
        found = [self._causes[each] for each in _things(change) if each in self._causes]
        return max(found, key=lambda cause: cause.offset, default=None)

    def _set_by(self, record: Record) -> Iterator[_Thing]:
        """What a record sets."""
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
                # A topic's settings go with it.
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


def _things(change: Change) -> Iterator[_Thing]:
    """Under which names a change's cause may be found."""
    key = change.key
    if change.kind == "topic":
        # By id, as a name may have been given anew in between.
        shape = change.before if change.after is None else change.after
        key = shape.topic_id
    yield change.kind, key, change.field
    yield change.kind, key, ""
    if change.kind == "partition" and change.field in _ELR:
        yield "cleared elr", key[0], ""
        yield "cleared elr", "", ""


def _changed_fields(record: records.PartitionChange) -> Iterator[str]:
    """The fields of a partition that the record sets (Kafka's PartitionRegistration.merge)."""
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


def _whole(record: Record) -> Iterator[_Thing]:
    """The records that set one thing, all of it or one field."""
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
            yield "producer_ids", ProducerIds.NEXT, ""
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
