"""ARCHITECTURE.md beside the tree: it names the rooms that there are, and no others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")


def names_in_table(heading: str) -> set[str]:
    """What the first column of the tables under a heading names."""
    (section,) = re.findall(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", PAGE, re.S | re.M)
    cells = re.findall(r"^\| (`.*?) \|", section, re.M)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def modules() -> set[str]:
    """Every module of the package, as ``metadata.facade``; a lone ``.pxd`` is one too."""
    return {
        ".".join(path.relative_to(ROOT / "kraft").with_suffix("").parts)
        for path in (ROOT / "kraft").rglob("*")
        if path.suffix in (".py", ".pyx", ".pxd") and path.stem not in ("__init__", "__main__")
    }


def package(module: str) -> str:
    return module.partition(".")[0]


def test_every_floor_is_there_and_every_package_has_its_floor() -> None:
    assert names_in_table("Floors") == {f"kraft.{package(module)}" for module in modules()}


def test_the_core_is_named_module_by_module() -> None:
    in_the_tree = {module for module in modules() if package(module) == "_core"}
    on_the_page = names_in_table("The core, module by module")
    assert {f"_core.{name}" for name in on_the_page} == in_the_tree


def test_a_package_that_is_opened_up_is_opened_up_whole() -> None:
    on_the_page = names_in_table("Above the core, module by module")
    opened = {package(name) for name in on_the_page}
    assert opened >= {"records", "raft", "image", "controller", "metadata", "lab", "server", "cli"}
    assert on_the_page == {module for module in modules() if package(module) in opened}


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:kraft|tests)/[\w/.]+)`", PAGE))))
def test_every_path_that_is_spelled_out_leads_somewhere(path: str) -> None:
    assert (ROOT / path).exists()
