"""The tables of group records, compared with the JSON schemas in Kafka's jar.

`tests/data/group-schemas-4.3.1.json.gz` has the schemas (`tests/interop/group_schemas.py`); an
interop test compares it with the jar.
"""

from __future__ import annotations

from typing import Any

import pytest

from kraft._core.codec.metadata_codec import Message
from kraft.broker.groups.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from tests.reference.kafka_schemas import (
    as_in_kafka,
    fields_of,
    kept_group_schemas,
    snake_case,
    versions_of,
)

KAFKA = kept_group_schemas("4.3.1")
TYPES: dict[str, type[Message]] = {
    "GroupMetadataKey": GroupMetadataKey,
    "GroupMetadataValue": GroupMetadataValue,
    "OffsetCommitKey": OffsetCommitKey,
    "OffsetCommitValue": OffsetCommitValue,
}


def with_structs(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the fields of a schema, with those of the structs that it names."""
    structs = {one["name"]: one["fields"] for one in schema.get("commonStructs", ())}
    return [
        field | {"fields": structs[name]}
        if (name := field["type"].removeprefix("[]")) in structs
        else field
        for field in schema["fields"]
    ]


@pytest.mark.parametrize("name", TYPES)
def test_every_field_is_as_in_kafkas_schema(name: str) -> None:
    schema, codec = KAFKA[name], TYPES[name].schema
    assert codec.api_key == schema["apiKey"]
    assert (codec.lowest_version, codec.highest_version) == versions_of(schema["validVersions"])
    flexible = versions_of(schema["flexibleVersions"])
    assert codec.flexible_since == (codec.highest_version + 1 if flexible is None else flexible[0])
    theirs = [as_in_kafka(field) for field in with_structs(schema)]
    if name.endswith("Key"):  # their fields have the range "0"
        theirs = [field | {"versions": (0, 31)} for field in theirs]
    assert fields_of(TYPES[name]) == theirs


def test_ignorable_fields_are_as_in_kafkas_schema() -> None:
    for name, type in TYPES.items():
        for field in KAFKA[name]["fields"]:
            spec = type.schema.specs[snake_case(field["name"])]
            assert spec.ignorable == field.get("ignorable", False)


def test_the_legacy_records_are_read_as_the_others_in_version_0() -> None:
    for kind in ("Key", "Value"):
        legacy, present = KAFKA[f"LegacyOffsetCommit{kind}"], KAFKA[f"OffsetCommit{kind}"]
        in_version_0 = [
            field["name"] for field in present["fields"] if field["versions"].startswith("0")
        ]
        assert [field["name"] for field in legacy["fields"]] == in_version_0
        assert versions_of(legacy["validVersions"]) == (0, 0)
