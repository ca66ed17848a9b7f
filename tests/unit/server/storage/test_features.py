"""The initial feature levels of a new cluster."""

from __future__ import annotations

import pytest

from kraft.errors import InvalidRequestError, KraftError, UnsupportedVersionError
from kraft.records import FeatureLevel, MetadataVersion
from kraft.server.storage.features import (
    bootstrap_records,
    feature_levels,
    parse_feature,
    release_version,
    version_mapping,
)
from kraft.server.storage.scram import parse_scram


def test_a_release_has_its_newest_level() -> None:
    assert release_version(None, {}) == MetadataVersion.IBP_4_3_IV0
    assert release_version("3.3.1", {}) == MetadataVersion.IBP_3_3_IV3
    assert release_version("4.0-IV1", {}) == MetadataVersion.IBP_4_0_IV1
    assert release_version(None, {"metadata.version": 13}) == MetadataVersion.IBP_3_6_IV1
    assert release_version("4.4", {}) == MetadataVersion.IBP_4_4_IV2
    assert release_version(None, {"metadata.version": 31}) == MetadataVersion.IBP_4_4_IV0


@pytest.mark.parametrize(
    ("release", "levels"),
    [
        ("3.2", {}),
        ("4.5", {}),
        ("nonsense", {}),
        ("4.3", {"metadata.version": 30}),
        (None, {"metadata.version": 6}),
        (None, {"metadata.version": 34}),
        (None, {"metadata.version": 99}),
    ],
)
def test_releases_that_cannot_be_formatted_are_rejected(
    release: str | None, levels: dict[str, int]
) -> None:
    with pytest.raises(KraftError):
        release_version(release, levels)


def test_a_dynamic_quorum_has_kraft_version_1() -> None:
    version = MetadataVersion.IBP_4_3_IV0
    assert feature_levels(version, {}, has_dynamic_quorum=True)["kraft.version"] == 1
    assert feature_levels(version, {}, has_dynamic_quorum=False)["kraft.version"] == 0
    for level, dynamic in ((1, False), (0, True)):
        with pytest.raises(InvalidRequestError, match=r"kraft\.version cannot be"):
            feature_levels(version, {"kraft.version": level}, has_dynamic_quorum=dynamic)


def test_a_feature_without_the_level_that_it_needs_is_rejected() -> None:
    given = {"eligible.leader.replicas.version": 1}
    with pytest.raises(InvalidRequestError, match=r"needs metadata\.version of at least 23"):
        feature_levels(MetadataVersion.IBP_4_0_IV0, given, has_dynamic_quorum=True)
    levels = feature_levels(MetadataVersion.IBP_4_0_IV1, given, has_dynamic_quorum=True)
    assert levels["eligible.leader.replicas.version"] == 1


def test_unknown_features_and_levels_are_rejected() -> None:
    for given in ({"no.such": 1}, {"group.version": 2}, {"group.version": -1}):
        with pytest.raises(UnsupportedVersionError):
            feature_levels(MetadataVersion.IBP_4_3_IV0, given, has_dynamic_quorum=True)
    for text in ("group.version", "group.version=", "group.version=one"):
        with pytest.raises(InvalidRequestError, match="name=level"):
            parse_feature(text)
    assert parse_feature(" group.version = 1 ") == ("group.version", 1)


def test_the_bootstrap_records_set_features_and_credentials() -> None:
    levels = feature_levels(
        MetadataVersion.IBP_4_3_IV0, {"share.version": 0}, has_dynamic_quorum=True
    )
    alice = parse_scram("SCRAM-SHA-256=[name=alice,password=x]")
    assert bootstrap_records(levels, [alice]) == [
        FeatureLevel(name="metadata.version", feature_level=30),
        FeatureLevel(name="eligible.leader.replicas.version", feature_level=1),
        FeatureLevel(name="group.version", feature_level=1),
        FeatureLevel(name="streams.version", feature_level=1),
        FeatureLevel(name="transaction.version", feature_level=2),
        alice,
    ]
    old = feature_levels(MetadataVersion.IBP_3_5_IV1, {}, has_dynamic_quorum=False)
    assert bootstrap_records(old) == [FeatureLevel(name="metadata.version", feature_level=10)]
    with pytest.raises(UnsupportedVersionError, match="SCRAM credentials need"):
        bootstrap_records(old, [alice])


def test_the_version_mapping_of_a_release_has_every_feature() -> None:
    assert version_mapping("4.0") == {
        "metadata.version": 25,
        "kraft.version": 1,
        "transaction.version": 2,
        "group.version": 1,
        "eligible.leader.replicas.version": 0,
        "share.version": 0,
        "streams.version": 0,
    }
