"""The metadata as a tree of nodes, with the names of Kafka's shell.

A directory makes a child when it is asked for, so that a million partitions cost nothing before
somebody looks at them. The nodes read the state at each call: over a live state they stay current.
Sources: the classes of ``org.apache.kafka.image.node`` and ``org.apache.kafka.shell.node`` (4.3.1).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import cast

from kraft.configdef import double_text
from kraft.errors import (
    InvalidArgumentError,
    UnknownTopicIdError,
    UnknownTopicNameError,
    UnknownTopicOrPartitionError,
)
from kraft.image.configs import RESOURCE_TYPES
from kraft.image.diff import HIDDEN
from kraft.image.features import KRAFT_VERSION
from kraft.image.quotas import CLIENT_ID, IP, USER, QuotaEntity, quota_entity
from kraft.metadata.kafka_json import is_secret_setting
from kraft.metadata.partitions import TopicInfo
from kraft.metadata.view import MetadataView
from kraft.records.versions import METADATA_VERSION, MetadataVersion
from kraft.shell import node_text
from kraft.version import VERSION


@dataclass(frozen=True, slots=True)
class ShellFile:
    """A node with text and no children; ``text`` is computed at each call."""

    text: Callable[[], str]


@dataclass(frozen=True, slots=True)
class ShellDirectory:
    """A node with children.

    ``names`` returns their names in any order, ``child`` one of them or None. Kafka lists the
    quotas of default entities by a name that leads to no node, "".
    """

    names: Callable[[], Iterable[str]]
    child: Callable[[str], ShellNode | None]

    def sorted_names(self) -> list[str]:
        """Return the names in the order of Java's String.compareTo, by UTF-16 units."""
        names = list(self.names())
        if all(map(str.isascii, names)):
            names.sort()
        else:
            names.sort(key=lambda name: name.encode("utf-16-be", "surrogatepass"))
        return names


ShellNode = ShellFile | ShellDirectory

_FINALIZED = "finalized_"
_SCRAM_MECHANISMS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
#: As a name of the tree: the type in capitals, and behind a colon the name of the resource.
_CONFIG_TYPES = {number: name.upper() for number, name in RESOURCE_TYPES.items()}
_QUOTA_TYPES = {CLIENT_ID: "clientId", IP: "ip", USER: "user"}
_QUOTA_PART = re.compile(r"(clientId|ip|user)\(((?:[^\\)]|\\.)*)\)(?:_(?!$)|$)", re.DOTALL)


def root_of(metadata: MetadataView, *, show_secrets: bool = False) -> ShellDirectory:
    """Return the root of the tree; ``show_secrets`` shows credentials and passwords."""
    return _fixed(
        {
            "image": lambda: _image(metadata, show_secrets),
            "local": lambda: _fixed(
                # Kafka's are those of the shell's own build as well, not of the cluster.
                {"version": lambda: _file(VERSION), "commitId": lambda: _file("unknown")}
            ),
        }
    )


def _image(metadata: MetadataView, show_secrets: bool) -> ShellDirectory:
    return _fixed(
        {
            "acls": lambda: _fixed({"byId": lambda: _acls(metadata)}),
            "clientQuotas": lambda: _quotas(metadata),
            "cluster": lambda: _fixed(
                {
                    "brokers": lambda: _by_id(lambda: metadata.brokers, node_text.broker),
                    "controllers": lambda: _by_id(
                        lambda: metadata.controllers, node_text.controller
                    ),
                }
            ),
            "configs": lambda: _configs(metadata, show_secrets),
            "delegationToken": lambda: _keyed(
                lambda: metadata.delegation_tokens, node_text.delegation_token
            ),
            "features": lambda: _features(metadata),
            "producerIds": lambda: _fixed(
                {"nextProducerId": lambda: ShellFile(lambda: str(metadata.next_producer_id))}
            ),
            "provenance": lambda: ShellFile(lambda: node_text.provenance(metadata)),
            "scram": lambda: _fixed(
                {
                    name: partial(_scram, metadata, number, show_secrets)
                    for name, number in _SCRAM_MECHANISMS.items()
                }
            ),
            "topics": lambda: _fixed(
                {"byId": lambda: _topics_by_id(metadata), "byName": lambda: _topics(metadata)}
            ),
        }
    )


def _file(text: str) -> ShellFile:
    return ShellFile(lambda: text)


def _fixed(children: Mapping[str, Callable[[], ShellNode]]) -> ShellDirectory:
    """Return a directory with these children; each is made when it is asked for."""
    return ShellDirectory(
        lambda: children, lambda name: children[name]() if name in children else None
    )


def _keyed(entries: Callable[[], Mapping[str, object]], text: Callable[..., str]) -> ShellDirectory:
    """Return a directory with a file for each entry of a mapping."""

    def child(name: str) -> ShellNode | None:
        current = entries()
        return ShellFile(lambda: text(name, current[name])) if name in current else None

    return ShellDirectory(entries, child)


def _by_id(entries: Callable[[], Mapping[int, object]], text: Callable[..., str]) -> ShellDirectory:
    """As `_keyed`, for keys that are numbers."""

    def child(name: str) -> ShellNode | None:
        number = _number(name)
        current = entries()
        if number is None or number not in current:
            return None
        return ShellFile(lambda: text(current[number]))

    return ShellDirectory(lambda: map(str, entries()), child)


def _number(name: str) -> int | None:
    """Return a number that is written as it would be printed, else None."""
    return int(name) if re.fullmatch(r"0|[1-9][0-9]{0,9}", name) else None


