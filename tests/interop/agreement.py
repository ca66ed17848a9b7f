"""Compare `Metadata` with the output of Kafka's tools; one check for each output.

Used for the recordings in `tests/data` (`test_kept_metadata.py`, no Java) and for live clusters. A
check raises AssertionError if `Metadata` and the output differ.
"""

from __future__ import annotations

import base64
import re
from typing import Any

import numpy as np

from kraft.metadata.facade import Metadata
from kraft.metadata.health import Health
from kraft.metadata.partitions import PartitionInfo
from kraft.records import MetadataVersion, Struct, Uuid
from tests.interop.tool_text import (
    Described,
    Dumped,
    described,
    dumped_records,
    fields_of,
    items,
    tree,
)

CONFIG_KINDS = {"TOPIC": 2, "BROKER": 4, "CLIENT_METRICS": 16, "GROUP": 32}
SCRAM_MECHANISMS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
RECOVERY_STATES = ("RECOVERED", "RECOVERING")


def check_topics(metadata: Metadata, text: str) -> None:
    """Check `kafka-topics --describe`: every topic, every partition, the topics' own configs."""
    topics, partitions = described(text)
    assert set(metadata.topics) == set(topics)
    for name, said in topics.items():
        assert str(metadata.topics[name].id) == said.topic_id
        assert metadata.topics[name].partition_count == said.partition_count
        # The tool also prints the brokers' dynamic defaults; the topic's own configs must be among
        # the printed ones.
        assert metadata.configs.topic(name).items() <= said.configs.items()
    ours = {(one.topic, one.partition): _as_described(one) for one in metadata.partitions}
    assert ours == {key: _without_unknown(said) for key, said in partitions.items()}


def _as_described(info: PartitionInfo) -> Described:
    return Described(
        leader=info.leader,
        replicas=list(info.replicas),
        isr=list(info.isr),
        adding=list(info.adding_replicas),
        removing=list(info.removing_replicas),
        elr=list(info.elr),
        last_known_elr=list(info.last_known_elr),
    )


def _without_unknown(said: Described) -> Described:
    """Replace an unknown ELR (`N/A`) by an empty one."""
    return said._replace(elr=said.elr or [], last_known_elr=said.last_known_elr or [])


def check_filter(metadata: Metadata, name: str, text: str) -> None:
    """Check `kafka-topics --describe --<name>`: it prints exactly these partitions."""
    masks = {
        "under-replicated-partitions": "under_replicated",
        "unavailable-partitions": "unavailable",
        "under-min-isr-partitions": "under_min_isr",
        "at-min-isr-partitions": "at_min_isr",
    }
    mask = getattr(Health(metadata), masks[name])
    rows = [metadata.partitions.row(int(row)) for row in np.flatnonzero(mask)]
    assert {(one.topic, one.partition) for one in rows} == set(described(text)[1])


def check_tree(metadata: Metadata, text: str) -> None:
    """Check `kafka-metadata-shell … tree`: the whole state, every partition field by field.

    The shell of 3.9 prints its parts without headings, so each part is found by its content.
    """
    root = tree(text)
    image = root.get("image", root)
    check_tree_partitions(metadata, image)
    check_tree_brokers(metadata, image)
    check_tree_rest(metadata, image)


def check_tree_partitions(metadata: Metadata, image: dict[str, Any]) -> None:
    by_name = image["topics"]["byName"]
    assert set(metadata.topics) == set(by_name)
    for name, topic in by_name.items():
        assert str(metadata.topics[name].id) == topic["id"]
        said = {int(key): fields_of(one) for key, one in topic.items() if key.isdigit()}
        ours = {
            int(metadata.partitions.partition[row]): metadata.partitions.row(int(row))
            for row in metadata.topics[name].rows
        }
        assert {key: _as_registration(one) for key, one in ours.items()} == said


def _as_registration(info: PartitionInfo) -> dict[str, str]:
    """Return Kafka's text of a PartitionRegistration, by field."""

    def listed(values: Any) -> str:
        return f"[{', '.join(map(str, values))}]"

    return {
        "replicas": listed(info.replicas),
        "directories": listed(info.directories),
        "isr": listed(info.isr),
        "removingReplicas": listed(info.removing_replicas),
        "addingReplicas": listed(info.adding_replicas),
        "elr": listed(info.elr),
        "lastKnownElr": listed(info.last_known_elr),
        "leader": str(info.leader),
        "leaderRecoveryState": RECOVERY_STATES[info.leader_recovery_state],
        "leaderEpoch": str(info.leader_epoch),
        "partitionEpoch": str(info.partition_epoch),
    }


