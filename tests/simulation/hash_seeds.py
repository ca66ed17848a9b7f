"""Run a script under different hash seeds of Python: its output must not depend on them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def outputs_of(script: str) -> set[str]:
    """Return the outputs of a script under two hash seeds; equal outputs count once."""
    return {
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        ).stdout
        for hash_seed in ("1", "2")
    }
