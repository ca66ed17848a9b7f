"""The settings of a topic that decide how the logs of its partitions are kept.

Names, defaults and units are those of Kafka's topic configs (``LogConfig.java``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Self

from kraft.errors import InvalidConfigError

FOR_EVER = 2**63 - 1
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Rolling, flushing, retention and compaction of a topic's logs; times in ms, sizes in bytes.

    A retention of -1 keeps segments without limit. Partitions of a topic share one object.
    """

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * _DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    flush_messages: int = FOR_EVER
    flush_ms: int = FOR_EVER
    deletes: bool = True
    compacts: bool = False
    retention_ms: int = 7 * _DAY_MS
    retention_bytes: int = -1
    file_delete_delay_ms: int = 60_000
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = FOR_EVER
    delete_retention_ms: int = _DAY_MS
    max_message_bytes: int = 1_048_588

    @classmethod
    def from_configs(cls, configs: Mapping[str, str]) -> Self:
        """Return the settings of a topic's effective configs; absent keys have Kafka's defaults.

        Raises `InvalidConfigError` for a value that is not a number, or an unknown cleanup.policy.
        """
        values: dict[str, int] = {}
        for field, key in _NUMBERS.items():
            if key in configs:
                try:
                    values[field] = int(configs[key])
                except ValueError as error:
                    raise InvalidConfigError(f"{key} is {configs[key]!r}, not a number") from error
        text = configs.get("cleanup.policy", "delete")
        policies = {policy.strip() for policy in text.split(",") if policy.strip()}
        if not policies <= {"delete", "compact"}:
            raise InvalidConfigError(f"cleanup.policy is {text!r}; known are compact and delete")
        ratio_text = configs.get("min.cleanable.dirty.ratio", "0.5")
        try:
            ratio = float(ratio_text)
        except ValueError as error:
            raise InvalidConfigError(
                f"min.cleanable.dirty.ratio is {ratio_text!r}, not a number"
            ) from error
        return cls(
            deletes="delete" in policies,
            compacts="compact" in policies,
            min_cleanable_dirty_ratio=ratio,
            **values,
        )

    def segment_time_ms(self, random: Random) -> int:
        """Return segment.ms of the next segment, less a random jitter.

        The last segment is not compacted, so it is rolled after max.compaction.lag.ms at the
        latest.
        """
        jitter = min(self.segment_jitter_ms, self.segment_ms)
        longest = self.segment_ms
        if self.compacts and self.max_compaction_lag_ms > 0:
            longest = min(longest, self.max_compaction_lag_ms)
        return longest - (random.randrange(jitter) if jitter > 0 else 0)


_NUMBERS = {
    "segment_bytes": "segment.bytes",
    "segment_ms": "segment.ms",
    "segment_jitter_ms": "segment.jitter.ms",
    "segment_index_bytes": "segment.index.bytes",
    "index_interval_bytes": "index.interval.bytes",
    "flush_messages": "flush.messages",
    "flush_ms": "flush.ms",
    "retention_ms": "retention.ms",
    "retention_bytes": "retention.bytes",
    "file_delete_delay_ms": "file.delete.delay.ms",
    "min_compaction_lag_ms": "min.compaction.lag.ms",
    "max_compaction_lag_ms": "max.compaction.lag.ms",
    "delete_retention_ms": "delete.retention.ms",
    "max_message_bytes": "max.message.bytes",
}
