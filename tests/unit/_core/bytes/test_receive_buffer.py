"""Buffers for large frames: memory is reused only after its last slice was released."""

from __future__ import annotations

import threading

import numpy
import pytest

from kraft._core.bytes.receive_buffer import SPARE_SIZE, ReceiveBuffer, spare_size

MIB = 1024 * 1024


def address(buffer: ReceiveBuffer | memoryview) -> int:
    return int(numpy.frombuffer(buffer, numpy.uint8).ctypes.data)


@pytest.fixture(autouse=True)
def spare_blocks_of_other_tests_are_taken() -> list[ReceiveBuffer]:
    """Take every spare block of the pool: a full pool would free the blocks that a test returns."""
    held = []
    size = SPARE_SIZE
    while before := spare_size():
        held.append(ReceiveBuffer(size))
        if spare_size() == before:
            size //= 2
    return held


def test_written_bytes_are_read_back() -> None:
    buffer = ReceiveBuffer(5)
    view = memoryview(buffer)
    assert (len(buffer), view.nbytes, view.readonly) == (5, 5, False)
    view[:] = b"three"
    assert bytes(buffer) == b"three"


def test_memory_is_reused_only_after_its_last_slice_is_freed() -> None:
    first = ReceiveBuffer(MIB)
    place = address(first)
    part = memoryview(first)[10:20].toreadonly()
    del first
    second = ReceiveBuffer(MIB)
    assert address(second) != place, "a slice of the first buffer is still alive"
    del part
    assert address(ReceiveBuffer(MIB - 100)) == place


def test_a_small_buffer_does_not_use_a_large_spare_block() -> None:
    large = ReceiveBuffer(3 * MIB)
    place = address(large)
    del large
    assert address(ReceiveBuffer(MIB)) != place
    assert address(ReceiveBuffer(2 * MIB)) == place


def test_spare_memory_has_a_bound() -> None:
    buffers = [ReceiveBuffer(MIB) for _ in range(2 * SPARE_SIZE // MIB)]
    del buffers
    assert 0 < spare_size() <= SPARE_SIZE
    huge = ReceiveBuffer(2 * SPARE_SIZE)
    del huge
    assert spare_size() <= SPARE_SIZE
    small = [ReceiveBuffer(1) for _ in range(1000)]
    del small
    assert spare_size() <= SPARE_SIZE


def test_slices_that_end_in_other_threads_never_share_a_block() -> None:
    def work(sign: bytes) -> None:
        for turn in range(500):
            buffer = ReceiveBuffer(100_000 + turn)
            view = memoryview(buffer)
            view[:64] = sign * 64
            kept = view[:64].toreadonly()
            del buffer, view
            if bytes(kept) != sign * 64:
                damaged.append(sign)

    damaged: list[bytes] = []
    threads = [threading.Thread(target=work, args=(bytes([sign]),)) for sign in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not damaged


@pytest.mark.parametrize("size", [0, -1])
def test_a_buffer_of_no_bytes_is_rejected(size: int) -> None:
    with pytest.raises(ValueError, match="the smallest has 1"):
        ReceiveBuffer(size)
