"""Find the result files of paths and divide them into tasks; opens no file.

The store and the data source call this module with the user's paths.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from glob import glob, has_magic

from kraft.regression.runs import Problem


def find_files(
    paths: Sequence[str | os.PathLike[str]],
) -> tuple[list[tuple[str, int]], list[Problem]]:
    """Return the result files with their sizes, each once and sorted, and the missing paths as
    problems.

    A file may have any name; in folders and below them, ``*.json`` files are used.
    """
    found: dict[str, int] = {}
    problems = []
    for path in (os.fspath(given) for given in paths):
        names = sorted(glob(path, recursive=True)) if has_magic(path) else [path]
        if has_magic(path) and not names and os.path.exists(path):
            names = [path]
        if not names:
            problems.append(Problem(path, "no such file or pattern"))
        for name in names:
            try:
                if os.path.isdir(name):
                    found |= _below(name, problems)
                else:
                    found[name] = os.stat(name).st_size
            except OSError as error:
                problems.append(Problem(name, f"cannot be read: {error.strerror or error}"))
    return sorted(found.items()), problems


def group_files(
    files: Sequence[tuple[str, int]], *, most_bytes: int, at_least: int
) -> list[list[str]]:
    """Divide files into groups of about equal size, one per task.

    A group has at most ``most_bytes``, unless one file is larger; there are at least ``at_least``
    groups, unless there are fewer files.
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
        problems.append(Problem(str(error.filename), f"cannot be read: {error.strerror or error}"))

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
