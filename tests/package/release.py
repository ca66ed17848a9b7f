"""Check whether this commit can be released: ``python -m tests.package.release``.

``make release-check`` builds the distributions first (``make package``). CONTRIBUTING.md has the
rules for versions and the changelog. Exits with 1 and a line for each rule that does not hold.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from email.parser import BytesParser

from packaging.metadata import Metadata

from tests.package.run import DIST, ROOT

_ENTRY = re.compile(r"^## (\d+\.\d+\.\d+) \((.+)\)$", re.MULTILINE)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


def changelog_problems(changelog: str, version: str) -> Iterator[str]:
    """Yield what is wrong with the top entry of the changelog for this version."""
    entries = _ENTRY.findall(changelog)
    if not entries:
        yield "CHANGELOG.md has no entry `## X.Y.Z (date)`"
        return
    top, date = entries[0]
    if top != version:
        yield f"CHANGELOG.md begins with {top}, the version is {version}"
    if not _DATE.fullmatch(date):
        yield f"CHANGELOG.md: the entry {top} is marked {date!r}, not with a date (2026-11-22)"
    numbers = [tuple(map(int, number.split("."))) for number, _ in entries]
    if numbers != sorted(set(numbers), reverse=True):
        yield "CHANGELOG.md: versions are not in descending order"


def version_problems(version: str) -> Iterator[str]:
    module = (ROOT / "kraft" / "version.py").read_text(encoding="utf-8")
    found = re.search(r'^VERSION = "(.+)"$', module, re.MULTILINE)
    if found is None or found[1] != version:
        yield f"kraft/version.py: VERSION differs from pyproject.toml's {version}"


def tree_problems() -> Iterator[str]:
    changed = subprocess.run(
        ["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    if changed:
        yield f"the tree has {len(changed)} uncommitted changes, such as {changed[0].strip()}"


def distribution_problems(version: str) -> Iterator[str]:
    """Yield what is wrong with the distributions in ``dist/`` and their metadata."""
    sdists, wheels = list(DIST.glob("*.tar.gz")), list(DIST.glob("*.whl"))
    if len(sdists) != 1 or len(wheels) != 1:
        yield "dist/ does not hold one source distribution and one wheel: make package"
        return
    with tarfile.open(sdists[0]) as archive:
        member = archive.extractfile(f"kraft-{version}/PKG-INFO")
        in_sdist = member.read() if member else b""
    with zipfile.ZipFile(wheels[0]) as archive:
        in_wheel = archive.read(f"kraft-{version}.dist-info/METADATA")
    for path, text in ((sdists[0], in_sdist), (wheels[0], in_wheel)):
        try:
            metadata = Metadata.from_email(text, validate=True)
        except ExceptionGroup as problems:
            for problem in problems.exceptions:
                yield f"{path.name}: {problem}"
            continue
        if str(metadata.version) != version:
            yield f"{path.name}: its metadata names the version {metadata.version}"
        content = BytesParser().parsebytes(text).get("Description-Content-Type", "")
        if not content.startswith("text/markdown"):
            yield f"{path.name}: the description is {content or 'untyped'}, not Markdown"


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    version: str = project["version"]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    problems = [
        *changelog_problems(changelog, version),
        *version_problems(version),
        *tree_problems(),
        *distribution_problems(version),
    ]
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    if problems:
        raise SystemExit(1)
    print(f"kraft {version} can be released")


if __name__ == "__main__":
    main()
