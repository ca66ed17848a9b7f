"""The table of metadata records compared with the JSON schemas in Kafka's jars.

`tests/data/schemas-<release>.json.gz` has each release's schemas as Kafka prints them
(`tests/interop/schemas.py`); an interop test compares them with the jars.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from kraft._core.codec.message_schema import FieldSpec
from kraft.records import (
    LATEST_PRODUCTION,
    LATEST_SUPPORTED,
    MINIMUM_VERSION,
    RECORD_TYPES,
    SUPPORTED_FEATURES,
    MetadataVersion,
    Partition,
    PartitionChange,
    RegisterBroker,
    Struct,
    Uuid,
    default_feature_level,
    feature_dependencies,
    record_version,
)
from tests.reference.kafka_schemas import kept

OPEN_END = 31  # what the table under test writes for "no end"
KAFKA = {release: kept(release) for release in ("4.3.1", "4.4.0", "3.9.2")}
TYPES = {f"{type.__name__}Record": type for type in RECORD_TYPES.values()}
ZEROS: dict[str, Any] = {"bool": False, "string": "", "bytes": b"", "float64": 0.0}


def versions_of(text: str | None) -> tuple[int, int] | None:
    """The first and last version of `2+`, `0-1` or `3`."""
    if text in (None, "none"):
        return None
    first, _, last = text.rstrip("+").partition("-")
    return int(first), OPEN_END if text.endswith("+") else int(last or first)


def default_of(field: dict[str, Any]) -> Any:
    """The default of a field by the rules of Kafka's message generator."""
    given = field.get("default")
    if given == "null":
        return None
    if field["type"].startswith("[]"):
        return []
    if field["type"] == "uuid":
        return Uuid(bytes(16))
    if field["type"] == "bool" and given is not None:
        return given in (True, "true")
    if given is None or field["type"] in ("string", "bytes"):
        return given if given is not None else ZEROS.get(field["type"], 0)
    return float(given) if field["type"] == "float64" else int(given, 0)


def as_in_kafka(field: dict[str, Any]) -> dict[str, Any]:
    """One field of a JSON schema as plain values."""
    element = field["type"].removeprefix("[]")
    return {
        "name": re.sub("(?<!^)([A-Z])", r"_\1", field["name"]).lower(),
        "kind": "struct" if "fields" in field else element,
        "is_array": field["type"].startswith("[]"),
        "versions": versions_of(field["versions"]),
        "tag": (field["tag"], versions_of(field["taggedVersions"])) if "tag" in field else None,
        "nullable": versions_of(field.get("nullableVersions")),
        "default": default_of(field),
        "fields": [as_in_kafka(inner) for inner in field.get("fields", [])],
    }


def as_here(name: str, spec: FieldSpec) -> dict[str, Any]:
    """The same values from the table under test."""
    versions = (spec.since, spec.until)
    return {
        "name": name,
        "kind": spec.kind,
        "is_array": spec.is_array,
        "versions": versions,
        "tag": (spec.tag, versions) if spec.tag >= 0 else None,
        "nullable": versions if spec.nullable else None,
        "default": list(spec.default)
        if spec.is_array and spec.default is not None
        else spec.default,
        "fields": fields_of(spec.of) if spec.of is not None else [],
    }


def fields_of(type: type[Struct]) -> list[dict[str, Any]]:
    return [as_here(name, spec) for name, spec in type.schema.specs.items()]


@pytest.mark.parametrize("release", ["4.3.1", "4.4.0"])
@pytest.mark.parametrize("name", TYPES)
def test_every_field_is_as_in_kafkas_schema(release: str, name: str) -> None:
    schema = KAFKA[release]["records"].get(name)
    if schema is None:
        assert (release, name) == ("4.3.1", "UnregisterControllerRecord")
        return
    codec = TYPES[name].schema
    assert codec.api_key == schema["apiKey"]
    assert (codec.lowest_version, codec.highest_version) == versions_of(schema["validVersions"])
    assert versions_of(schema["flexibleVersions"]) == (0, OPEN_END)
    fields = [as_in_kafka(field) for field in schema["fields"]]
    assert [field["name"] for field in fields_of(TYPES[name])] == [one["name"] for one in fields]
    assert fields_of(TYPES[name]) == fields


