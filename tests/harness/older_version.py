"""``python -m tests.harness.older_version …``: the ``kraft`` command as an older release.

The release of this stand-in supports metadata.version up to 4.2-IV1, share.version up to 1, and of
most APIs a version less than kraft does. What it announces, serves and sends follows from that. It
is for tests of quorums whose nodes have different versions, without a second build.
"""

from __future__ import annotations

import sys
from typing import Any

from kraft.protocol import headers
from kraft.records.versions import METADATA_VERSION, SUPPORTED_FEATURES, MetadataVersion

PROGRAM = (sys.executable, "-m", "tests.harness.older_version")
HIGHEST = MetadataVersion.IBP_4_2_IV1
#: Kept as they are: a quorum whose voters can change needs the directory ids of these, and the
#: tests' clients the topic ids of the last two.
_WHOLE = frozenset(
    (
        *("BeginQuorumEpoch", "EndQuorumEpoch", "FetchSnapshot", "AddRaftVoter", "DescribeQuorum"),
        *("CreateTopics", "DeleteTopics"),
    )
)


def _announce_older() -> None:
    """Lower the ranges; call it before any module that defines an API is imported."""
    SUPPORTED_FEATURES[METADATA_VERSION] = (MetadataVersion.IBP_3_3_IV3.value, HIGHEST.value)
    SUPPORTED_FEATURES["share.version"] = (0, 1)
    whole: Any = headers.Api

    def older(
        key: int,
        name: str,
        lowest: int,
        highest: int,
        flexible_since: int,
        lowest_sent: int = 0,
    ) -> Any:
        if name not in _WHOLE and highest > max(lowest, lowest_sent):
            highest -= 1
        return whole(key, name, lowest, highest, flexible_since, lowest_sent)

    setattr(headers, "Api", older)  # noqa: B010  (a class for mypy)


if __name__ == "__main__":
    _announce_older()
    from kraft.cli import main

    main()
