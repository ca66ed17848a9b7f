"""Random requests about configurations, features, quotas, credentials, ACLs and controllers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kraft import records
from kraft.controller.brokers.controller_registration import ControllerRegistrationRequest
from kraft.controller.brokers.listeners import feature_structs, listener_structs
from kraft.controller.configs.client_quotas import QuotaAlteration
from kraft.controller.configs.config_changes import ConfigChange
from kraft.controller.features import FeatureUpdate, LocalFeatures
from kraft.controller.runtime import requests
from kraft.controller.runtime.operations import Operation
from kraft.controller.security import acls as acl_duty
from kraft.controller.security.scram import (
    ScramDeletion,
    ScramUpsertion,
    alter_user_scram_credentials,
)
from kraft.image import NodeEndpoint, VersionRange
from kraft.image.security import AccessControl
from tests.property.controller_dice import (
    CONFIGS,
    SUPPORTED,
    Dice,
    ask,
    now_and_then,
    some_broker,
    some_topic,
)
from tests.property.controller_quorum import ModelledQuorum
from tests.reference import controller_rest_twin as rest_twin
from tests.reference.controller_state_twin import BROKER, ELR, METADATA_VERSION, TOPIC


def configure(quorum: ModelledQuorum, dice: Dice) -> None:
    resources: list[tuple[rest_twin.Resource, list[rest_twin.Change]]] = []
    for _ in range(dice.choice((1, 1, 2))):
        if dice.random() < 0.6:
            resource, number = (TOPIC, some_topic(quorum, dice)[0]), 3
        else:
            owner = dice.choice(("", "", str(some_broker(quorum, dice))))
            resource, number = (BROKER, owner), 2
        if now_and_then(dice):
            resource = (7, "x")
        changes: list[rest_twin.Change] = []
        for name, values in CONFIGS[:number]:
            if dice.random() < 0.5:
                some = values if now_and_then(dice) else values[:3]
                is_set = dice.random() < 0.7
                changes.append(
                    (name, dice.choice(some), rest_twin.SET)
                    if is_set
                    else (name, None, rest_twin.DELETE)
                )
        if resource[0] == TOPIC and dice.random() < 0.3:
            way = dice.choice((rest_twin.SET, rest_twin.APPEND, rest_twin.SUBTRACT))
            changes.append((rest_twin.CLEANUP, dice.choice(("compact", "delete,compact")), way))
        resources.append((resource, changes))
    validate_only = now_and_then(dice)
    ask(
        quorum,
        dice,
        requests.incremental_alter_configs(
            [(one, [ConfigChange(*change) for change in some]) for one, some in resources],
            validate_only=validate_only,
        ),
        lambda: rest_twin.incremental_alter_configs(
            quorum.state, resources, validate_only=validate_only
        ),
    )


def update_features(quorum: ModelledQuorum, dice: Dice) -> None:
    level = quorum.controller.cluster.state.metadata_version
    updates = []
    if dice.random() < 0.4:
        wanted = dice.choice((level + 1, 13, 17, 23, 30, level - 1))
        updates.append((METADATA_VERSION, wanted, dice.choice((1, 1, 1, 2, 3))))
    if not updates or dice.random() < 0.3:
        odd = (ELR, dice.choice((0, 1, 2, -1)), dice.choice((1, 2, 3)))
        updates.append(dice.choice(((ELR, 1, 1), (ELR, 1, 1), (ELR, 0, 2), odd)))
    if now_and_then(dice):
        updates.append(dice.choice((updates[0], ("unknown", 1, 1))))

    def features() -> dict[int, dict[str, tuple[int, int]]]:
        """Return the features that each broker registered last."""
        found = {}
        for _, record in quorum.state.log:
            if isinstance(record, records.RegisterBroker):
                found[record.broker_id] = {
                    each.name: (each.min_supported_version, each.max_supported_version)
                    for each in record.features
                }
        return found

    ask(
        quorum,
        dice,
        requests.update_features([FeatureUpdate(*each) for each in updates], LocalFeatures(0)),
        lambda: rest_twin.update_features(quorum.state, updates, features()),
        lambda answer: dict(answer.levels),
    )


def alter_client_quotas(quorum: ModelledQuorum, dice: Dice) -> None:
    alterations: list[tuple[Mapping[str, str | None], Sequence[Any]]] = []
    for _ in range(dice.choice((1, 2))):
        parts: dict[str, str | None] = {}
        for kind in ("user", "client-id"):
            if dice.random() < 0.6:
                parts[kind] = "" if now_and_then(dice) else dice.choice((None, "x", "y"))
        quotas = [
            (key, dice.choice((None, 1.0, 5.0, 0.0 if now_and_then(dice) else 2.0)))
            for key in rest_twin.QUOTAS
            if dice.random() < 0.5
        ]
        alterations.append((parts, quotas))
    ask(
        quorum,
        dice,
        requests.alter_client_quotas([QuotaAlteration(*each) for each in alterations]),
        lambda: rest_twin.alter_client_quotas(quorum.state, alterations),
    )


def alter_credentials(quorum: ModelledQuorum, dice: Dice) -> None:
    deletions, upsertions = [], []
    for user in dice.sample(("u", "v", "w"), dice.choice((1, 2))):
        mechanism = 3 if now_and_then(dice) else dice.choice((1, 2))
        if dice.random() < 0.4:
            deletions.append((user, mechanism))
        else:
            iterations = dice.choice((4096, 8192, 4095 if now_and_then(dice) else 16384))
            salted = bytes((dice.randrange(256), 1))
            upsertions.append((user, mechanism, iterations, b"salt", salted))
    ask(
        quorum,
        dice,
        Operation(
            "alter credentials",
            lambda context: alter_user_scram_credentials(
                context.cluster,
                deletions=[ScramDeletion(*each) for each in deletions],
                upsertions=[ScramUpsertion(*each) for each in upsertions],
            ),
        ),
        lambda: rest_twin.alter_user_scram_credentials(quorum.state, deletions, upsertions),
    )


ACL_NAMES = ("a", "d", "x")
PRINCIPALS = ("User:x", "User:y")


def create_acls(quorum: ModelledQuorum, dice: Dice) -> None:
    acls = [
        (
            "" if now_and_then(dice) else dice.choice(ACL_NAMES),
            "nobody" if now_and_then(dice) else dice.choice(PRINCIPALS),
            dice.choice((3, 4, 1 if now_and_then(dice) else 5)),
        )
        for _ in range(dice.choice((1, 2, 3)))
    ]
    asked = [
        AccessControl(TOPIC, name, 3, principal, "*", operation, 3)
        for name, principal, operation in acls
    ]
    ask(
        quorum,
        dice,
        Operation(
            "create acls",
            lambda context: acl_duty.create_acls(
                context.cluster, asked, random_uuid=context.random_uuid
            ),
        ),
        lambda: rest_twin.create_acls(quorum.state, acls),
    )


def delete_acls(quorum: ModelledQuorum, dice: Dice) -> None:
    filters = [
        (dice.choice((None, *ACL_NAMES)), dice.choice((None, *PRINCIPALS)))
        for _ in range(dice.choice((1, 1, 2)))
    ]
    asked = [
        acl_duty.AclFilter(resource_name=name, principal=principal) for name, principal in filters
    ]
    ask(
        quorum,
        dice,
        Operation("delete acls", lambda context: acl_duty.delete_acls(context.cluster, asked)),
        lambda: rest_twin.delete_acls(quorum.state, filters),
        lambda answer: [
            [(acl.resource_name, acl.principal, acl.operation) for acl in found] for found in answer
        ],
    )


def register_controller(quorum: ModelledQuorum, dice: Dice) -> None:
    asked = ControllerRegistrationRequest(
        dice.choice((0, 1, 2)),
        quorum.new_id(),
        [NodeEndpoint("CONTROLLER", "localhost", 9093, 0)],
        {name: VersionRange(*levels) for name, levels in SUPPORTED.items()},
    )
    said = records.RegisterController(
        controller_id=asked.controller_id,
        incarnation_id=asked.incarnation_id,
        end_points=listener_structs(asked.endpoints),
        features=feature_structs(asked.features),
    )
    ask(
        quorum,
        dice,
        requests.register_controller(asked),
        lambda: rest_twin.register_controller(quorum.state, said),
    )
