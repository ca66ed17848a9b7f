"""Layers of the compiled core: check Cython files, which the import linter does not read."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORE = ROOT / "kraft" / "_core"
SOURCES = sorted(path for path in CORE.rglob("*") if path.suffix in (".pyx", ".pxd", ".pyi", ".py"))
IMPORTED = re.compile(r"^\s*(?:from|cimport|import) kraft\.([\w.]+)", re.M)


def layers() -> dict[str, int]:
    """Return the height of each package of the core in the import linter's contract, from 0 up."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (contract,) = (one for one in settings["contracts"] if one.get("containers") == ["kraft._core"])
    lowest_first = reversed(contract["layers"])
    return {
        package: height
        for height, layer in enumerate(lowest_first)
        for package in layer.split(" | ")
    }


def test_every_package_of_the_core_has_a_layer() -> None:
    packages = {path.parent.name for path in CORE.glob("*/__init__.py")}
    assert set(layers()) == packages
    assert [path.name for path in SOURCES if path.parent == CORE] == ["__init__.py"]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(CORE)))
def test_a_module_of_the_core_imports_only_from_lower_layers(path: Path) -> None:
    height = layers()
    own = path.parent.name
    for name in IMPORTED.findall(path.read_text(encoding="utf-8")):
        if name == "errors":
            continue
        top, _, rest = name.partition(".")
        assert top == "_core", f"{path.name} imports kraft.{name}"
        package = rest.partition(".")[0]
        assert package == own or height[package] < height[own], f"{path.name} imports kraft.{name}"
