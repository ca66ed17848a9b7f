"""One target under atheris: ``python -m tests.fuzz.engine TARGET CORPUS [libFuzzer options]``.

Started by ``run.py`` within the tree that it built with sanitizers. The seeds, and what was found
before, are laid into the directory CORPUS, which grows by every input that reaches something new.
What escapes a target, a report of a sanitizer, an input that takes too long and one that takes too
much memory end the process, and the input is kept in a file.
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


def main() -> None:
    name, corpus, *options = sys.argv[1:]
    with atheris.instrument_imports(include=["kraft"]):
        target = target_named(name)
    lay_seeds([*target.seeds(), *found_once(name)], Path(corpus))
    pool = samples.values()

    def mutator(data: bytes, max_size: int, seed: int) -> bytes:
        return mutated(
            data, max_size, random.Random(seed), atheris.Mutate, prefix=target.PREFIX, pool=pool
        )

    own = {"custom_mutator": mutator} if target.HOLDS_BATCHES else {}
    atheris.Setup([sys.argv[0], *options, corpus], target.run, **own)
    atheris.Fuzz()


def found_once(name: str) -> list[bytes]:
    """What was found in this target before: some of it only a sanitizer would notice again."""
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
