"""Name the finalized features whose work this broker does not do.

A cluster of kraft's brokers alone is formatted without them (``kraft up``). In a cluster with
Apache Kafka's brokers they may be on: the broker registers with their levels, since it reads all
metadata of theirs, and serves everything else. It logs a warning for each one: nothing else would
show an operator why clients get errors.

Called as a publisher of the node's images, by ``kraft.broker.node``.
"""

from __future__ import annotations

import logging

from kraft.image.publishing import Image, ImageDelta
from kraft.records.versions import LACKED_BY_BROKER

logger = logging.getLogger(__name__)


class LackingFeatures:
    """Logs a warning for each level of a feature that is on and that this broker lacks."""

    name = "LackingFeatures"

    def __init__(self) -> None:
        #: The levels that were reported; a feature that is off has none.
        self._reported: dict[str, int] = {}

    def on_metadata_update(self, delta: ImageDelta, image: Image) -> None:
        if not delta.is_full and "feature" not in delta.changes:
            return
        features = image.state.features
        on = {name: level for name in LACKED_BY_BROKER if (level := features.get(name, 0)) > 0}
        for name, level in on.items():
            if self._reported.get(name) != level:
                logger.warning(
                    "the cluster has %s=%d, but this broker has no %s: clients that ask it for "
                    "them get an error. Assign all partitions of %s to Apache Kafka's brokers, or "
                    "turn the feature off: kafka-features.sh downgrade --feature %s=0",
                    *(name, level, *LACKED_BY_BROKER[name], name),
                )
        self._reported = on
