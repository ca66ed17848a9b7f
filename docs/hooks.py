"""Pages of the site that are generated: module tables, API reference, pages from outside docs/.

mkdocs calls the ``on_…`` functions (``mkdocs.yml`` names this file). ``python docs/hooks.py``
prints the module tables. Docstrings are read from the sources, those of a compiled module from its
``.pyi``, so that nothing is imported from kraft.
"""

from __future__ import annotations

import ast
import posixpath
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
#: Pages that live outside docs/, and their place in the site.
OUTSIDE = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "index.md",
    "tests/data/README.md": "recorded-metadata.md",
}
#: The npm package of mermaid.js, which draws the diagrams in the browser; ``make docs`` fetches it.
MERMAID_PACKAGE = "build/mermaid-11.12.0.tgz"
MERMAID_SCRIPT = "assets/javascripts/mermaid.min.js"
#: Packages whose functions are commands of typer.
COMMANDS = {"kraft.cli"}
#: A cell of a table, the code in it, and where the code may break: after a slash or a dot, not
#: behind the name of the package.
_CELL = re.compile(r"<td[^>]*>.*?</td>", re.DOTALL)
_CODE = re.compile(r"<code>([^<]*)</code>")
_BREAK = re.compile(
    r"(?<!kraft[./])(?<!tests/)(?:(?<=/)(?=\w)|(?<=\.)(?=[a-z_])(?!(?:pyx?|pyi|md|jsonl?|gz|log)\b))"
)
#: Characters of a name from which it may also break after an underscore, in a narrow window only.
_LONG_NAME = 20
#: Where the docstring of a module is read, the first one that exists.
_SUFFIXES = (".pyi", ".py", ".pyx", ".pxd")
_DOCSTRING = re.compile(r'\A(?:#[^\n]*\n|\s)*[rR]?"""(.*?)"""', re.DOTALL)
#: A module of C functions alone (a ``.pxd``) begins with a comment instead.
_COMMENT = re.compile(r"\A((?:#[^\n]*\n)+)")


class Module(NamedTuple):
    """A module of the package: ``kraft.image.replay``, its file, and what its docstring says."""

    name: str
    path: Path
    docstring: str

    @property
    def package(self) -> str:
        return self.name if self.path.stem == "__init__" else self.name.rpartition(".")[0]

    @property
    def summary(self) -> str:
        """Return the first sentence of the docstring, on one line."""
        paragraph = " ".join(self.docstring.strip().split("\n\n")[0].split())
        return re.split(r"(?<=[.!?])\s+(?=[A-Z`])", paragraph)[0].removesuffix("::")

    @property
    def is_typed(self) -> bool:
        """Whether the API reference can describe it: a Python module or a stub."""
        return self.path.suffix in (".py", ".pyi")


def docstring_of(path: Path) -> str:
    """Return the docstring of a Python or Cython module, or an empty string."""
    text = path.read_text(encoding="utf-8")
    if path.suffix in (".py", ".pyi"):
        return ast.get_docstring(ast.parse(text)) or ""
    if found := _DOCSTRING.match(text):
        return found[1]
    comment = _COMMENT.match(text)
    return re.sub(r"^# ?", "", comment[1], flags=re.MULTILINE) if comment else ""


def modules(root: Path = ROOT) -> Iterator[Module]:
    """Yield every module of the package, packages before their modules, in the order of names."""
    stems = {
        path.with_suffix("")
        for path in (root / "kraft").rglob("*")
        if path.suffix in _SUFFIXES and path.stem != "__main__"
    }
    for stem in sorted(stems, key=lambda stem: (stem.parent, stem.name != "__init__", stem.name)):
        path = next(path for suffix in _SUFFIXES if (path := stem.with_suffix(suffix)).exists())
        parts = stem.relative_to(root).parts
        name = ".".join(parts[:-1] if stem.name == "__init__" else parts)
        yield Module(name, path, docstring_of(path))


def packages(root: Path = ROOT) -> dict[Module, list[Module]]:
    """Return the modules of each package, by the package's own module."""
    found: dict[str, tuple[Module, list[Module]]] = {}
    for module in modules(root):
        if module.path.stem == "__init__":
            found[module.name] = (module, [])
        else:
            found[module.package][1].append(module)
    return dict(found.values())


