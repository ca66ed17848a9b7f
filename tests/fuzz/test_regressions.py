"""Earlier findings of the fuzzer, and its seeds, run through the targets without a fuzzer."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fuzz import samples
from tests.fuzz.mutate import mutated
from tests.fuzz.run import TARGETS
from tests.fuzz.targets import NAMES, opened, target_named

REGRESSIONS = sorted((Path(__file__).parent / "regressions").glob("*.bin"))
MUTATIONS = 300


def flip(data: bytes, max_size: int) -> bytes:
    """Change one byte: the simplest form of the fuzzer's own mutations."""
    changed = bytearray(data or b"\0")
    changed[len(changed) * 7 // 11] ^= 1 << (len(changed) % 8)
    return bytes(changed[:max_size])


@pytest.mark.parametrize("path", REGRESSIONS, ids=lambda path: path.stem)
def test_past_findings_give_the_expected_result(path: Path) -> None:
    with opened(path.stem.split("-", 1)[0]) as target:
        target.run(path.read_bytes())


@pytest.mark.parametrize("name", NAMES)
def test_every_seed_of_the_fuzzer_gives_the_expected_result(name: str) -> None:
    with opened(name) as target:
        seeds = list(target.seeds())
        assert seeds
        for seed in seeds:
            target.run(seed)


@pytest.mark.parametrize("name", [name for name in NAMES if target_named(name).HOLDS_BATCHES])
def test_the_mutations_change_bytes_after_the_checksums(name: str) -> None:
    target, pool, chance = target_named(name), samples.values(), random.Random(7)
    seeds = list(target.seeds())
    for number in range(MUTATIONS):
        data = seeds[number % len(seeds)]
        for _ in range(2):
            data = mutated(data, 1 << 16, chance, flip, prefix=target.PREFIX, pool=pool)
            assert len(data) <= 1 << 16
            target.run(data)


def test_make_fuzz_runs_every_target() -> None:
    assert TARGETS == NAMES
