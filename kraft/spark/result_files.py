"""Which result files paths mean, and how they are dealt out to tasks. Fed by the store and the data
source with what the user named; opens no file.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from glob import glob, has_magic

from kraft.regression.runs import Problem


def find_files(
    paths: Sequence[str | os.PathLike[str]],
) -> tuple[list[tuple[str, int]], list[Problem]]:
    """The result files that paths mean, with their bytes, each once and sorted; what is not there.

    A file is taken whatever it is called; in folders and below them it is ``*.json``.
    """
    found: dict[str, int] = {}
    problems = []
    for path in (os.fspath(given) for given in paths):
        names = sorted(glob(path, recursive=True)) if has_magic(path) else [path]
        if has_magic(path) and not names and os.path.exists(path):
            names = [path]
        if not names:
            problems.append(Problem(path, "nothing is called like this"))
        for name in names:
            try:
                if os.path.isdir(name):
                    found |= _below(name, problems)
                else:
                    found[name] = os.stat(name).st_size
            except OSError as error:
                problems.append(Problem(name, f"it cannot be read: {error.strerror or error}"))
    return sorted(found.items()), problems


def group_files(
    files: Sequence[tuple[str, int]], *, most_bytes: int, at_least: int
) -> list[list[str]]:
    """Files in groups of about the same bytes, for a task each.

    ``most_bytes`` is what a group holds, unless one file has more; ``at_least`` is how many groups
    there are, unless there are fewer files.
    """
    total = sum(size for _, size in files)
    wanted = max(-(-total // most_bytes), min(at_least, len(files)), 1)
    most = total / wanted
    groups: list[list[str]] = [[]]
    filled = 0
    for path, size in files:
        if groups[-1] and filled + size > most * len(groups):
            groups.append([])
        groups[-1].append(path)
        filled += size
    return [group for group in groups if group]


def _below(folder: str, problems: list[Problem]) -> dict[str, int]:
    def refuse(error: OSError) -> None:
        problems.append(
            Problem(str(error.filename), f"it cannot be read: {error.strerror or error}")
        )

    found = {}
    for place, folders, names in os.walk(folder, onerror=refuse):
        folders.sort()
        for name in names:
            if name.endswith(".json"):
                path = os.path.join(place, name)
                try:
                    found[path] = os.stat(path).st_size
                except OSError as error:
                    refuse(error)
    return found
