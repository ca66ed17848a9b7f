"""Run scripts in processes of their own: under several hash seeds, or with a planted fault.

The output of a script must not depend on the hash seed of Python. A planted fault stays until its
process ends; therefore no test plants one in the process of the tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def output_of(script: str, **environment: str) -> str:
    """Return the output of a script that runs with these environment variables added."""
    return subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    ).stdout


def outputs_of(script: str) -> set[str]:
    """Return the outputs of a script under two hash seeds; equal outputs count once."""
    return {output_of(script, PYTHONHASHSEED=hash_seed) for hash_seed in ("1", "2")}


def invariant_violated_by(mutant: str) -> str:
    """Return the name of the invariant that a planted fault violates; "None" if none."""
    script = f"from tests.simulation import mutants; print(mutants.hunt({mutant!r}).invariant)"
    return output_of(script).strip()
