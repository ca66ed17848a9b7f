"""Smoke test of an installed kraft: ``python smoke.py CHECKOUT``, run by the environment's Python.

Uses the checkout only for its sample metadata. Fails if kraft is not installed outside of the
checkout, if a module of the core is missing, or if an extra is needed for the library, the command
or a scenario of the laboratory. Also part of `cibuildwheel`'s test, so standard library only.
"""

import json
import os
import subprocess
import sys
import tempfile
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

SAMPLE = "tests/data/kafka-4.3/controller-101"
EXTRAS = ("numba", "pyarrow", "pyspark")


def main(checkout: Path) -> None:
    folder = Path(tempfile.mkdtemp(prefix="kraft-smoke-"))
    os.chdir(folder)  # so that the checkout is not importable
    sys.path = [path for path in sys.path if path and Path(path).resolve() != checkout]
    check_modules(checkout)
    check_library(checkout / SAMPLE)
    check_command(checkout / SAMPLE, folder)
    os.environ["KRAFT_BASELINE"] = "1"
    check_command(checkout / SAMPLE, folder / "baseline")
    print(f"kraft {version('kraft')}: {Path(sys.prefix)} on Python {sys.version.split()[0]} works")


def check_modules(checkout: Path) -> None:
    import kraft

    home = Path(kraft.__file__).parent
    assert not home.is_relative_to(checkout), f"kraft is imported from the checkout: {home}"
    assert version("kraft") == kraft.__version__, "metadata and __version__ differ"
    assert (home / "py.typed").exists(), "type checkers need py.typed"
    present = [name for name in EXTRAS if find_spec(name)]
    assert not present, f"the environment has extras that hide missing dependencies: {present}"
    sources = sorted((checkout / "kraft" / "_core").rglob("*.pyx"))
    assert sources, "the checkout has no sources of the core"
    for source in sources:
        name = ".".join(source.relative_to(checkout).with_suffix("").parts)
        module = import_module(name)
        assert module.__file__ is not None
        assert not module.__file__.endswith(".py"), f"{name} is not compiled"
    check_cpu(home / "_core" / "v3")
    stray = [path.name for path in home.rglob("*") if path.suffix in (".c", ".pyx")]
    assert not stray, f"the wheel contains sources: {stray[:3]}"


def check_cpu(twins: Path) -> None:
    """Check that a CPU with AVX2 runs the modules for it."""
    has_avx2 = "avx2" in Path("/proc/cpuinfo").read_text() if sys.platform == "linux" else False
    for twin in twins.rglob("*.so"):
        inside = twin.relative_to(twins)
        module = sys.modules[".".join(("kraft._core", *inside.parent.parts, module_name(twin)))]
        assert (Path(module.__file__ or "") == twin) == has_avx2, f"{module} on this CPU"


def module_name(extension: Path) -> str:
    return extension.name.partition(".")[0]


def check_library(sample: Path) -> None:
    import kraft

    metadata = kraft.open_metadata(sample)
    assert len(metadata.topics) == 14, metadata
    assert metadata.partitions.leader.dtype == "int32"
    before = metadata.next_offset
    records = metadata.fence_broker(2)
    metadata.apply(records)
    assert kraft.diff(metadata.at(before), metadata)
    metadata.revert(before)
    assert not kraft.diff(kraft.open_metadata(sample), metadata)


def check_command(sample: Path, folder: Path) -> None:
    opened = json.loads(kraft_command("open", str(sample), "--json"))
    assert opened, "kraft open prints nothing"
    output = folder / "lab"
    result = json.loads(
        kraft_command(
            *("lab", "million", "--from", str(sample), "--partitions", "30000", "--brokers", "30"),
            *("--dir", str(output), "--json"),
        )
    )
    assert result, "kraft lab million prints nothing"
    assert any(output.rglob("*.log")), "kraft lab million wrote no log"


def kraft_command(*arguments: str) -> str:
    script = Path(sys.executable).parent / "kraft"
    done = subprocess.run([script, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"kraft {' '.join(arguments)}: {done.stderr}"
    return done.stdout


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
