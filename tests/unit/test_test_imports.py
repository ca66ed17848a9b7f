"""Imports of test modules: shared code is in tests/harness, and no test module is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
#: Packages that all tests may import: shared helpers, reference implementations, and data.
SHARED = ("tests.harness", "tests.reference", "tests.data")
#: Programs whose tests are in other folders, as tests/unit/spark has a Spark session for Otava.
PROGRAMS = ("tests.client_suites", "tests.kafka_suites", "tests.otava", "tests.package")


def imported(path: Path) -> Iterator[str]:
    """Yield the names of test packages' modules that a module imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            of_package = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if is_module(name) else node.module for name in of_package]
        else:
            continue
        yield from (name for name in names if name.partition(".")[0] == "tests")


def is_module(name: str) -> bool:
    return PROJECT.joinpath(*name.split(".")).with_suffix(".py").exists()


def is_within(name: str, packages: tuple[str, ...]) -> bool:
    return any(f"{name}.".startswith(f"{package}.") for package in packages)


@cache
def modules() -> list[tuple[Path, str]]:
    return [
        (path.relative_to(PROJECT), name)
        for folder in ("tests", "benchmarks")
        for path in sorted((PROJECT / folder).rglob("*.py"))
        for name in imported(path)
    ]


def test_no_module_imports_a_test_module() -> None:
    assert [
        (str(path), name) for path, name in modules() if name.rpartition(".")[2].startswith("test_")
    ] == []


def test_a_test_module_imports_only_shared_helpers_and_those_of_its_folders() -> None:
    def is_allowed(path: Path, name: str) -> bool:
        # A helper may be imported in its own folder and in the folders below.
        folder = name.split(".")[:-1]
        return is_within(name, SHARED + PROGRAMS) or list(path.parts[: len(folder)]) == folder

    test_modules = [each for each in modules() if each[0].name.startswith("test_")]
    assert len(test_modules) > 300
    assert [(str(path), name) for path, name in test_modules if not is_allowed(path, name)] == []


def test_the_harness_depends_on_no_folder_of_tests() -> None:
    assert [
        (str(path), name)
        for path, name in modules()
        if path.parts[:2] == ("tests", "harness") and not is_within(name, SHARED)
    ] == []


def test_benchmarks_import_only_shared_helpers() -> None:
    assert [
        (str(path), name)
        for path, name in modules()
        if path.parts[0] == "benchmarks" and not is_within(name, SHARED)
    ] == []
