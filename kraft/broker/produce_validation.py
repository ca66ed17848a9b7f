"""Validation of produced batches by a topic's settings.

`ProduceRules` holds the settings of one topic that decide whether its partitions take a batch;
`validate` checks the records of one partition of a Produce request and sets their offsets. The
rules themselves, and the differences from Kafka's, are in ``kraft._core.bytes.produced_batch``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from typing_extensions import Buffer

from kraft._core.bytes.batch import assign_offsets
from kraft._core.bytes.compression import CODEC_NAMES, DEFAULT_BUDGET
from kraft._core.bytes.produced_batch import ProducedBatch, check_produced
from kraft.errors import (
    INVALID_RECORD,
    RECORD_LIST_TOO_LARGE,
    InvalidConfigError,
    RejectedBatchError,
)

#: Codec numbers by the values of compression.type; -1 keeps the producer's codec.
CODECS = {
    "producer": -1,
    "uncompressed": 0,
    **{name: number for number, name in enumerate(CODEC_NAMES) if number},
}

#: Produce requests take zstd from this version on.
FIRST_VERSION_WITH_ZSTD = 7


@dataclass(frozen=True, slots=True)
class ProduceRules:
    """The settings of a topic that a produced batch must obey; defaults are Kafka's (ms, bytes)."""

    append_time: bool = False
    before_max_ms: int = 2**63 - 1
    after_max_ms: int = 3_600_000
    max_message_bytes: int = 1_048_588
    segment_bytes: int = 1 << 30
    keys_required: bool = False
    codec: int = -1

    @classmethod
    def from_configs(cls, configs: Mapping[str, str]) -> Self:
        """Return the rules of a topic's effective configs; absent keys have Kafka's defaults.

        The values are those that a controller has accepted. Raises `InvalidConfigError` for an
        unknown compression.type, or for text in place of a number.
        """
        name = configs.get("compression.type", "producer")
        if name not in CODECS:
            raise InvalidConfigError(
                f"compression.type is {name!r}; known are {', '.join(sorted(CODECS))}"
            )

        def number(key: str, default: int) -> int:
            try:
                return int(configs.get(key, default))
            except ValueError as error:
                raise InvalidConfigError(f"{key} is {configs[key]!r}, not a number") from error

        policies = [policy.strip() for policy in configs.get("cleanup.policy", "").split(",")]
        return cls(
            append_time=configs.get("message.timestamp.type") == "LogAppendTime",
            before_max_ms=number("message.timestamp.before.max.ms", cls().before_max_ms),
            after_max_ms=number("message.timestamp.after.max.ms", cls().after_max_ms),
            max_message_bytes=number("max.message.bytes", cls().max_message_bytes),
            segment_bytes=number("segment.bytes", cls().segment_bytes),
            keys_required="compact" in policies,
            codec=CODECS[name],
        )


def check(
    records: Buffer | None,
    rules: ProduceRules,
    partition: str,
    *,
    now_ms: int,
    version: int = FIRST_VERSION_WITH_ZSTD,
    budget: int = DEFAULT_BUDGET,
) -> ProducedBatch:
    """Return the batch of one partition of a Produce request, checked, without offsets.

    ``partition`` names the partition in messages; ``version`` is the request's; a compressed batch
    may inflate to ``budget`` bytes. Writable ``records`` are changed in place. Needs no lock:
    `assign_offsets` of ``kraft._core.bytes.batch`` sets base offset and leader epoch later.

    Raises `RejectedBatchError` with Kafka's error code and the errors of records.
    """
    if records is None:
        raise RejectedBatchError(f"the request has no records for {partition}", INVALID_RECORD)
    batch = check_produced(
        records,
        append_time=rules.append_time,
        now_ms=now_ms,
        before_max_ms=rules.before_max_ms,
        after_max_ms=rules.after_max_ms,
        max_size=rules.max_message_bytes,
        keys_required=rules.keys_required,
        codec=rules.codec,
        zstd_allowed=version >= FIRST_VERSION_WITH_ZSTD,
        budget=budget,
        partition=partition,
    )
    if len(batch.data) > rules.segment_bytes:
        raise RejectedBatchError(
            f"the batch for {partition} has {len(batch.data)} bytes; segment.bytes is "
            f"{rules.segment_bytes}",
            RECORD_LIST_TOO_LARGE,
        )
    return batch


def validate(
    records: Buffer | None,
    rules: ProduceRules,
    partition: str,
    *,
    next_offset: int,
    leader_epoch: int,
    now_ms: int,
    version: int = FIRST_VERSION_WITH_ZSTD,
    budget: int = DEFAULT_BUDGET,
) -> ProducedBatch:
    """Return the batch as it is appended at ``next_offset``: `check`, and offset and leader epoch.

    The caller holds the lock of the partition's log. Raises like `check`.
    """
    batch = check(records, rules, partition, now_ms=now_ms, version=version, budget=budget)
    assign_offsets(batch.data, next_offset, leader_epoch)
    return batch
