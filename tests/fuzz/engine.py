"""One target under atheris: ``python -m tests.fuzz.engine TARGET CORPUS [libFuzzer options]``.

``run.py`` starts it within the tree that it built with sanitizers. It writes the seeds and earlier
findings into the directory CORPUS; libFuzzer adds every input that reaches new code. An exception
of a target, a sanitizer's report, a timeout or too much memory end the process, and libFuzzer keeps
the input in a file.
"""

from __future__ import annotations

import hashlib
import random
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["kraft"]):
    from tests.fuzz import samples
    from tests.fuzz.mutate import mutated
    from tests.fuzz.targets import target_named

# The share of the fuzzer's own mutations where a target has others.
_BLIND = 0.3


def main() -> None:
    name, corpus, *options = sys.argv[1:]
    with atheris.instrument_imports(include=["kraft"]):
        target = target_named(name)
    lay_seeds([*target.seeds(), *found_once(name)], Path(corpus))
    pool = samples.values()

    def in_batches(data: bytes, max_size: int, seed: int) -> bytes:
        return mutated(
            data, max_size, random.Random(seed), atheris.Mutate, prefix=target.PREFIX, pool=pool
        )

    def in_own_form(data: bytes, max_size: int, seed: int) -> bytes:
        chance = random.Random(seed)
        if chance.random() < _BLIND:
            return atheris.Mutate(data, max_size)
        return target.mutated(data, chance)[:max_size]

    own = {}
    if target.HOLDS_BATCHES:
        own = {"custom_mutator": in_batches}
    elif hasattr(target, "mutated"):
        own = {"custom_mutator": in_own_form}
    atheris.Setup([sys.argv[0], *options, corpus], target.run, **own)
    atheris.Fuzz()


def found_once(name: str) -> list[bytes]:
    """Return this target's earlier findings; only a sanitizer would detect some of them again."""
    kept = Path(__file__).parent / "regressions"
    return [path.read_bytes() for path in sorted(kept.glob(f"{name}-*.bin"))]


def lay_seeds(seeds: list[bytes], corpus: Path) -> None:
    corpus.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        path = corpus / f"seed-{hashlib.sha256(seed).hexdigest()[:16]}"
        if not path.exists():
            path.write_bytes(seed)


if __name__ == "__main__":
    main()
