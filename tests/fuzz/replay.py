"""Run inputs through a target without a fuzzer: ``python -m tests.fuzz.replay TARGET FILE...``."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.fuzz.targets import opened


def main(arguments: list[str]) -> None:
    name, *paths = arguments
    with opened(name) as target:
        for path in paths:
            target.run(Path(path).read_bytes())
            print(f"{path}: as it should be")


if __name__ == "__main__":
    main(sys.argv[1:])
