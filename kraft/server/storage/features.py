"""The initial feature levels of a new cluster, and their bootstrap records.

Implements the choice that ``kafka-storage format`` makes from ``--release-version`` and
``--feature`` (Kafka's ``Formatter``, ``BootstrapMetadata``), and the output of ``version-mapping``.
The levels themselves are in ``kraft.records.versions``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from kraft._core.codec.metadata_codec import Record
from kraft.errors import InvalidRequestError, UnsupportedVersionError
from kraft.records import (
    LATEST_PRODUCTION,
    LATEST_SUPPORTED,
    METADATA_VERSION,
    MINIMUM_VERSION,
    SUPPORTED_FEATURES,
    FeatureLevel,
    MetadataVersion,
    UserScramCredential,
    default_feature_level,
    feature_dependencies,
)

KRAFT_VERSION = "kraft.version"


def parse_feature(text: str) -> tuple[str, int]:
    """Parse ``name=level``. Raises InvalidRequestError."""
    name, equals, level = (part.strip() for part in text.partition("="))
    if not equals or not re.fullmatch(r"[+-]?[0-9]{1,5}", level, re.ASCII):
        raise InvalidRequestError(f"a feature has the form name=level, not {text!r:.60}")
    return name, int(level)


def release_version(release: str | None, levels: Mapping[str, int]) -> MetadataVersion:
    """Return the initial metadata.version: of ``release``, or in ``levels``, or 4.3-IV0.

    Raises InvalidRequestError where both are given, UnsupportedVersionError for an unknown one.
    """
    if METADATA_VERSION in levels:
        if release is not None:
            raise InvalidRequestError(
                f"use --release-version instead of --feature {METADATA_VERSION}=…, not both"
            )
        version = MetadataVersion.from_level(levels[METADATA_VERSION])
    elif release is not None:
        version = MetadataVersion.from_text(release)
    else:
        version = LATEST_PRODUCTION
    if version < MINIMUM_VERSION:
        raise UnsupportedVersionError(
            f"metadata.version {version.text} (level {version}) cannot be formatted: it has to be "
            f"from {MINIMUM_VERSION.text} to {LATEST_SUPPORTED.text}"
        )
    return version


def feature_levels(
    version: MetadataVersion, given: Mapping[str, int], *, has_dynamic_quorum: bool
) -> dict[str, int]:
    """Return the level of every feature: as given, or the default at this metadata.version.

    kraft.version is 1 where the voters may change, 0 where controller.quorum.voters fixes them.
    Raises InvalidRequestError and UnsupportedVersionError.
    """
    for name, level in given.items():
        if name not in SUPPORTED_FEATURES:
            raise UnsupportedVersionError(
                f"unknown feature {name!r:.60}: known are {', '.join(sorted(SUPPORTED_FEATURES))}"
            )
        if name == KRAFT_VERSION and bool(level) != has_dynamic_quorum:
            raise InvalidRequestError(
                f"kraft.version cannot be {level}: it is 1 where controller.quorum.voters is not "
                "set, so that voters may change, and 0 where it is"
            )
    levels = {name: default_feature_level(name, version) for name in SUPPORTED_FEATURES}
    levels |= given
    levels[METADATA_VERSION] = version.value
    levels[KRAFT_VERSION] = given.get(KRAFT_VERSION, int(has_dynamic_quorum))
    for name, level in levels.items():
        if name == METADATA_VERSION:
            continue
        for needed, least in feature_dependencies(name, level).items():
            if levels[needed] < least:
                raise InvalidRequestError(
                    f"{name}={level} needs {needed} of at least {least}, and it is {levels[needed]}"
                )
    return levels


def bootstrap_records(
    levels: Mapping[str, int], credentials: Iterable[UserScramCredential] = ()
) -> list[Record]:
    """Return the records of a new cluster: metadata.version, other features above 0, credentials.

    kraft.version is not among them; it has a control record. Raises UnsupportedVersionError for
    credentials below metadata.version 3.5-IV2.
    """
    records: list[Record] = [
        FeatureLevel(name=METADATA_VERSION, feature_level=levels[METADATA_VERSION])
    ]
    for name in sorted(levels):
        if name not in (METADATA_VERSION, KRAFT_VERSION) and levels[name] > 0:
            records.append(FeatureLevel(name=name, feature_level=levels[name]))
    added = list(credentials)
    if added and not MetadataVersion(levels[METADATA_VERSION]).is_scram_supported:
        raise UnsupportedVersionError(
            f"SCRAM credentials need metadata.version {MetadataVersion.IBP_3_5_IV2.text} or later"
        )
    return [*records, *added]


def version_mapping(release: str | None) -> dict[str, int]:
    """Return the default level of every feature of ``release``, metadata.version first.

    Raises UnsupportedVersionError.
    """
    version = release_version(release, {})
    return {name: default_feature_level(name, version) for name in SUPPORTED_FEATURES}
