"""The table of metadata records, compared with the JSON schemas in Kafka's jars.

`tests/data/schemas-<release>.json.gz` has each release's schemas as Kafka prints them
(`tests/interop/schemas.py`); an interop test compares them with the jars.
"""

from __future__ import annotations

from typing import Any

import pytest

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
    default_feature_level,
    feature_dependencies,
    record_version,
)
from tests.reference.kafka_schemas import OPEN_END, as_in_kafka, fields_of, kept, versions_of

KAFKA = {release: kept(release) for release in ("4.3.1", "4.4.0", "3.9.2")}
TYPES = {f"{type.__name__}Record": type for type in RECORD_TYPES.values()}


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
    """Return the metadata.version levels of a release that KRaft can use."""
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
