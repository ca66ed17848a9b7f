"""A slow twin of ``kraft.image.ClusterState``: plain dictionaries, rebuilt from the first record.

Each rule is one branch, written from the specification of the records. ``RefusedError`` stands for
every error on which Kafka's nodes stop.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kraft import records
from kraft.image.view import StateView
from kraft.records import Record


class RefusedError(Exception):
    """The record contradicts the state."""


Plain = dict[str, dict[Any, Any]]

KINDS = ("broker", "controller", "feature", "config", "quota", "acl", "scram", "token", "producer")


def replayed(log: Iterable[tuple[int, Record]]) -> Plain:
    """Return the state after these (offset, record) pairs."""
    state: Plain = {kind: {} for kind in KINDS}
    for offset, record in log:
        step(state, record, offset)
    return state


def step(state: Plain, record: Record, offset: int) -> None:
    match record:
        case records.RegisterBroker():
            state["broker"][record.broker_id] = {
                "epoch": record.broker_epoch,
                "incarnation": record.incarnation_id,
                "listeners": {(p.name, p.host, p.port) for p in record.end_points},
                "rack": record.rack,
                "fenced": record.fenced,
                "in_controlled_shutdown": record.in_controlled_shutdown,
                "log_dirs": frozenset(record.log_dirs),
                "cordoned": record.cordoned_log_dirs,
                "offset": offset,
            }
        case records.UnregisterBroker():
            _broker(state, record.broker_id, record.broker_epoch)
            del state["broker"][record.broker_id]
        case records.FenceBroker():
            _broker(state, record.id, record.epoch)["fenced"] = True
        case records.UnfenceBroker():
            _broker(state, record.id, record.epoch)["fenced"] = False
        case records.BrokerRegistrationChange():
            broker = _broker(state, record.broker_id, record.broker_epoch)
            if record.fenced not in (-1, 0, 1) or record.in_controlled_shutdown not in (0, 1):
                raise RefusedError
            if record.fenced != 0:
                broker["fenced"] = record.fenced == 1
            if record.in_controlled_shutdown == 1:
                broker["in_controlled_shutdown"] = True
            if record.log_dirs:
                broker["log_dirs"] = frozenset(record.log_dirs)
            if record.cordoned_log_dirs is not None:
                broker["cordoned"] = record.cordoned_log_dirs
        case records.RegisterController():
            state["controller"][record.controller_id] = record.incarnation_id
        case records.UnregisterController():
            _require_key(state["controller"], record.controller_id)
            del state["controller"][record.controller_id]
        case records.FeatureLevel():
            if record.name == "metadata.version":
                if not 1 <= record.feature_level <= 33:
                    raise RefusedError
            elif record.name == "kraft.version":
                return
            elif record.feature_level < 0:
                raise RefusedError
            state["feature"][record.name] = record.feature_level
            if record.feature_level == 0:
                state["feature"].pop(record.name)
        case records.Config():
            key = (record.resource_type, record.resource_name, record.name)
            state["config"][key] = record.value
            if record.value is None:
                del state["config"][key]
        case records.ClientQuota():
            entity = frozenset((part.entity_type, part.entity_name) for part in record.entity)
            state["quota"][entity, record.key] = record.value
            if record.remove:
                del state["quota"][entity, record.key]
        case records.ProducerIds():
            if record.next_producer_id <= state["producer"].get("next", -1):
                raise RefusedError
            state["producer"]["next"] = record.next_producer_id
        case records.AccessControlEntry():
            state["acl"][record.id] = (record.resource_name, record.principal, record.operation)
        case records.RemoveAccessControlEntry():
            _require_key(state["acl"], record.id)
            del state["acl"][record.id]
        case records.UserScramCredential():
            state["scram"][record.mechanism, record.name] = (record.salt, record.iterations)
        case records.RemoveUserScramCredential():
            _require_key(state["scram"], (record.mechanism, record.name))
            del state["scram"][record.mechanism, record.name]
        case records.DelegationToken():
            state["token"][record.token_id] = (record.owner, record.expiration_timestamp)
        case records.RemoveDelegationToken():
            state["token"].pop(record.token_id, None)
        case _:
            raise AssertionError(f"the twin has no rule for {record}")


def plain(state: StateView) -> Plain:
    """Return a ``ClusterState`` in the same form."""
    return {
        "broker": {
            broker.id: {
                "epoch": broker.epoch,
                "incarnation": broker.incarnation_id,
                "listeners": {(p.name, p.host, p.port) for p in broker.endpoints.values()},
                "rack": broker.rack,
                "fenced": broker.fenced,
                "in_controlled_shutdown": broker.in_controlled_shutdown,
                "log_dirs": frozenset(broker.log_dirs),
                "cordoned": (
                    None if broker.cordoned_log_dirs is None else list(broker.cordoned_log_dirs)
                ),
                "offset": broker.registration_offset,
            }
            for broker in state.brokers.values()
        },
        "controller": {each.id: each.incarnation_id for each in state.controllers.values()},
        "feature": dict(state.features),
        "config": {
            (resource_type, resource, name): value
            for (resource_type, resource), settings in state.configs.items()
            for name, value in settings.items()
        },
        "quota": {
            (frozenset(entity), key): value
            for entity, quotas in state.client_quotas.items()
            for key, value in quotas.items()
        },
        "acl": {
            acl_id: (acl.resource_name, acl.principal, acl.operation)
            for acl_id, acl in state.acls.items()
        },
        "scram": {
            key: (credential.salt, credential.iterations)
            for key, credential in state.scram_credentials.items()
        },
        "token": {
            token_id: (token.owner, token.expiration_timestamp_ms)
            for token_id, token in state.delegation_tokens.items()
        },
        "producer": {} if state.next_producer_id < 0 else {"next": state.next_producer_id},
    }


def _broker(state: Plain, broker_id: int, epoch: int) -> dict[str, Any]:
    broker: dict[str, Any] | None = state["broker"].get(broker_id)
    if broker is None or broker["epoch"] != epoch:
        raise RefusedError
    return broker


def _require_key(entries: dict[Any, Any], key: Any) -> None:
    if key not in entries:
        raise RefusedError
