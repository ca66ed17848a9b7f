"""Compression of record batches as Kafka frames it: gzip, snappy, lz4, zstd.

Compresses and decompresses bytes; ``batch`` handles the batch around them. Only data batches use
it, because the metadata log is not compressed: gzip is in the standard library, the others come
from ``cramjam`` (the extra ``codecs``), imported at the first such batch.

Invariant: decompressing returns at most ``budget`` bytes and allocates at most four times as many,
whatever size the compressed bytes claim.

Layout of snappy (xerial's ``snappy-java``; a bare snappy block is read as well)::

    0x82 "SNAPPY" 0x00 | i32 version | i32 compatible version | (i32 size | snappy block) ...

lz4 is the LZ4 frame format, zstd the Zstandard frame format, gzip RFC 1952. Codec numbers:
``clients/.../common/record/CompressionType.java``.
"""

from __future__ import annotations

import zlib
from types import ModuleType
from typing import Any

import numpy as np

from kraft.errors import (
    BudgetExceededError,
    CorruptRecordError,
    InvalidRequestError,
    UnsupportedCompressionTypeError,
)

CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
DEFAULT_BUDGET = 256 * 1024 * 1024

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
XERIAL_BLOCK_SIZE = 32 * 1024


def decompress(codec: int, payload: memoryview, budget: int, *, position: int = -1) -> bytes:
    """Return the decompressed ``payload``.

    Raises `BudgetExceededError` for more than ``budget`` bytes, `CorruptRecordError` (with
    ``position``) for a malformed payload, `UnsupportedCompressionTypeError` if the codec is not
    installed.
    """
    if codec == 0:
        plain = bytes(payload)
    elif codec == 1:
        plain = _gunzip(payload, budget, position)
    elif codec == 2:
        plain = _unsnappy(payload, budget, position)
    else:
        plain = _unframe(codec, payload, budget, position)
    if len(plain) > budget:
        raise _over_budget(codec, budget, position)
    return plain


def compress(codec: int, payload: bytes) -> bytes:
    """Return ``payload`` framed like Kafka's under ``codec`` (1 gzip, 2 snappy, 3 lz4, 4 zstd)."""
    if codec == 1:
        # Imported here: every opening would pay for it, and metadata is never compressed.
        import gzip

        return gzip.compress(payload, mtime=0)
    if codec not in (2, 3, 4):
        raise InvalidRequestError(
            f"unknown codec {codec}: known are 1 gzip, 2 snappy, 3 lz4, 4 zstd"
        )
    module = _codec_module(codec)
    if codec == 3:
        # Kafka reads only frames whose blocks are independent; cramjam links them by default.
        frame = module.Compressor(content_checksum=False, block_linked=False)
        frame.compress(payload)
        return bytes(frame.finish())
    if codec == 4:
        return bytes(module.compress(payload))
    blocks = [XERIAL_HEADER]
    for start in range(0, len(payload), XERIAL_BLOCK_SIZE):
        block = bytes(module.compress_raw(payload[start : start + XERIAL_BLOCK_SIZE]))
        blocks += [len(block).to_bytes(4, "big"), block]
    return b"".join(blocks)


def _codec_module(codec: int) -> ModuleType:
    name = CODEC_NAMES[codec]
    try:
        import cramjam
    except ImportError as error:
        raise UnsupportedCompressionTypeError(
            f"batches compressed with {name} need the package cramjam: pip install kraft[codecs]"
        ) from error
    module: ModuleType = getattr(cramjam, name)
    return module


def _over_budget(codec: int, budget: int, position: int) -> BudgetExceededError:
    return BudgetExceededError(
        f"a batch compressed with {CODEC_NAMES[codec]} holds more than the {budget} bytes allowed",
        position=position,
    )


def _broken(codec: int, detail: object, position: int) -> CorruptRecordError:
    return CorruptRecordError(
        f"a batch compressed with {CODEC_NAMES[codec]} does not decompress: {detail}",
        position=position,
    )


def _gunzip(payload: memoryview, allowed: int, position: int) -> bytes:
    budget = allowed
    parts: list[bytes] = []
    at = 0
    # gzip allows several members, one after the other.
    while at < len(payload):
        member = zlib.decompressobj(wbits=31)
        # zlib copies what follows a member. Pieces that begin small and double keep the work for
        # many small members in proportion to the bytes.
        piece_size = 512
        while not member.eof:
            piece = payload[at : at + piece_size]
            if not piece:
                raise _broken(1, "it is cut short", position)
            try:
                part = member.decompress(piece, budget + 1)
            except zlib.error as error:
                raise _broken(1, error, position) from error
            budget -= len(part)
            if budget < 0:
                raise _over_budget(1, allowed, position)
            parts.append(part)
            at += len(piece) - len(member.unused_data)
            piece_size *= 2
    return b"".join(parts)


def _unsnappy(payload: memoryview, budget: int, position: int) -> bytes:
    module = _codec_module(2)
    if bytes(payload[:8]) != XERIAL_MAGIC:
        return _unsnappy_block(module, payload, budget, position)
    plain: list[bytes] = []
    at = len(XERIAL_HEADER)
    while at < len(payload):
        size = int.from_bytes(payload[at : at + 4], "big")
        at += 4
        if size > len(payload) - at:
            raise _broken(2, f"a block of {size} bytes is cut short", position)
        block = _unsnappy_block(module, payload[at : at + size], budget, position)
        budget -= len(block)
        plain.append(block)
        at += size
    return b"".join(plain)


def _unsnappy_block(module: Any, block: memoryview, budget: int, position: int) -> bytes:
    data = bytes(block)
    try:
        size = module.decompress_raw_len(data)
        if size > budget:
            raise _over_budget(2, budget, position)
        # Snappy copies at most 64 bytes for each 2 or 3 that it reads: a larger claim is false.
        if size > 64 * len(data):
            raise _broken(2, f"{len(data)} bytes claim to hold {size}", position)
        return bytes(module.decompress_raw(data))
    except (ValueError, _failure()) as error:
        raise _broken(2, error, position) from error


def _unframe(codec: int, payload: memoryview, budget: int, position: int) -> bytes:
    module: Any = _codec_module(codec)
    data = bytes(payload)
    capacity = min(budget, max(64 * 1024, 4 * len(data)))
    # The frame may omit its size or claim a false one: retry with more space up to the budget.
    while True:
        # Not zeroed, unlike a bytearray.
        target = np.empty(capacity + 1, np.uint8)
        try:
            size = module.decompress_into(data, target)
        except _failure() as error:
            if "write whole buffer" not in str(error):
                raise _broken(codec, error, position) from error
            if capacity >= budget:
                raise _over_budget(codec, budget, position) from error
            capacity = min(budget, 4 * capacity)
            continue
        return target[:size].tobytes()


def _failure() -> type[Exception]:
    import cramjam

    failure: type[Exception] = cramjam.DecompressionError
    return failure