@pytest.mark.parametrize("release", KAFKA)
def test_no_record_of_kafka_is_missing(release: str) -> None:
    for one in KAFKA[release]["record_types"]:
        codec = TYPES[one["class"]].schema
        assert codec.api_key == one["id"]
        assert codec.lowest_version == one["lowest"]
        assert codec.highest_version >= one["highest"]
    if release == "4.4.0":
        assert set(TYPES) == {one["class"] for one in KAFKA[release]["record_types"]}


def levels(release: str) -> list[dict[str, Any]]:
    """The metadata.version levels of KRaft."""
    said = KAFKA[release]["metadata_versions"]
    return [one for one in said if one["featureLevel"] >= 1]


@pytest.mark.parametrize("release", ["4.4.0", "4.3.1", "3.9.2"])
def test_each_level_gates_what_it_gates_in_kafka(release: str) -> None:
    for one in levels(release):
        if one["featureLevel"] > LATEST_SUPPORTED or not one["isProduction"]:
            continue
        level = MetadataVersion.from_level(one["featureLevel"])
        assert level.text == one["version"]
        assert level.did_metadata_change == one["didMetadataChange"]
        assert level.is_scram_supported == one["isScramSupported"]
        assert level.is_metadata_transaction_supported == one["isMetadataTransactionSupported"]
        assert level.is_delegation_token_supported == one["isDelegationTokenSupported"]
        assert level.is_directory_assignment_supported == one["isDirectoryAssignmentSupported"]
        assert (
            level.is_controller_registration_supported == one["isControllerRegistrationSupported"]
        )
        if release == "4.4.0":
            assert level.is_cordoned_log_dirs_supported == one["isCordonedLogDirsSupported"]
            assert level.is_cidr_acl_supported == one["isCidrAclSupported"]
            assert (
                level.is_controller_unregistration_supported
                == one["isControllerUnregistrationSupported"]
            )
        bump = one.get("isLeaderEpochBumpRequiredOnIsrShrink")
        assert bump is None or level.is_leader_epoch_bump_required_on_isr_shrink == bump
        # What 3.9 wrote in the versions that only 4.x knows is no question for it.
        assert record_version(RegisterBroker, level) == one["registerBrokerRecordVersion"]
        assert record_version(Partition, level) == one["partitionRecordVersion"]
        assert record_version(PartitionChange, level) == one["partitionChangeRecordVersion"]


@pytest.mark.parametrize(
    ("release", "newest"), [("4.3.1", LATEST_PRODUCTION), ("4.4.0", LATEST_SUPPORTED)]
)
def test_the_range_of_levels_is_that_of_the_release(release: str, newest: MetadataVersion) -> None:
    bounds = KAFKA[release]["metadata_version_bounds"]
    assert (MINIMUM_VERSION.text, newest.text) == (bounds["minimum"], bounds["latest_production"])


@pytest.mark.parametrize("release", ["4.3.1", "4.4.0"])
def test_the_other_features_have_kafkas_levels_defaults_and_dependencies(release: str) -> None:
    said = KAFKA[release]["features"]
    assert {*said, "metadata.version"} == set(SUPPORTED_FEATURES)
    for name, feature in said.items():
        if release == "4.4.0":
            assert SUPPORTED_FEATURES[name] == (0, feature["latest_production"])
        for one in feature["levels"]:
            if one["level"] > feature["latest_production"]:
                continue
            bootstrap = MetadataVersion.from_text(one["bootstrap"])
            assert default_feature_level(name, bootstrap) >= one["level"]
            if one["level"] > 0:
                assert default_feature_level(name, bootstrap - 1) < one["level"]
            assert feature_dependencies(name, one["level"]) == one["dependencies"]
