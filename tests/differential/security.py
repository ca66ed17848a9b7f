"""Operations on ACLs, credentials and tokens, and the activation records of a log."""

from __future__ import annotations

import base64
import hmac
import random
from typing import Any

from kraft import records
from kraft._core.bytes.batch_records import iterate
from kraft.controller.runtime import operations, security_requests
from kraft.controller.runtime.bootstrap import activation_records
from kraft.controller.security.acls import AclFilter
from kraft.controller.security.delegation_tokens import (
    TokenSettings,
    sweep_expired_delegation_tokens,
)
from kraft.controller.security.scram import ScramDeletion, ScramUpsertion
from kraft.controller.state import DecisionSettings
from kraft.errors import KraftError
from kraft.image.replay import MetadataState
from kraft.image.security import AccessControl
from kraft.records import (
    LATEST_PRODUCTION,
    MINIMUM_VERSION,
    Record,
    Uuid,
    decode_value,
    encode_value,
)
from kraft.records.batches import encode_records
from kraft.security.principals import KafkaPrincipal
from tests.differential.operation import Arguments, Decided, Operation, Request
from tests.differential.world import View, World

_PRINCIPALS = ("User:alice", "User:bob", "User:*", "Group:g", "nobody", "")
_HOSTS = ("*", "10.0.0.1")
_NAMES = ("a", "ab", "abc", "*", "topic-0", "kafka-cluster")
_PEOPLE = (("User", "alice"), ("User", "bob"), ("User", "carol"), ("Group", "alice"))
_DAY_MS = 86_400_000


def _code(error: KraftError | None) -> int:
    return 0 if error is None else error.kafka_code


def _drawn_acl(dice: random.Random) -> list[Any]:
    """Draw an ACL, mostly a valid one; ANY and MATCH never reach the manager."""
    resource_type = dice.choice((2, 2, 3, 4, 5, 6, 7, 7, 0 if dice.random() < 0.3 else 2))
    name = dice.choice(_NAMES if dice.random() < 0.97 else ("",))
    return [
        resource_type,
        # Any other name of a cluster is rejected before the manager is called.
        "kafka-cluster" if resource_type == 4 else name,
        dice.choice((3, 3, 4)) if dice.random() < 0.97 else 0,
        dice.choice(_PRINCIPALS[:4]) if dice.random() < 0.95 else dice.choice(_PRINCIPALS),
        dice.choice(_HOSTS),
        dice.choice((*range(2, 5), 15)) if dice.random() < 0.97 else dice.choice((0, 16)),
        dice.choice((2, 3)) if dice.random() < 0.97 else 0,
    ]


class CreateAcls(Request):
    """Create ACLs, some of them again."""

    name = "create_acls"
    weight = 12

    def arguments(self, dice: random.Random, world: View) -> Arguments:
        acls = [_drawn_acl(dice) for _ in range(dice.choice((1, 1, 2, 5)))]
        present = list(world.cluster.state.acls.values())
        if present and dice.random() < 0.3:
            acls.append(list(dice.choice(present)))
        if dice.random() < 0.2:
            acls.append(dice.choice(acls))
        return {"acls": acls, "seed": dice.randrange(1 << 40)}

    def asked(self, world: View, arguments: Arguments) -> operations.Operation:
        return security_requests.create_acls([AccessControl(*acl) for acl in arguments["acls"]])

    def answer(self, response: Any) -> Any:
        return list(map(_code, response))


class DeleteAcls(Request):
    """Delete ACLs by filters of every type."""

    name = "delete_acls"
    weight = 8

    def arguments(self, dice: random.Random, world: View) -> Arguments:
        present = list(world.cluster.state.acls.values())
        filters = []
        for _ in range(dice.choice((1, 1, 2))):
            acl: list[Any] = list(dice.choice(present)) if present else _drawn_acl(dice)
            for at, anything in ((0, 1), (1, None), (3, None), (4, None), (5, 1), (6, 1)):
                if dice.random() < 0.5:
                    acl[at] = anything
            acl[2] = dice.choice((1, 2, 2, 3, 4))
            if acl[1] is not None and dice.random() < 0.3:
                acl[1] += dice.choice(("b", "bc", "x"))
            if dice.random() < 0.05:
                acl[dice.choice((0, 2, 5, 6))] = 0
            filters.append(acl)
        return {"filters": filters}

    def asked(self, world: View, arguments: Arguments) -> operations.Operation:
        filters = [AclFilter(*wanted) for wanted in arguments["filters"]]
        return security_requests.delete_acls(filters)

    def answer(self, response: Any) -> Any:
        return [
            one.kafka_code if isinstance(one, KraftError) else sorted(list(acl) for acl in one)
            for one in response
        ]

    def understood(self, response: Any) -> Any:
        # In the order of a hash table by id.
        return [one if isinstance(one, int) else sorted(one) for one in response]


