"""Messages as Kafka's JSON converters write and read them."""

from __future__ import annotations

import base64
import re
from typing import Any

from kraft.records import Struct, Uuid

# Fields whose kraft name differs from Kafka's, to be equal in all RPCs of the raft layer.
_OTHER_NAMES = {
    ("SnapshotTopic", "topic_name"): "name",
    ("SnapshotPartition", "partition_index"): "partition",
    ("UpdateRaftVoterRequestData", "kraft_version_feature"): "k_raft_version_feature",
}


def as_json(made: Struct, version: int) -> dict[str, Any]:
    """Return a message as Kafka's JSON: the fields of the version, no tagged field at default."""
    shown = {}
    for name, spec in type(made).schema.specs.items():
        value = getattr(made, name)
        if spec.since <= version <= spec.until and not (spec.tag >= 0 and value == spec.default):
            shown[_json_name(type(made), name)] = _json_value(value, version)
    return shown


def _json_value(value: Any, version: int) -> Any:
    if isinstance(value, Struct):
        return as_json(value, version)
    if isinstance(value, list):
        return [_json_value(one, version) for one in value]
    if isinstance(value, Uuid):
        return str(value)
    return base64.b64encode(value).decode() if isinstance(value, bytes | memoryview) else value


def _json_name(type: type[Struct], name: str) -> str:
    name = _OTHER_NAMES.get((type.__name__, name), name)
    return re.sub("_(.)", lambda letter: letter[1].upper(), name)
