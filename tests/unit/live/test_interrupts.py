"""Ctrl-C while a program waits for a followed quorum's changes."""

from __future__ import annotations

import random
import signal
import threading

import pytest

from kraft.live.fetching import Fetching
from kraft.metadata.quorum_observer import CommittedBatches
from kraft.network.quorum_client import QuorumClient
from kraft.server.local_quorum import LOOPBACK, free_ports

INTERRUPTS = 200


def test_ctrl_c_in_a_wait_is_ctrl_c_and_loses_no_lock() -> None:
    """The wait of a threading.Condition raised "cannot release un-acquired lock" instead."""
    dice, is_over = random.Random(5), threading.Event()
    (port,) = free_ports(1)
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    fetching = Fetching(QuorumClient([(LOOPBACK, port)]), None, lambda fraction: None)

    def arrive_often() -> None:
        # As the thread that fetches does.
        while not is_over.is_set():
            with fetching._lock:
                fetching._notify()

    def wait_interrupted() -> None:
        # The timer may end before the wait begins: the other threads may run meanwhile.
        signal.setitimer(signal.ITIMER_REAL, 0.001 + 0.002 * dice.random())
        fetching.take(60.0, None)

    threads = [threading.Thread(target=arrive_often) for _ in range(3)]
    for one in threads:
        one.start()
    try:
        for _ in range(INTERRUPTS):
            with pytest.raises(KeyboardInterrupt):
                wait_interrupted()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        is_over.set()
        for one in threads:
            one.join()
        signal.signal(signal.SIGALRM, previous)
    fetching._put(CommittedBatches(memoryview(b"")))
    assert fetching.take(60.0, None)
    fetching.close()
    assert fetching.take(60.0, None) == []