def check_tree_brokers(metadata: Metadata, image: dict[str, Any]) -> None:
    said = {int(key): fields_of(one) for key, one in image["cluster"]["brokers"].items()}
    assert set(metadata.brokers) == set(said)
    for broker_id, fields in said.items():
        broker = metadata.brokers[broker_id]
        assert str(broker.epoch) == fields["epoch"]
        assert str(broker.incarnation_id) == fields["incarnationId"]
        assert f"Optional[{broker.rack}]" == fields["rack"]
        assert str(broker.fenced).lower() == fields["fenced"]
        assert str(broker.in_controlled_shutdown).lower() == fields["inControlledShutdown"]
        assert [str(one) for one in broker.log_dirs] == items(fields["directories"])
        ports = {one.port for one in broker.endpoints.values()}
        assert ports == {int(port) for port in re.findall(r"port=(\d+)", fields["listeners"])}
        if "cordonedDirectories" in fields:
            cordoned = broker.cordoned_log_dirs
            expected = "null" if cordoned is None else f"[{', '.join(map(str, cordoned))}]"
            assert fields["cordonedDirectories"] == expected
    controllers = {int(key): fields_of(one) for key, one in image["cluster"]["controllers"].items()}
    assert set(metadata.controllers) == set(controllers)
    for controller_id, fields in controllers.items():
        ours = metadata.controllers[controller_id]
        assert str(ours.incarnation_id) == fields["incarnationId"]


def check_tree_rest(metadata: Metadata, image: dict[str, Any]) -> None:
    finalized = {
        name.removeprefix("finalized_"): int(level)
        for name, level in image["features"].items()
        if name.startswith("finalized_")
    }
    others = dict(metadata.features)
    level = others.pop("metadata.version")
    assert others == finalized
    assert MetadataVersion.from_level(level).text in image["features"]["metadataVersion"]
    assert str(metadata.next_producer_id) == image["producerIds"]["nextProducerId"]

    configs = {
        (CONFIG_KINDS[kind], name): values
        for kind, names in _resources(image["configs"]).items()
        for name, values in names.items()
    }
    assert {key: dict(values) for key, values in metadata.configs.items()} == configs

    by_id = image["acls"].get("byId", image["acls"])  # the shell of 3.7 prints no `byId`
    acls = {key: fields_of(one) for key, one in by_id.items()}
    assert {str(key) for key in metadata.acls} == set(acls)
    for key, acl in metadata.acls.items():
        said = acls[str(key)]
        assert (acl.resource_name, acl.principal, acl.host) == (
            said["resourceName"],
            said["principal"],
            said["host"],
        )

    credentials = {
        (SCRAM_MECHANISMS[mechanism], user): fields_of(one)
        for mechanism, users in image["scram"].items()
        for user, one in users.items()
    }
    assert set(metadata.scram_credentials) == set(credentials)
    for who, credential in metadata.scram_credentials.items():
        said = credentials[who]
        assert credential.salt.hex() == said["salt"]
        assert credential.stored_key.hex() == said["storedKey"]
        assert credential.server_key.hex() == said["serverKey"]
        assert str(credential.iterations) == said["iterations"]
    assert set(metadata.delegation_tokens) == set(image["delegationToken"] or {})


def _resources(configs: dict[str, Any]) -> dict[str, dict[str, dict[str, str]]]:
    """Return kind -> name -> config; the default of a kind has no name."""
    kinds: dict[str, dict[str, dict[str, str]]] = {}
    for heading, values in configs.items():
        kind, _, name = heading.partition(":")
        kinds.setdefault(kind, {})[name] = values
    return kinds


def check_dump(records: list[Any], text: str) -> None:
    """Check `kafka-dump-log`: offset, time, type, version and fields of every data record."""
    said = dumped_records(text)
    ours = [one for one in records if not one.is_control]
    assert [(one.offset, one.timestamp_ms) for one in ours] == [
        (one.offset, one.timestamp_ms) for one in said
    ]
    for one, dumped in zip(ours, said, strict=True):
        assert (type(one.record).__name__, one.record.version) == (dumped.type, dumped.version)
        check_fields(one.record, dumped)


def check_fields(record: Struct, dumped: Dumped) -> None:
    for name, value in dumped.data.items():
        ours = getattr(record, snake_case(name))
        assert as_dumped(ours) == value, f"{dumped.type} at {dumped.offset}: {name}"


def snake_case(name: str) -> str:
    return re.sub("(?<!^)([A-Z])", r"_\1", name).lower()


def as_dumped(value: Any) -> Any:
    """Return a field's value as in Kafka's JSON."""
    if isinstance(value, Uuid):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list | tuple):
        return [as_dumped(one) for one in value]
    if isinstance(value, Struct):
        names = type(value).schema.specs
        return {camel_case(name): as_dumped(getattr(value, name)) for name in names}
    return value


def camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
