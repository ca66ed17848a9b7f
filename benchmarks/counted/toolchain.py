"""The environment of the counts, and the copy of the core that is counted.

`description` is the machine of a counted result: compiler, C library, interpreter, the packages
whose code is counted as well, and the processor that valgrind emulates. It contains nothing of the
real machine. Two results with equal descriptions compare exactly.

The core is compiled for ``x86-64-v3``, not for the real machine: valgrind emulates the same
processor of that level for every program, so that the choices of numpy, the C library and crc32c
are the same on every machine, too. A host without AVX2 cannot count. The C sources are those of an
ordinary build; only the C compiler runs.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COUNTED = ROOT / "build" / "counted"
LEVEL = "x86-64-v3"
#: The description, in a session of pytest.
DESCRIBED = pytest.StashKey[dict[str, str]]()
PACKAGES = ("numpy", "crc32c", "cython")
SHOWN = """
import json, numpy
from numpy._core._multiarray_umath import __cpu_features__ as features
print(json.dumps(sorted(name for name, has in features.items() if has)))
"""


def first_line(*command: str) -> str:
    if shutil.which(command[0]) is None:
        raise SystemExit(f"{command[0]} is not there: instructions cannot be counted")
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[0]


def features_shown() -> list[str]:
    """Return the processor's features as numpy sees them under valgrind."""
    command = ["valgrind", "--tool=none", "--quiet", sys.executable, "-c", SHOWN]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: list[str] = json.loads(done.stdout)
    return found


def description() -> dict[str, str]:
    """Return everything on which the counts of one source depend."""
    return {
        "compiler": first_line(os.environ.get("CC", "cc"), "--version"),
        "level": LEVEL,
        "libc": " ".join(platform.libc_ver()),
        "valgrind": first_line("valgrind", "--version"),
        "features": hashlib.sha256(" ".join(features_shown()).encode()).hexdigest()[:12],
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "python_build": " ".join((*platform.python_build(), platform.python_compiler())),
        **{name: version(name) for name in PACKAGES},
    }


def machine_info(described: dict[str, str]) -> dict[str, object]:
    """Return the description in the form of pytest-benchmark's machine_info."""
    return {
        "node": "counted",
        "processor": LEVEL,
        "machine": platform.machine(),
        "system": platform.system(),
        "release": "",
        "python_implementation": platform.python_implementation(),
        "python_implementation_version": platform.python_version(),
        "python_version": platform.python_version(),
        "python_compiler": platform.python_compiler(),
        "python_build": [],
        "cpu": {"brand_raw": f"{LEVEL} under valgrind", "count": 1},
        "toolchain": described,
    }


def loaded() -> list[str]:
    """Return the core's extensions that this process has loaded."""
    return [
        name.removeprefix("kraft._core.")
        for name, module in sorted(sys.modules.items())
        if name.startswith("kraft._core.") and (module.__file__ or "").endswith(".so")
    ]


def directory(described: dict[str, str]) -> Path:
    """Return the directory of a toolchain's build."""
    matters = [described[name] for name in ("compiler", "level", "python", "cython", "numpy")]
    key = hashlib.sha256(json.dumps(matters).encode()).hexdigest()[:12]
    return COUNTED / key


def extensions(described: dict[str, str], modules: list[str]) -> Path:
    """Return the directory with these modules of the counted core; build outdated ones."""
    place = directory(described)
    flags = {"KRAFT_MARCH": LEVEL, "KRAFT_DEBUG": "", "KRAFT_SANITIZE": ""}
    flags["KRAFT_PORTABLE"] = "1"  # as past commits call it, in history_counted
    # No debugging symbols: they take a third of the compiler's time and change no instruction.
    flags["CFLAGS"] = f"-march={LEVEL} -g0"
    flags["KRAFT_MODULES"] = ",".join(modules)
    command = [sys.executable, "setup.py", "-q", "build_ext", "-j", str(os.cpu_count() or 1)]
    command += [f"--build-lib={place / 'lib'}", f"--build-temp={place / 'temp'}"]
    subprocess.run(command, cwd=ROOT, env=os.environ | flags, check=True)
    return place / "lib" / "kraft" / "_core"
