"""Validation of produced batches: 16 KiB and 1 MiB of records, plain, lz4 and zstd.

Scenario: one batch of records with a 100-byte value of text and no key, in a writable buffer, so
that validation works in place; CreateTime, warm, one thread. Bytes are those of the records,
inflated. Physical floor: CRC-32C of the bytes that the client sends. Floor of compressed batches:
the codec alone, which inflates the same payload. `lz4_to_zstd` includes building and compressing
the batch again, for a topic with another compression.type.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from kraft._core.bytes.batch import BatchBuilder, assign_offsets
from kraft._core.bytes.compression import CODEC_NAMES, DEFAULT_BUDGET, decompress
from kraft._core.bytes.crc32c import crc32c
from kraft.broker.produce_validation import ProduceRules, check, validate

NOW_MS = 1_750_000_000_000
VALUE_SIZE = 100
SIZES = {"16KiB": 16 * 1024, "1MiB": 1 << 20}
CODECS = ("none", "lz4", "zstd")
HEADER_SIZE = 61
PARTITION = "topic-0"
RULES = ProduceRules(max_message_bytes=4 << 20)


def made(size: int, codec: str) -> bytearray:
    """Return a batch with records of about ``size`` bytes; its text compresses three to one."""
    dice = random.Random(size)
    words = [dice.randbytes(3).hex().encode() for _ in range(2000)]
    builder = BatchBuilder(0, -1, NOW_MS, CODEC_NAMES.index(codec))
    while builder.size < size - VALUE_SIZE:
        builder.append(b" ".join(dice.choices(words, k=15))[:VALUE_SIZE])
    return bytearray(builder.finish())


def iterations(size: int) -> int:
    return max(1, (1 << 20) // size)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("codec", CODECS)
def bench_validate(benchmark: Any, measured: Callable[..., None], size: str, codec: str) -> None:
    records = made(SIZES[size], codec)
    first = check(records, RULES, PARTITION, now_ms=NOW_MS)
    assert not first.is_rebuilt

    def work() -> None:
        batch = validate(records, RULES, PARTITION, next_offset=5, leader_epoch=3, now_ms=NOW_MS)
        # The next round needs the batch as it was sent.
        assign_offsets(batch.data, 0, -1)

    benchmark.pedantic(work, rounds=60, iterations=iterations(SIZES[size]), warmup_rounds=5)
    count = first.record_bytes
    measured(f"validate_{codec}_{size}", unit="bytes", count=count, bytes=count)


@pytest.mark.parametrize("size", SIZES)
def bench_recompress(benchmark: Any, measured: Callable[..., None], size: str) -> None:
    records = made(SIZES[size], "lz4")
    rules = ProduceRules.from_configs({"compression.type": "zstd"})
    first = check(records, rules, PARTITION, now_ms=NOW_MS)
    assert first.is_rebuilt

    def work() -> None:
        check(records, rules, PARTITION, now_ms=NOW_MS)

    benchmark.pedantic(work, rounds=40, iterations=iterations(SIZES[size]), warmup_rounds=3)
    count = first.record_bytes
    measured(f"validate_lz4_to_zstd_{size}", unit="bytes", count=count, bytes=count)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("codec", CODECS)
def bench_crc_floor(benchmark: Any, measured: Callable[..., None], size: str, codec: str) -> None:
    records = made(SIZES[size], codec)
    count = check(records, RULES, PARTITION, now_ms=NOW_MS).record_bytes
    benchmark.pedantic(
        crc32c, (records,), rounds=60, iterations=4 * iterations(SIZES[size]), warmup_rounds=5
    )
    measured(f"crc_{codec}_{size}", unit="bytes", count=count, bytes=count)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("codec", CODECS[1:])
def bench_inflate_floor(
    benchmark: Any, measured: Callable[..., None], size: str, codec: str
) -> None:
    payload = memoryview(made(SIZES[size], codec))[HEADER_SIZE:]
    number = CODEC_NAMES.index(codec)
    count = len(decompress(number, payload, DEFAULT_BUDGET))
    benchmark.pedantic(
        decompress,
        (number, payload, DEFAULT_BUDGET),
        rounds=60,
        iterations=iterations(SIZES[size]),
        warmup_rounds=5,
    )
    measured(f"inflate_{codec}_{size}", unit="bytes", count=count, bytes=count)
