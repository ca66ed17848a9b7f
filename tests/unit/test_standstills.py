"""Rounds that a standstill of the machine spoilt are repeated, and no others."""

from __future__ import annotations

import ctypes

import pytest

from tests.harness import standstills
from tests.harness.standstills import despite_standstills


def stand_still() -> None:
    """Let no thread of this process run for 0.3 s."""
    # A PyDLL keeps the interpreter's lock.
    ctypes.PyDLL(None).usleep(300_000)


def test_a_failure_during_a_standstill_is_repeated() -> None:
    rounds = []

    def play() -> None:
        rounds.append(len(rounds))
        if len(rounds) < 3:
            stand_still()
            raise ValueError("spoilt")

    despite_standstills(play, 0.2)
    assert rounds == [0, 1, 2]


def test_any_other_failure_is_one() -> None:
    def play() -> None:
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        despite_standstills(play, 0.2)


def test_it_does_not_repeat_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standstills, "_MOST_ROUNDS", 2)

    def play() -> None:
        stand_still()
        raise ValueError("wrong")

    with pytest.raises(AssertionError, match="stood still in each of"):
        despite_standstills(play, 0.1)
