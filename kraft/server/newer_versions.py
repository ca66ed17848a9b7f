"""Refuse metadata that this version of kraft does not know.

A node that was downgraded too early finds records, formats or feature levels of a newer version. It
must end before it reads any of them wrongly, and say what to do. Called by ``opening`` at start,
and by ``controller`` for the records after the snapshot. Source: Kafka's
``FeatureControlManager.replay``, where an unsupported level is a fatal fault.
"""

from __future__ import annotations

from collections.abc import Mapping

from kraft.errors import UnsupportedVersionError
from kraft.records.versions import METADATA_VERSION, SUPPORTED_FEATURES
from kraft.version import VERSION

_NONE = (0, 0)


def newer_version_error(error: UnsupportedVersionError) -> UnsupportedVersionError:
    """Return the error with what to do about it."""
    return UnsupportedVersionError(
        f"{error}. This is kraft {VERSION}, and a newer version of kraft or Kafka wrote this. "
        "Start that version with this node's directories again"
    )


def check_finalized(
    features: Mapping[str, int], supported: Mapping[str, tuple[int, int]] = SUPPORTED_FEATURES
) -> None:
    """Check the finalized level of each feature, except an assumed metadata.version.

    Raises UnsupportedVersionError for levels that this node does not support.
    """
    unsupported = []
    for name, level in features.items():
        lowest, highest = supported.get(name, _NONE)
        # Logs of 3.x have lower levels of metadata.version, which kraft reads.
        if level > highest or (level < lowest and name != METADATA_VERSION):
            unsupported.append(f"{name} {level} (supported: {lowest} to {highest})")
    if unsupported:
        raise UnsupportedVersionError(
            f"the cluster has finalized features that this node does not support: "
            f"{', '.join(unsupported)}"
        )