class AlterScramCredentials(Request):
    """Set and delete credentials, some users twice in one request."""

    name = "alter_scram_credentials"
    weight = 12

    def arguments(self, dice: random.Random, world: View) -> Arguments:
        def user() -> str:
            return dice.choice(("alice", "bob", "carol")) if dice.random() < 0.95 else ""

        def mechanism() -> int:
            return dice.choice((1, 2)) if dice.random() < 0.95 else dice.choice((0, 3))

        deletions = [
            {"name": user(), "mechanism": mechanism()} for _ in range(dice.choice((0, 1, 1, 2)))
        ]
        upsertions = [
            {
                "name": user(),
                "mechanism": mechanism(),
                "iterations": dice.choice((4096, 8192, 16384, 4095, 16385, 4096, 4096)),
                "salt": base64.b64encode(dice.randbytes(dice.randrange(20))).decode(),
                "saltedPassword": base64.b64encode(dice.randbytes(dice.randrange(1, 200))).decode(),
            }
            for _ in range(dice.choice((0, 1, 1, 2)))
        ]
        return {"request": {"deletions": deletions, "upsertions": upsertions}}

    def asked(self, world: View, arguments: Arguments) -> operations.Operation:
        request = arguments["request"]
        return security_requests.alter_user_scram_credentials(
            [ScramDeletion(one["name"], one["mechanism"]) for one in request["deletions"]],
            [
                ScramUpsertion(
                    one["name"],
                    one["mechanism"],
                    one["iterations"],
                    base64.b64decode(one["salt"]),
                    base64.b64decode(one["saltedPassword"]),
                )
                for one in request["upsertions"]
            ],
        )

    def answer(self, response: Any) -> Any:
        return sorted([user, _code(error)] for user, error in response.items())

    def understood(self, response: Any) -> Any:
        return sorted(response)


def _settings(world: View) -> TokenSettings:
    secret = world.setup["token_secret"]
    return TokenSettings(
        None if secret is None else secret.encode(),
        max_lifetime_ms=world.setup["token_max_life_ms"],
        expiry_time_ms=world.setup["token_expiry_ms"],
    )


class _TokenRequest(Request):
    """A token request: Kafka puts its errors into the response."""

    def refusal(self, error: KraftError) -> Any:
        return [error.kafka_code]

    def answer(self, response: Any) -> Any:
        return [0, response]


class CreateToken(_TokenRequest):
    """Create a token, for oneself or another owner, with valid and invalid renewers."""

    name = "create_token"
    weight = 12

    def arguments(self, dice: random.Random, world: View) -> Arguments:
        owner = dice.choice(_PEOPLE) if dice.random() < 0.4 else (None, dice.choice((None, "")))
        renewers = [
            dice.choice(_PEOPLE[:3]) if dice.random() < 0.95 else ("Group", "g")
            for _ in range(dice.randrange(3))
        ]
        return {
            "requester": dice.choice(_PEOPLE),
            "request": {
                "ownerPrincipalType": owner[0],
                "ownerPrincipalName": owner[1],
                "renewers": [
                    {"principalType": type, "principalName": name} for type, name in renewers
                ],
                "maxLifetimeMs": dice.choice((-1, 0, 5_000, 20_000, 9 * _DAY_MS)),
            },
            "seed": dice.randrange(1 << 40),
        }

    def asked(self, world: View, arguments: Arguments) -> operations.Operation:
        request = arguments["request"]
        owner = request["ownerPrincipalType"], request["ownerPrincipalName"]
        return security_requests.create_delegation_token(
            KafkaPrincipal(*arguments["requester"]),
            _settings(world),
            owner=KafkaPrincipal(*owner) if owner[1] else None,
            renewers=[
                KafkaPrincipal(one["principalType"], one["principalName"])
                for one in request["renewers"]
            ],
            max_lifetime_ms=request["maxLifetimeMs"],
        )

    def answer(self, response: Any) -> Any:
        token = response.token
        answer = [0, response.token_id, response.hmac.hex(), token.owner, token.issue_timestamp_ms]
        return [*answer, token.expiration_timestamp_ms, token.max_timestamp_ms]

    def random(self, world: View, response: Any, drawn: bytes) -> bytes:
        # Kafka draws the id before it checks the renewers, but only if tokens are enabled.
        is_drawn = _settings(world).secret_key is not None and world.level >= 14
        return drawn if is_drawn else b""


