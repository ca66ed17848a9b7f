"""Turn znodes of users and clients into records: quotas, SCRAM credentials, ACLs, tokens.

Pure. `kraft.zookeeper.migration` calls each function and describes what they have in common. Rules:
``ZkConfigMigrationClient``, ``ZkAclMigrationClient``, ``AclAuthorizer``, ``AclEntry``,
``DelegationTokenManagerZk`` of Kafka 3.9. No error and no note holds a secret.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from enum import IntEnum
from typing import TypeVar
from urllib.parse import unquote_plus

from kraft.errors import CorruptZnodeError
from kraft.image.quotas import CLIENT_ID, IP, USER
from kraft.image.security import AclOperation, PatternType, PermissionType, ResourceType
from kraft.metadata.identifiers import hashed_uuid
from kraft.records import (
    ZERO_UUID,
    AccessControlEntry,
    ClientQuota,
    DelegationToken,
    EntityData,
    Record,
    UserScramCredential,
    Uuid,
)
from kraft.security.sasl.scram import SCRAM_MECHANISMS
from kraft.zookeeper.checked_values import (
    DEFAULT_ENTITY,
    INT32_MAX,
    INT64_MAX,
    configs_of,
    named,
    number,
    text_of,
)
from kraft.zookeeper.tree import ZnodeTree
from kraft.zookeeper.znodes import ACLS, CONFIG, PREFIXED_ACLS, JsonZnode, config_path

TOKENS = "/delegation_token/tokens"

#: What ``Double.parseDouble`` takes; Python's ``float`` takes underscores too.
_DOUBLE = re.compile(
    r"[+-]?(NaN|Infinity|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?)[fFdD]?", re.ASCII
)
_SCRAM_FIELDS = ("salt", "stored_key", "server_key", "iterations")
_ACL_VERSION, _TOKEN_VERSIONS = 1, (1, 3)

E = TypeVar("E", bound=IntEnum)


# -- client quotas and SCRAM credentials


def migrated_quotas(tree: ZnodeTree) -> Iterator[Record]:
    """Yield the credentials and quotas of users, then the quotas of clients, of users' clients, and
    of IP addresses.
    """
    yield from _entities(tree, "users", USER)
    yield from _entities(tree, "clients", CLIENT_ID)
    for user in tree.children(f"{CONFIG}/users"):
        for client in tree.children(config_path("users", f"{user}/clients")):
            name = f"{user}/clients/{client}"
            path = config_path("users", name)
            entity = [_entity(path, USER, user), _entity(path, CLIENT_ID, client)]
            yield from _quotas(path, entity, configs_of(tree, "users", name))
    yield from _entities(tree, "ips", IP)


def _entities(tree: ZnodeTree, znode_type: str, entity_type: str) -> Iterator[Record]:
    for name in tree.children(f"{CONFIG}/{znode_type}"):
        path = config_path(znode_type, name)
        settings = configs_of(tree, znode_type, name)
        for mechanism in SCRAM_MECHANISMS.values():
            credential = settings.pop(mechanism.name, None)
            if credential is not None:
                yield _credential(path, _plain(path, name), mechanism.number, credential)
        yield from _quotas(path, [_entity(path, entity_type, name)], settings)


def _entity(path: str, entity_type: str, name: str) -> EntityData:
    return EntityData(entity_type, None if name == DEFAULT_ENTITY else _plain(path, name))


def _plain(path: str, name: str) -> str:
    """Return the name of which Kafka made a znode's (``Sanitizer``: as in the query of a URL)."""
    try:
        return unquote_plus(name, errors="strict")
    except UnicodeDecodeError:
        raise CorruptZnodeError(f"{path} is named by bytes that are not UTF-8") from None


def _quotas(path: str, entity: list[EntityData], settings: dict[str, str]) -> Iterator[Record]:
    for key, value in settings.items():
        text = value.strip()
        if not _DOUBLE.fullmatch(text):
            raise CorruptZnodeError(f"{path}: {key} is {value!r:.60}, not a number")
        quota = float(text.rstrip("fFdD").replace("Infinity", "inf"))
        yield ClientQuota(entity, key, quota, False)


def _credential(path: str, user: str, mechanism: int, text: str) -> UserScramCredential:
    """Return the record of ``salt=…,stored_key=…,server_key=…,iterations=…``, in any order."""
    fields = dict(each.partition("=")[::2] for each in text.split(","))
    if sorted(fields) != sorted(_SCRAM_FIELDS):
        raise CorruptZnodeError(
            f"{path}: a SCRAM credential has not the fields {', '.join(_SCRAM_FIELDS)}"
        )
    iterations = fields["iterations"]
    if not re.fullmatch(r"[0-9]{1,10}", iterations, re.ASCII):
        raise CorruptZnodeError(f"{path}: the iterations of a SCRAM credential are not a number")
    return UserScramCredential(
        user,
        mechanism,
        _bytes(path, "salt", fields["salt"]),
        _bytes(path, "stored_key", fields["stored_key"]),
        _bytes(path, "server_key", fields["server_key"]),
        number(path, "iterations", int(iterations), 1, INT32_MAX),
    )


