"""What counts depend on, and the copy of the core that is counted.

`description` is the machine of a counted result: compiler, C library, interpreter, the packages
whose code is counted along, and the processor that valgrind emulates. Nothing in it is of the
machine that happened to run it. Two results with equal descriptions compare exactly.

The core is compiled for ``x86-64-v3``, not for the machine at hand: valgrind shows every program
the same processor of that level, so that numpy's, the C library's and crc32c's own choices are the
same on every machine, too. A host without AVX2 cannot count. The C sources are those that an
ordinary build leaves beside the core; only the C compiler runs.
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
    """The processor's features as numpy sees them under valgrind."""
    command = ["valgrind", "--tool=none", "--quiet", sys.executable, "-c", SHOWN]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: list[str] = json.loads(done.stdout)
    return found


def description() -> dict[str, str]:
    """Everything that the counts of one and the same source depend on."""
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
    """The description in pytest-benchmark's words: a machine by itself."""
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
    """The core's extensions that this process has loaded: those that are needed."""
    return [
        name.removeprefix("kraft._core.")
        for name, module in sorted(sys.modules.items())
        if name.startswith("kraft._core.") and (module.__file__ or "").endswith(".so")
    ]


def directory(described: dict[str, str]) -> Path:
    """Where a toolchain's build lies."""
    matters = [described[name] for name in ("compiler", "level", "python", "cython", "numpy")]
    key = hashlib.sha256(json.dumps(matters).encode()).hexdigest()[:12]
    return COUNTED / key


def extensions(described: dict[str, str], modules: list[str]) -> Path:
    """The directory of these modules of the counted core, built where they are not up to date."""
    place = directory(described)
    flags = {"KRAFT_PORTABLE": "1", "KRAFT_DEBUG": "", "KRAFT_SANITIZE": ""}
    # Without debugging symbols: a third of the compiler's time, and they change no instruction.
    flags["CFLAGS"] = f"-march={LEVEL} -g0"
    flags["KRAFT_MODULES"] = ",".join(modules)
    command = [sys.executable, "setup.py", "-q", "build_ext", "-j", str(os.cpu_count() or 1)]
    command += [f"--build-lib={place / 'lib'}", f"--build-temp={place / 'temp'}"]
    subprocess.run(command, cwd=ROOT, env=os.environ | flags, check=True)
    return place / "lib" / "kraft" / "_core"
