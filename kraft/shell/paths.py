"""Find the nodes of a path: relative or absolute, with ``.``, ``..`` and globs.

A glob has ``*``, ``?``, ``{a,b}`` and a backslash before a character that stands for itself.
Source: Kafka's ``GlobComponent``, ``GlobVisitor``, ``CommandUtils`` (4.3.1).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kraft.shell.nodes import ShellDirectory, ShellNode


class FoundNode(NamedTuple):
    """A node and the names on the way to it from the root."""

    path: tuple[str, ...]
    node: ShellNode

    @property
    def name(self) -> str:
        return self.path[-1] if self.path else "/"

    @property
    def absolute_path(self) -> str:
        return "/" + "/".join(self.path)


def parts_of(path: str, working_directory: str) -> list[str]:
    """Return the names of an absolute path, without ``.`` and ``..``."""
    if not path.startswith("/"):
        path = f"{working_directory}/{path}"
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return parts


def find_nodes(root: ShellDirectory, path: str, working_directory: str) -> Iterator[FoundNode]:
    """Yield the nodes that a path or glob names, each directory's in the order of names."""
    return _matching(root, parts_of(path, working_directory), ())


def _matching(node: ShellNode, parts: Sequence[str], path: tuple[str, ...]) -> Iterator[FoundNode]:
    if not parts:
        yield FoundNode(path, node)
        return
    if not isinstance(node, ShellDirectory):
        return
    part, rest = parts[0], parts[1:]
    pattern = glob_pattern(part)
    names = [part] if pattern is None else filter(pattern.fullmatch, node.sorted_names())
    for name in names:
        child = node.child(name)
        if child is not None:
            yield from _matching(child, rest, (*path, name))


def glob_pattern(glob: str) -> re.Pattern[str] | None:
    """Return the pattern of a glob; None for a name that stands for itself.

    Braces that do not pair stand for themselves too, as does every other character.
    """
    pieces: list[str] = []
    is_glob = in_group = False
    at = 0
    while at < len(glob):
        character = glob[at]
        at += 1
        if character == "\\" and at < len(glob):
            pieces.append(re.escape(glob[at]))
            at += 1
        elif character in "*?":
            is_glob = True
            pieces.append(".*" if character == "*" else ".")
        elif character == "{":
            if in_group:
                return None
            is_glob = in_group = True
            pieces.append("(?:")
        elif in_group and character in ",}":
            in_group = character == ","
            pieces.append("|" if in_group else ")")
        else:
            pieces.append(re.escape(character))
    if in_group or not is_glob:
        return None
    return re.compile("".join(pieces), re.DOTALL)