def module_tables(root: Path = ROOT, *, links: bool = True) -> str:
    """Return the page of all modules: a table for each package."""
    page = "[Architecture](architecture.md)" if links else "ARCHITECTURE.md"
    lines = [
        "# Modules",
        "",
        f"Find the module for a task. {page} says how the packages work together.",
    ]
    for package, members in packages(root).items():
        lines += ["", f"## `{package.name}`", "", package.summary]
        if members:
            lines += ["", "| module | summary |", "|---|---|"]
        for module in members:
            name = f"`{module.name.rpartition('.')[2]}`"
            if links and module.is_typed:
                name = f"[{name}](api/{package.name}.md#{module.name})"
            lines.append(f"| {name} | {module.summary.replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n"


def api_page(package: Module, members: list[Module]) -> str:
    """Return the API reference of one package, which mkdocstrings fills in.

    The modules of a package in `COMMANDS` show their docstrings only: their functions are commands,
    whose options and examples are on the page of the command.
    """
    lines = [f"# `{package.name}`", "", package.docstring.replace("::\n", ":\n")]
    for module in members:
        if module.is_typed:
            lines += ["", f"::: {module.name}"]
            if package.name in COMMANDS:
                lines += ["    options:", "      members: false"]
    return "\n".join(lines) + "\n"


def _links_in_site(text: str, folder: str) -> str:
    """Point the links of a page outside docs/ at the pages of the site."""

    def target(match: re.Match[str]) -> str:
        path, hash_, anchor = match[1].partition("#")
        resolved = (ROOT / folder / path).resolve().relative_to(ROOT).as_posix()
        page = OUTSIDE.get(resolved, resolved.removeprefix("docs/"))
        return f"]({page}{hash_}{anchor})"

    return re.sub(r"\]\((?![a-z]+:|#)([^)\s]+)\)", target, text)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the API pages, one for each package, at the end of the reference."""
    pages = [{package.name: f"api/{package.name}.md"} for package in packages()]
    sections: list[Any] = config.nav or []
    reference = next(section["Reference"] for section in sections if "Reference" in section)
    reference.append({"API": pages})
    if (ROOT / "CONTRIBUTING.md").exists():
        development = next(
            section["Development"] for section in sections if "Development" in section
        )
        development.insert(0, {"Contributing": OUTSIDE["CONTRIBUTING.md"]})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    from mkdocs.structure.files import File

    def add(place: str, text: str) -> None:
        files.append(File.generated(config, place, content=text))

    add("modules.md", module_tables())
    for package, members in packages().items():
        add(f"api/{package.name}.md", api_page(package, members))
    for source, place in OUTSIDE.items():
        if place != "index.md" and (ROOT / source).exists():
            text = (ROOT / source).read_text(encoding="utf-8")
            add(place, _links_in_site(text, str(Path(source).parent)))
    with tarfile.open(ROOT / MERMAID_PACKAGE) as package:
        script = package.extractfile("package/dist/mermaid.min.js")
        assert script is not None
        files.append(File.generated(config, MERMAID_SCRIPT, content=script.read()))
    return files


def on_post_page(output: str, page: Page, **_: Any) -> str:
    """Load the site's own mermaid.js on a page with diagrams.

    The theme would load it from another server, so that the site would need the Internet.
    """
    if 'class="mermaid"' not in output:
        return output
    path = "../" * page.url.count("/") + MERMAID_SCRIPT
    scripts = (
        f'<script src="{path}"></script><script>mermaid.initialize({{startOnLoad: false}})</script>'
    )
    return output.replace("</head>", f"{scripts}</head>", 1)


def on_page_content(html: str, **_: Any) -> str:
    """Let the names of modules and paths in tables break between their parts."""

    def breakable(code: re.Match[str]) -> str:
        name = _BREAK.sub("<wbr>", code[1])
        if len(code[1]) > _LONG_NAME:
            name = re.sub(r"_(?=\w)", '_<wbr class="narrow">', name)
        return f"<code>{name}</code>"

    return _CELL.sub(lambda cell: _CODE.sub(breakable, cell[0]), html)


def titles(entries: list[Any]) -> Iterator[tuple[str, str]]:
    """Yield the file and the title of each page in a navigation of mkdocs."""
    for entry in entries:
        for title, content in entry.items():
            if isinstance(content, list):
                yield from titles(content)
            else:
                yield content, title


def with_titles(markdown: str, folder: str, title_of: dict[str, str]) -> str:
    """Replace file names as texts of links by the titles of the pages: [quorum.md](quorum.md)."""

    def titled(link: re.Match[str]) -> str:
        place = posixpath.normpath(posixpath.join(folder, link[1]))
        return f"[{title_of[place]}]({link[1]}" if place in title_of else link[0]

    return re.sub(r"\[[\w/.-]+\.md\]\(([\w/.-]+\.md)", titled, markdown)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Point links that leave docs/ at the pages of the site, and name pages by their titles."""
    depth = page.file.src_uri.count("/")
    for source, place in OUTSIDE.items():
        outside, inside = "../" * (depth + 1) + source, "../" * depth + place
        markdown = markdown.replace(f"]({outside}", f"]({inside}")
    return with_titles(
        markdown, posixpath.dirname(page.file.src_uri), dict(titles(config.nav or []))
    )


if __name__ == "__main__":
    print(module_tables(links=False), end="")