def _bytes(path: str, name: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise CorruptZnodeError(f"{path}: the {name} of a SCRAM credential is not base64") from None


# -- ACLs


def migrated_acls(tree: ZnodeTree, notes: list[str]) -> Iterator[Record]:
    """Yield the ACLs of literal, then those of prefixed resources.

    Their ids are hashes of the content: a tree makes the same records each time.
    """
    types = {_pascal_case(each): each for each in ResourceType if each > ResourceType.ANY}
    unknown: list[str] = []
    for root, pattern in ((ACLS, PatternType.LITERAL), (PREFIXED_ACLS, PatternType.PREFIXED)):
        for type_name in tree.children(root):
            if type_name not in types:
                unknown.append(f"{root}/{type_name}")
                continue
            for name in tree.children(f"{root}/{type_name}"):
                path = f"{root}/{type_name}/{name}"
                yield from _acls(path, tree.data(path), types[type_name], name, pattern)
    if unknown:
        notes.append(
            f"left out, because Kafka does not know this type of resource: "
            f"{named(unknown, 'znode')}"
        )


def _acls(
    path: str, data: bytes, resource: ResourceType, name: str, pattern: PatternType
) -> Iterator[Record]:
    if not data:
        return
    znode = JsonZnode(path, data)
    if (version := znode.integer("version")) != _ACL_VERSION:
        raise CorruptZnodeError(f"{path}: version is {version}, not {_ACL_VERSION}")
    seen: set[Uuid] = set()
    for each in znode.documents("acls"):
        record = AccessControlEntry(
            ZERO_UUID,
            resource,
            name,
            pattern,
            _principal(path, each.text("principal")),
            text_of(path, each.text("host")),
            _constant(path, "operation", each.text("operation"), AclOperation),
            _constant(path, "permissionType", each.text("permissionType"), PermissionType),
        )
        record.id = _id_of(record)
        if record.id not in seen:
            seen.add(record.id)
            yield record


def _id_of(record: AccessControlEntry) -> Uuid:
    content = (
        *(int(record.resource_type), record.resource_name, int(record.pattern_type)),
        *(record.principal, record.host, int(record.operation), int(record.permission_type)),
    )
    return hashed_uuid(repr(content).encode())


def _principal(path: str, text: str) -> str:
    if ":" not in text:
        raise CorruptZnodeError(f"{path}: principal is {text!r:.60}, not of the form Type:name")
    return text_of(path, text)


def _constant(path: str, what: str, text: str, constants: type[E]) -> E:
    """Return a constant by its name in PascalCase, or all in capitals as old tools wrote it."""
    for each in constants:
        # The first two are UNKNOWN and ANY, which no ACL has.
        if each > 1 and text in (_pascal_case(each), _pascal_case(each).upper()):
            return each
    raise CorruptZnodeError(f"{path}: {what} is {text!r:.60}, which Kafka does not know")


def _pascal_case(constant: IntEnum) -> str:
    return constant.name.title().replace("_", "")


# -- delegation tokens


def migrated_tokens(tree: ZnodeTree) -> Iterator[Record]:
    """Yield the delegation tokens, which have no secret of their own."""
    for token_id in tree.children(TOKENS):
        path = f"{TOKENS}/{token_id}"
        data = tree.data(path)
        if not data:
            continue
        znode = JsonZnode(path, data)
        version = znode.integer("version")
        number(path, "version", version, *_TOKEN_VERSIONS)
        owner = _token_principal(path, znode.text("owner"))
        requester = owner
        if version >= 3:
            requester = _token_principal(path, znode.text("tokenRequester"))
        yield DelegationToken(
            owner,
            requester,
            [_token_principal(path, each) for each in znode.texts("renewers")],
            _time_ms(znode, path, "issueTimestamp"),
            _time_ms(znode, path, "maxTimestamp"),
            _time_ms(znode, path, "expiryTimestamp"),
            text_of(path, znode.text("tokenId")),
        )


def _token_principal(path: str, text: str) -> str:
    return _principal(path, _plain(path, text))


def _time_ms(znode: JsonZnode, path: str, name: str) -> int:
    return number(path, name, znode.integer(name), -INT64_MAX, INT64_MAX)