def _acls(metadata: MetadataView) -> ShellDirectory:
    def child(name: str) -> ShellNode | None:
        for id, acl in metadata.acls.items():
            if str(id) == name:
                return _file(node_text.acl(acl))
        return None

    return ShellDirectory(lambda: map(str, metadata.acls), child)


def _configs(metadata: MetadataView, show_secrets: bool) -> ShellDirectory:
    def name_of(resource: tuple[int, str]) -> str:
        type, name = resource
        return f"{_CONFIG_TYPES[type]}:{name}" if name else _CONFIG_TYPES[type]

    def child(name: str) -> ShellNode | None:
        for type, type_name in _CONFIG_TYPES.items():
            if name == type_name or name.startswith(type_name + ":"):
                resource = (type, name[len(type_name) + 1 :])
                if resource in metadata.configs:
                    return _settings(partial(metadata.configs.get, resource, {}), show_secrets)
        return None

    return ShellDirectory(lambda: map(name_of, metadata.configs), child)


def _settings(entries: Callable[[], Mapping[str, str]], show_secrets: bool) -> ShellDirectory:
    def text(name: str, value: str) -> str:
        return HIDDEN if not show_secrets and is_secret_setting(name) else value

    return _keyed(entries, text)


def _quotas(metadata: MetadataView) -> ShellDirectory:
    quotas = metadata.client_quotas

    def child(name: str) -> ShellNode | None:
        entity = _quota_entity(name)
        if entity is None or entity not in quotas:
            return None
        return _keyed(lambda: quotas[entity], lambda key, value: double_text(value))

    return ShellDirectory(lambda: map(_quota_name, quotas), child)


def _quota_name(entity: QuotaEntity) -> str:
    """Return ``clientId(web)_user(alice)``; a default entity's part is left out, as in Kafka."""
    names = dict(entity)
    return "_".join(
        f"{shown}({_escaped(value)})"
        for type, shown in _QUOTA_TYPES.items()
        if (value := names.get(type)) is not None
    )


def _escaped(name: str) -> str:
    return name.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")


def _quota_entity(name: str) -> QuotaEntity | None:
    types = {shown: type for type, shown in _QUOTA_TYPES.items()}
    parts: dict[str, str | None] = {}
    at = 0
    while at < len(name):
        found = _QUOTA_PART.match(name, at)
        if found is None:
            return None
        parts[types[found[1]]] = re.sub(r"\\(.)", r"\1", found[2], flags=re.DOTALL)
        at = found.end()
    return quota_entity(parts) if parts else None


def _features(metadata: MetadataView) -> ShellDirectory:
    def finalized() -> dict[str, int]:
        return {
            name: level
            for name, level in metadata.features.items()
            if name not in (METADATA_VERSION, KRAFT_VERSION)
        }

    def level() -> str:
        if METADATA_VERSION not in metadata.features:
            return "Optional.empty"
        return f"Optional[{MetadataVersion.from_level(metadata.metadata_version).text}]"

    def child(name: str) -> ShellNode | None:
        if name == "metadataVersion":
            return ShellFile(level)
        feature = name.removeprefix(_FINALIZED)
        if name != feature and feature in finalized():
            return ShellFile(lambda: str(finalized()[feature]))
        return None

    return ShellDirectory(
        lambda: ["metadataVersion", *(_FINALIZED + name for name in finalized())], child
    )


def _scram(metadata: MetadataView, mechanism: int, show_secrets: bool) -> ShellDirectory:
    credentials = metadata.scram_credentials

    def child(user: str) -> ShellNode | None:
        if (mechanism, user) not in credentials:
            return None
        return ShellFile(
            lambda: node_text.scram_credential(credentials[mechanism, user], show_secrets)
        )

    return ShellDirectory(
        lambda: [user for number, user in credentials if number == mechanism], child
    )


def _topics(metadata: MetadataView) -> ShellDirectory:
    def child(name: str) -> ShellNode | None:
        try:
            return _topic(metadata, metadata.topics[name])
        except UnknownTopicNameError:
            return None

    return ShellDirectory(lambda: metadata.topics, child)


def _topics_by_id(metadata: MetadataView) -> ShellDirectory:
    def names() -> Iterable[str]:
        topics = metadata.topics
        return (str(topics[name].id) for name in topics)

    def child(name: str) -> ShellNode | None:
        # Kafka's text of a uuid has 22 characters.
        if not re.fullmatch(r"[A-Za-z0-9_-]{22}", name):
            return None
        try:
            topic = metadata.topics.by_id(name)
        except (UnknownTopicIdError, ValueError):
            return None
        return _topic(metadata, topic) if str(topic.id) == name else None

    return ShellDirectory(names, child)


def _topic(metadata: MetadataView, topic: TopicInfo) -> ShellDirectory:
    def names() -> list[str]:
        # A list of Python's numbers: their texts take a third of the time of numpy's.
        numbers = cast(list[int], metadata.partitions.partition[topic.rows].tolist())
        return ["id", "name", *map(str, numbers)]

    def child(name: str) -> ShellNode | None:
        if name == "id":
            return _file(str(topic.id))
        if name == "name":
            return _file(topic.name)
        number = _number(name)
        if number is None:
            return None
        try:
            info = metadata.partitions.find(topic.name, number)
        except (UnknownTopicOrPartitionError, InvalidArgumentError):
            return None
        return ShellFile(lambda: node_text.partition(info))

    return ShellDirectory(names, child)