def _held(dice: random.Random, world: View) -> Arguments | None:
    """Draw a requester with the HMAC of a token, mostly one who may renew it."""
    tokens = world.cluster.state.delegation_tokens
    secret = world.setup["token_secret"]
    if not tokens and dice.random() < 0.8:
        return None
    if tokens and secret is not None and dice.random() < 0.97:
        token_id = dice.choice(sorted(tokens))
        shown = hmac.digest(secret.encode(), token_id.encode(), "sha512")
        token = tokens[token_id]
        who = dice.choice((token.owner, *token.renewers)).split(":")
        if dice.random() < 0.1:
            who = list(dice.choice(_PEOPLE))
    else:
        shown, who = dice.randbytes(64), list(dice.choice(_PEOPLE))
    return {"requester": who, "hmac": shown.hex()}


class RenewToken(_TokenRequest):
    """Renew a token."""

    name = "renew_token"
    weight = 10

    def arguments(self, dice: random.Random, world: View) -> Arguments | None:
        held = _held(dice, world)
        return held and {**held, "period_ms": dice.choice((-1, 0, 1, 10_000, 9 * _DAY_MS))}

    def asked(self, world: View, arguments: Arguments) -> operations.Operation:
        return security_requests.renew_delegation_token(
            KafkaPrincipal(*arguments["requester"]),
            bytes.fromhex(arguments["hmac"]),
            _settings(world),
            arguments["period_ms"],
        )


class ExpireToken(_TokenRequest):
    """Let a token expire, or remove it."""

    name = "expire_token"
    weight = 6

    def arguments(self, dice: random.Random, world: View) -> Arguments | None:
        held = _held(dice, world)
        periods = (-1, -1, 0, 1, 10_000, 9 * _DAY_MS, (1 << 63) - 1)
        return held and {**held, "period_ms": dice.choice(periods)}

    def asked(self, world: View, arguments: Arguments) -> operations.Operation:
        return security_requests.expire_delegation_token(
            KafkaPrincipal(*arguments["requester"]),
            bytes.fromhex(arguments["hmac"]),
            _settings(world),
            arguments["period_ms"],
        )


class ExpireTokens(Operation):
    """The periodic removal of expired tokens."""

    name = "expire_tokens"
    weight = 6

    def arguments(self, dice: random.Random, world: View) -> Arguments:
        return {}

    def decide(self, world: World, arguments: Arguments) -> Decided:
        decision = sweep_expired_delegation_tokens(world.cluster, world.now_ms)
        return Decided(decision, decision.response)


class Activation(Operation):
    """Activate a controller on a separate log."""

    name = "activation"
    weight = 3

    def arguments(self, dice: random.Random, world: View) -> Arguments:
        levels = range(MINIMUM_VERSION, LATEST_PRODUCTION + 2)  # 4.3.1 begins at 31 too
        bootstrap: list[Record] = [
            records.FeatureLevel("metadata.version", dice.choice((*levels, 12, 13, 30)))
        ]
        for feature in ("eligible.leader.replicas.version", "group.version"):
            if dice.random() < 0.5:
                bootstrap.append(records.FeatureLevel(feature, dice.randrange(2)))
        dice.shuffle(bootstrap)
        return {
            "level": dice.choice((None, None, 7, 12, 13, 30)),
            "open": dice.random() < 0.3,
            "bootstrap": [encode_value(record).hex() for record in bootstrap],
            "min_isr": dice.randrange(1, 4),
        }

    def decide(self, world: World, arguments: Arguments) -> Decided:
        # Any record of a log; it is also part of an open transaction.
        written: list[Record] = [records.Topic("t", Uuid(b"t" * 16))]
        if arguments["level"] is not None:
            written.append(records.FeatureLevel("metadata.version", arguments["level"]))
        if arguments["open"]:
            written += [records.BeginTransaction(), records.RemoveTopic(Uuid(b"t" * 16))]
        cluster = MetadataState(journaling=True)
        cluster.apply(encode_records(written))
        bootstrap = [decode_value(bytes.fromhex(value)) for value in arguments["bootstrap"]]
        settings = DecisionSettings(min_insync_replicas=arguments["min_isr"])
        first = activation_records(cluster, bootstrap, settings)
        values = (record.value for batch in iterate(first.batches) for record in batch)
        return Decided(None, [(value or b"").hex() for value in values])


OPERATIONS: tuple[Operation, ...] = (
    Activation(),
    CreateAcls(),
    DeleteAcls(),
    AlterScramCredentials(),
    CreateToken(),
    RenewToken(),
    ExpireToken(),
    ExpireTokens(),
)
