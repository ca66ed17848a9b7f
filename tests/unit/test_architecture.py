"""Documentation pages and generated module tables, compared with the source tree."""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
#: All pages except the changelog and the performance page, which may name removed modules.
PAGES = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "tests/data/README.md")),
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if path.stem != "performance"),
]
#: kafka-python's files and tests that tests/client_suites runs or names.
CLIENT_TESTS = set(
    re.findall(r'"(test_\w+)"', (ROOT / "tests/client_suites/suites.toml").read_text("utf-8"))
)
TEST_FILES = {path.stem for path in (ROOT / "tests").rglob("test_*.py")}
TESTS = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))

_spec = importlib.util.spec_from_file_location("docs_hooks", ROOT / "docs" / "hooks.py")
assert _spec is not None
assert _spec.loader is not None
hooks = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(hooks)

MODULES = {module.name: module for module in hooks.modules()}


def packages_on_the_page() -> set[str]:
    """Return the packages in the table of layers."""
    (section,) = re.findall(r"^## Packages and layers\n(.*?)^## ", PAGE, re.S | re.M)
    return set(re.findall(r"^\| \d+ \| `([^`]+)` \|", section, re.M))


def test_the_table_of_layers_has_every_package() -> None:
    assert packages_on_the_page() == {
        name for name in MODULES if name.count(".") == 1 and not name.startswith("kraft._core.")
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_path_on_a_page_exists(page: Path) -> None:
    paths = re.findall(r"`((?:kraft|tests)/[\w/.]+)`", page.read_text(encoding="utf-8"))
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_module_on_a_page_exists(page: Path) -> None:
    """A page may name a module, or a name in a module's source. Two names are a feature's and a
    setting's.
    """
    names = set(re.findall(r"`(kraft\.[\w.]+)`", page.read_text(encoding="utf-8")))
    others = {"kraft.version", "kraft.http.listener"}
    assert [name for name in names - others if not is_defined(name)] == []


def is_defined(name: str) -> bool:
    module, rest = name, ""
    while module not in MODULES:
        module, _, rest = module.rpartition(".")
    return bool(re.search(rf"\b{rest}\b", MODULES[module].path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_test_on_a_page_exists(page: Path) -> None:
    """``test_row_13_...`` stands for all tests whose names begin with ``test_row_13_``.

    The tests in a page's own examples are not the project's, nor those of clients.
    """
    text = re.sub(
        r"^```(python|text)$.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S
    )
    names = set(re.findall(r"\btest_\w+", text)) - CLIENT_TESTS
    assert [name for name in names if f"def {name}" not in TESTS and name not in TEST_FILES] == []


@pytest.mark.parametrize("name", sorted(MODULES))
def test_every_module_begins_with_a_sentence_for_the_table(name: str) -> None:
    summary = MODULES[name].summary
    assert summary
    assert summary[-1] in ".!?)`:", summary


def test_the_table_has_each_module_of_the_tree_once() -> None:
    """A module has one row, also if it has a stub (.pyi) and a header (.pxd)."""
    on_disk = {
        str(path.relative_to(ROOT).with_suffix(""))
        for path in (ROOT / "kraft").rglob("*")
        if path.suffix in (".py", ".pyx", ".pxd") and path.stem not in ("__init__", "__main__")
    }
    table = hooks.module_tables(links=False)
    assert len(re.findall(r"^\| `\w+` \|", table, re.M)) == len(on_disk)


def test_a_class_name_is_used_once() -> None:
    """Two classes of one name in the package would be confused in pages and error traces."""
    names = Counter(
        name
        for path in (ROOT / "kraft").rglob("*")
        if path.suffix in (".py", ".pyx")
        for name in re.findall(
            r"^(?:cdef )?class (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE
        )
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_links_show_the_titles_of_pages() -> None:
    titles = dict(hooks.titles([{"Guides": [{"Run a quorum": "quorum.md"}]}]))
    assert hooks.with_titles("([docs/quorum.md](../quorum.md#disks))", "how-to", titles) == (
        "([Run a quorum](../quorum.md#disks))"
    )
    assert hooks.with_titles("[other.md](other.md)", "", titles) == "[other.md](other.md)"


def test_names_in_tables_break_between_their_parts() -> None:
    html = (
        "<p><code>a/b</code></p><td><code>tests/unit/test_a.py</code><code>kraft.raft.x</code></td>"
    )
    assert hooks.on_page_content(html) == (
        "<p><code>a/b</code></p><td><code>tests/unit/<wbr>test_a.py</code>"
        "<code>kraft.raft.<wbr>x</code></td>"
    )
    name = "<td><code>at_most_one_leader_an_epoch</code></td>"
    assert hooks.on_page_content(name).count('_<wbr class="narrow">') == 5
