"""A slow twin of configurations, features, quotas, credentials, ACLs and registered controllers.

It knows only the configurations whose rules are written here. Written from the behaviour of
ConfigurationControlManager, FeatureControlManager, ClientQuotaControlManager and
ScramControlManager (Kafka 4.3.1).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Any

from kraft import records
from kraft.records import Record, Uuid
from tests.reference.controller_brokers_twin import Placed, TwinDecision
from tests.reference.controller_state_twin import (
    BROKER,
    ELR,
    METADATA_VERSION,
    MIN_ISR,
    TOPIC,
    UNCLEAN,
    RefusedError,
    State,
)

RETENTION, CLEANUP = "retention.ms", "cleanup.policy"
SET, DELETE, APPEND, SUBTRACT = range(4)
# metadata.versions that a downgrade cannot cross without losing metadata.
LOSSY = (1, 3, 5, 6, 7, 8, 11, 13, 14, 15, 17, 23, 30)
NEWEST = 30
QUOTAS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")


def check_topic_value(name: str, value: str | None) -> None:
    """Raise for an invalid value of a topic configuration."""
    assert value is not None
    if name == MIN_ISR:
        is_right = value.isdigit() and int(value) >= 1
    elif name == UNCLEAN:
        is_right = value in ("true", "false")
    elif name == RETENTION:
        is_right = value.lstrip("-").isdigit() and int(value) >= -1
    elif name == CLEANUP:
        # An empty list is allowed: Kafka then keeps the log for ever.
        is_right = all(each in ("", "delete", "compact") for each in value.split(","))
    else:
        is_right = False
    if not is_right:
        raise RefusedError(40)


Change = tuple[str, str | None, int]
Resource = tuple[int, str]


def incremental_alter_configs(
    state: State, resources: Sequence[tuple[Resource, Sequence[Change]]], *, validate_only: bool
) -> TwinDecision:
    named = [resource for resource, _ in resources]
    response: dict[Resource, Any] = {}
    made: list[records.Config] = []
    for resource, changes in resources:
        if named.count(resource) > 1:
            response[resource] = RefusedError(42)
            continue
        try:
            made += _configured(state, resource, changes)
        except RefusedError as error:
            response[resource] = error
        else:
            response[resource] = None
    written: list[Record | Placed] = [*made]
    if state.is_elr_enabled:
        written += [
            records.ClearElr(topic_name=each.resource_name if each.resource_type == TOPIC else "")
            for each in made
            if each.name == MIN_ISR
        ]
    return TwinDecision([] if validate_only else written, response)


def _configured(
    state: State, resource: Resource, changes: Sequence[Change]
) -> list[records.Config]:
    kind, owner = resource
    if kind not in (TOPIC, BROKER):
        raise RefusedError(35)
    present = {
        name: value
        for (*known, name), value in state.rest["config"].items()
        if tuple(known) == resource
    }
    if len({name for name, _, _ in changes}) < len(changes):
        raise RefusedError(42)
    altered: dict[str, str | None] = {}
    for name, value, operation in changes:
        after = value if operation == SET else None
        if operation in (APPEND, SUBTRACT):
            if name != CLEANUP:
                raise RefusedError(40)
            assert value is not None
            entries = present.get(name, "delete").split(",")
            entries = [each for each in entries if each]
            for entry in value.split(","):
                if operation == APPEND and entry not in entries:
                    entries.append(entry)
                elif operation == SUBTRACT and entry in entries:
                    entries.remove(entry)
            after = ",".join(entries)
        if kind == BROKER or present.get(name) != after:
            altered[name] = after
    for name, after in altered.items():
        if kind == BROKER and name == MIN_ISR and state.is_elr_enabled and (owner or not after):
            raise RefusedError(40)
        if kind == BROKER and name in (MIN_ISR, UNCLEAN) and after is not None:
            check_topic_value(name, after)
    if kind == TOPIC:
        for name, after in (present | altered).items():
            if after is not None:
                check_topic_value(name, after)
        if owner not in state.table.topics:
            raise RefusedError(3)
    elif owner and int(owner) not in state.brokers and int(owner) not in state.rest["controller"]:
        raise RefusedError(102)
    return [records.Config(kind, owner, name, after) for name, after in altered.items()]


# -- features


def update_features(
    state: State,
    updates: Sequence[tuple[str, int, int]],
    broker_features: Mapping[int, Mapping[str, tuple[int, int]]],
) -> TwinDecision:
    """Update feature levels.

    ``updates`` are (name, level, upgrade type: 1 upgrade, 2 safe, 3 unsafe downgrade).
    """
    finalized = state.rest["feature"]
    proposed = finalized | {name: level for name, level, _ in updates}
    if len({name for name, _, _ in updates}) < len(updates):
        raise RefusedError(42)
    made: list[Record | Placed] = []
    for name, level, way in updates:
        current = finalized.get(name, 0)
        if level < 0 or (level < current and way == 1) or (level > current and way != 1):
            raise RefusedError(95)
        own = {METADATA_VERSION: (7, NEWEST), ELR: (0, 1)}
        for features in (own, *(broker_features[each] for each in state.brokers)):
            low, high = features.get(name, (0, 0))
            if not low <= level <= high:
                raise RefusedError(95)
        if name == METADATA_VERSION:
            if any(level < lossy <= current for lossy in LOSSY):
                raise RefusedError(95)
        elif level >= 1 and proposed[METADATA_VERSION] < 23:
            raise RefusedError(95)
        made.append(records.FeatureLevel(name=name, feature_level=level))
    levels = {name: level for name, level, _ in updates}
    if levels.get(ELR, 0) > 0:
        configs = state.rest["config"]
        first: list[Record | Placed] = []
        if (BROKER, "", MIN_ISR) not in configs:
            first.append(records.Config(BROKER, "", MIN_ISR, "1"))
        owners = [
            owner for kind, owner, name in configs if kind == BROKER and owner and name == MIN_ISR
        ]
        first += [records.Config(BROKER, owner, MIN_ISR, None) for owner in sorted(owners, key=int)]
        made = first + made
    return TwinDecision(made, levels)


# -- quotas and credentials


def alter_client_quotas(
    state: State, alterations: Sequence[tuple[Mapping[str, str | None], Sequence[Any]]]
) -> TwinDecision:
    made: list[Record | Placed] = []
    response: dict[Any, Any] = {}
    for parts, quotas in alterations:
        entity = tuple(sorted(parts.items()))
        if entity in response:
            response[entity] = RefusedError(42)
            continue
        response[entity] = None
        is_right = parts and set(parts) <= {"user", "client-id"} and "" not in parts.values()
        for key, value in quotas:
            is_right = is_right and key in QUOTAS
            if value is not None:
                is_whole = key == "request_percentage" or value == int(value)
                is_right = is_right and value > 0 and is_whole
        if not is_right:
            response[entity] = RefusedError(42)
            continue
        for key, value in quotas:
            present = state.rest["quota"].get((frozenset(entity), key))
            if present == value:
                continue
            made.append(
                records.ClientQuota(
                    entity=[records.EntityData(kind, name) for kind, name in entity],
                    key=key,
                    value=0.0 if value is None else value,
                    remove=value is None,
                )
            )
    return TwinDecision(made, response)


def alter_user_scram_credentials(
    state: State,
    deletions: Sequence[tuple[str, int]],
    upsertions: Sequence[tuple[str, int, int, bytes, bytes]],
) -> TwinDecision:
    """Alter credentials; upsertions are (user, mechanism, iterations, salt, salted password)."""
    if state.level < 11:
        return TwinDecision([], {user: RefusedError(35) for user, *_ in (*deletions, *upsertions)})
    users = [user for user, *_ in (*deletions, *upsertions)]
    made: list[Record | Placed] = []
    response: dict[str, Any] = {}
    changes: list[Sequence[Any]] = [*deletions, *upsertions]
    for user, mechanism, *said in changes:
        response[user] = None
        if users.count(user) > 1:
            response[user] = RefusedError(92)
        elif not user:
            response[user] = RefusedError(93)
        elif mechanism not in (1, 2):
            response[user] = RefusedError(33)
        elif said and not 4096 <= said[0] <= 16384:
            response[user] = RefusedError(93)
        elif said:
            made.append(_credential(user, mechanism, *said))
        elif (mechanism, user) not in state.rest["scram"]:
            response[user] = RefusedError(91)
        else:
            made.append(records.RemoveUserScramCredential(name=user, mechanism=mechanism))
    return TwinDecision(made, response)


def _credential(
    user: str, mechanism: int, iterations: int, salt: bytes, salted: bytes
) -> records.UserScramCredential:
    """Derive the keys by RFC 5802, section 3."""
    digest = "sha256" if mechanism == 1 else "sha512"
    client_key = hmac.digest(salted, b"Client Key", digest)
    return records.UserScramCredential(
        name=user,
        mechanism=mechanism,
        salt=salt,
        stored_key=hashlib.new(digest, client_key).digest(),
        server_key=hmac.digest(salted, b"Server Key", digest),
        iterations=iterations,
    )


# -- access control

#: The fields in which the ACLs of a test differ: name, principal and operation.
Acl = tuple[str, str, int]


def create_acls(state: State, acls: Sequence[Acl]) -> TwinDecision:
    """Create literal topic ACLs that allow all hosts."""
    made: list[Record | Placed] = []
    response: list[Any] = []
    known = set(state.rest["acl"].values())
    for name, principal, operation in acls:
        if not name or ":" not in principal or not 2 <= operation <= 14:
            response.append(RefusedError(42))
            continue
        response.append(None)
        if (name, principal, operation) not in known:
            known.add((name, principal, operation))
            made.append(
                records.AccessControlEntry(
                    id=Uuid(bytes(16)),
                    resource_type=TOPIC,
                    resource_name=name,
                    pattern_type=3,
                    principal=principal,
                    host="*",
                    operation=operation,
                    permission_type=3,
                )
            )
    return TwinDecision(made, response)


def delete_acls(state: State, filters: Sequence[tuple[str | None, str | None]]) -> TwinDecision:
    """Delete ACLs; filters are (name, principal), None for any."""
    gone: set[Uuid] = set()
    response = []
    for name, principal in filters:
        matching = {
            acl_id: acl
            for acl_id, acl in state.rest["acl"].items()
            if name in (None, acl[0]) and principal in (None, acl[1])
        }
        gone |= set(matching)
        response.append(sorted(matching.values()))
    return TwinDecision(
        [records.RemoveAccessControlEntry(id=acl_id) for acl_id in sorted(gone)], response
    )


def register_controller(state: State, asked: records.RegisterController) -> TwinDecision:
    if state.level < 15:
        raise RefusedError(35)
    return TwinDecision([asked], None)
