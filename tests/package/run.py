"""Build the source distribution and the wheel, check their contents, and test the wheel.

``python -m tests.package.run`` (``make package``) writes both to ``dist/``. The wheel is built from
the source distribution, by pip in an isolated environment, so it proves that the source
distribution is complete. Then it is installed in an empty environment without Numba and Spark,
where `smoke` runs. Takes about three minutes on two cores, most of it for the compiler.

``--fresh`` also installs a clone of the last commit by ``pip install .`` in another environment.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DIST = ROOT / "dist"
#: A wheel of compiled modules without symbols and generated sources.
MOST_WHEEL_BYTES = 6_500_000
_SDIST = (
    "import sys; from setuptools.build_meta import build_sdist; print(build_sdist(sys.argv[1]))"
)


def build_sdist() -> Path:
    """Return the source distribution of this tree, built by its own environment."""
    shutil.rmtree(ROOT / "kraft.egg-info", ignore_errors=True)  # its list of files may be outdated
    command = [sys.executable, "-W", "ignore", "-c", _SDIST, str(DIST)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"no source distribution:\n{done.stderr[-2000:]}")
    return DIST / done.stdout.split()[-1]


def check_sdist(path: Path) -> None:
    """Check that the source distribution has every source of the package and no generated file."""
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    listed = subprocess.run(
        ["git", "ls-files", "kraft"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    missing = [name for name in listed if name not in names and (ROOT / name).exists()]
    require(not missing, f"{path.name} lacks {missing[:5]}")
    generated = [name for name in names if name.endswith((".c", ".so", ".pyc"))]
    require(not generated, f"{path.name} contains generated files: {generated[:5]}")
    report(path, len(names))


def build_wheel(sdist: Path) -> Path:
    """Return the wheel that pip builds from the source distribution, to run on any machine."""
    portable = {name: text for name, text in os.environ.items() if not name.startswith("KRAFT_")}
    run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(DIST), str(sdist)],
        env=portable,
    )
    (wheel,) = DIST.glob("*.whl")
    return wheel


def check_wheel(path: Path) -> None:
    """Check size and contents of the wheel."""
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
    sources = sorted((ROOT / "kraft" / "_core").rglob("*.pyx"))
    for source in sources:
        stem = str(source.relative_to(ROOT).with_suffix(""))
        built = [name for name in names if name.startswith(f"{stem}.") and name.endswith(".so")]
        require(len(built) == 1, f"{path.name} has {len(built)} extensions {stem}")
    for name in ("kraft/py.typed", "kraft/regression/page.js", "kraft/spark/log4j2.properties"):
        require(name in names, f"{path.name} lacks {name}")
    twins = [name for name in names if name.startswith("kraft/_core/v3/")]
    require(bool(twins) == (platform.machine() == "x86_64"), f"{path.name}: for AVX2: {twins}")
    stray = [name for name in names if name.endswith((".c", ".pyx")) or name.startswith("tests/")]
    require(not stray, f"{path.name} contains {stray[:5]}")
    size = path.stat().st_size
    require(
        size <= MOST_WHEEL_BYTES, f"{path.name} has {size:,} bytes, at most {MOST_WHEEL_BYTES:,}"
    )
    report(path, len(names))


def install_and_smoke(what: str, folder: Path) -> None:
    """Install ``what`` in an empty environment and run the smoke test there."""
    home = folder / "environment"
    venv.create(home, with_pip=True, clear=True)
    python = home / "bin" / "python"
    portable = {
        name: text
        for name, text in os.environ.items()
        if not name.startswith(("KRAFT_", "PYTHONPATH"))
    }
    run([str(python), "-m", "pip", "install", "-q", what], cwd=folder, env=portable)
    smoke = ROOT / "tests" / "package" / "smoke.py"
    run([str(python), "-I", str(smoke), str(ROOT)], cwd=folder, env=portable)


def run(command: list[str], **given: object) -> None:
    done = subprocess.run(command, check=False, **given)  # type: ignore[call-overload]
    require(done.returncode == 0, f"failed: {' '.join(command)}")


def require(holds: bool, message: str) -> None:
    if not holds:
        raise SystemExit(f"error: {message}")


def report(path: Path, files: int) -> None:
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes, {files} files", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Build and test the distributions.")
    parser.add_argument(
        "--fresh", action="store_true", help="also `pip install` a clone of the last commit"
    )
    arguments = parser.parse_args()
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    sdist = build_sdist()
    check_sdist(sdist)
    wheel = build_wheel(sdist)
    check_wheel(wheel)
    with tempfile.TemporaryDirectory(prefix="kraft-package-") as folder:
        install_and_smoke(str(wheel), Path(folder))
        if arguments.fresh:
            clone = Path(folder) / "clone"
            run(["git", "clone", "-q", "--no-hardlinks", str(ROOT), str(clone)])
            install_and_smoke(str(clone), Path(folder))


if __name__ == "__main__":
    main()
