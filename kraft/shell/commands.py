"""The commands of the shell: parse a line, run it, write its lines.

The output of ``ls``, ``cat``, ``find``, ``tree``, ``pwd`` and ``history`` is that of
kafka-metadata-shell 4.3.1, and so are the messages for a path that does not exist. Sources: the
classes of ``org.apache.kafka.shell.command``.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from kraft.shell.nodes import ShellDirectory, ShellFile, ShellNode
from kraft.shell.paths import find_nodes, parts_of

#: Writes one line.
WriteLine = Callable[[str], object]

_ALL_HISTORY = 1 << 31


@dataclass(frozen=True, slots=True)
class CommandHelp:
    """What a command does, its arguments, and how many it takes; None: any number."""

    text: str
    arguments: str = ""
    fewest: int = 0
    most: int | None = 0


COMMANDS = {
    "cat": CommandHelp("Print the contents of files.", "PATH…", 1, None),
    "cd": CommandHelp("Change the working directory; the default is /.", "[PATH]", 0, 1),
    "exit": CommandHelp("Leave the shell."),
    "find": CommandHelp("Print the paths of all nodes below some.", "[PATH…]", 0, None),
    "help": CommandHelp("Print the commands."),
    "history": CommandHelp("Print the last commands, by default all.", "[NUMBER]", 0, 1),
    "ls": CommandHelp("List directories, and the names of files.", "[PATH…]", 0, None),
    "man": CommandHelp("Print what a command does.", "COMMAND", 1, 1),
    "pwd": CommandHelp("Print the working directory."),
    "tree": CommandHelp("Print nodes with the contents of all files below.", "PATH…", 1, None),
}


class ShellUsageError(Exception):
    """A line that is no command, or a command with wrong arguments."""


@dataclass(slots=True)
class MetadataShell:
    """The state of one shell: the tree, the working directory, the history.

    ``write`` gets the lines of the output, ``fail`` those about paths that do not exist; ``width``
    returns the width of the terminal, None for one name a line.
    """

    root: ShellDirectory
    write: WriteLine
    fail: WriteLine
    width: Callable[[], int | None] = lambda: None
    working_directory: str = "/"
    history: list[str] = field(default_factory=list)

    def run_line(self, line: str) -> bool:
        """Run a line, and add it to the history; return False for ``exit``.

        Raises ShellUsageError.
        """
        text = line.strip()
        if not text:
            return True
        if not self.history or self.history[-1] != text:
            self.history.append(text)
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise ShellUsageError(f"{error}: {text}") from error
        return self.run(words)

    def run(self, words: Sequence[str]) -> bool:
        """Run a command; return False for ``exit``. Raises ShellUsageError."""
        if not words:
            return True
        name, *arguments = words
        _check(name, arguments)
        match name:
            case "exit":
                return False
            case "cat":
                self._cat(arguments)
            case "cd":
                self._cd(arguments[0] if arguments else "/")
            case "find":
                self._find(arguments)
            case "help":
                self._help()
            case "history":
                self._history(arguments)
            case "ls":
                self._ls(arguments)
            case "man":
                self._man(arguments[0])
            case "pwd":
                self.write(self.working_directory)
            case "tree":
                self._tree(arguments)
        return True

    def _cat(self, paths: Sequence[str]) -> None:
        for path in paths:
            for node in self._nodes(path, f"cat: {path}: No such file or directory."):
                if isinstance(node, ShellFile):
                    self.write(node.text())
                else:
                    self.fail(f"cat: {path}: Is a directory")

    def _cd(self, path: str) -> None:
        found = None
        for found in find_nodes(self.root, path, self.working_directory):
            if isinstance(found.node, ShellFile):
                self.fail(f"cd: {path}: not a directory.")
            else:
                self.working_directory = found.absolute_path
        if found is None:
            self.fail(f"cd: {path}: no such directory.")

    def _find(self, paths: Sequence[str]) -> None:
        for path in paths or (".",):
            for node in self._nodes(path, f"find: {path}: no such file or directory."):
                self.write(path)
                for below in _paths_below(node, "" if path == "/" else path):
                    self.write(below)

    def _help(self) -> None:
        self.write("Commands over the metadata. PATH may have *, ? and {a,b}.")
        width = max(len(f"{name} {each.arguments}") for name, each in COMMANDS.items())
        for name, each in COMMANDS.items():
            self.write(f"  {f'{name} {each.arguments}':<{width}}  {each.text}")

    def _history(self, arguments: Sequence[str]) -> None:
        try:
            count = int(arguments[0]) if arguments else _ALL_HISTORY
        except ValueError:
            raise ShellUsageError(f"history: NUMBER is not a number: {arguments[0]}") from None
        first = max(len(self.history) - max(count, 0), 0)
        for number, line in enumerate(self.history[first:], first):
            self.write(f"{number:5}  {line}")

    def _ls(self, paths: Sequence[str]) -> None:
        files: list[str] = []
        directories: list[tuple[str, list[str]]] = []
        for path in paths or (".",):
            is_found = False
            for found in find_nodes(self.root, path, self.working_directory):
                is_found = True
                if isinstance(found.node, ShellDirectory):
                    directories.append((found.name, found.node.sorted_names()))
                else:
                    files.append(found.name)
            if not is_found:
                self.fail(f"ls: {path}: no such file or directory.")
        self._columns(files)
        is_first = not files
        for name, names in directories:
            has_heading = bool(files) or len(directories) > 1
            if has_heading and names:
                # Kafka counts a directory without names as the first one too.
                if not is_first:
                    self.write("")
                self.write(f"{name}:")
            is_first = False
            self._columns(names)

    def _columns(self, names: Sequence[str]) -> None:
        """Write names in as many columns as the terminal has room for, downwards."""
        width = self.width()
        if width is None or not names:
            for name in names:
                self.write(name)
            return
        cell = max(map(len, names)) + 2
        lines = -(-len(names) // max(width // cell, 1))
        for line in range(lines):
            self.write("".join(f"{name:<{cell}}" for name in names[line::lines]).rstrip())

    def _man(self, name: str) -> None:
        if name not in COMMANDS:
            raise ShellUsageError(f"man: there is no command {name}; {_choices()}")
        each = COMMANDS[name]
        self.write(f"{name}: {each.text}")
        self.write("")
        self.write(f"usage: {name} {each.arguments}".rstrip())

    def _tree(self, paths: Sequence[str]) -> None:
        for path in paths:
            for node in self._nodes(path, f"tree: {path}: No such file or directory."):
                for line in _tree_lines(node, ""):
                    self.write(line)

    def _nodes(self, path: str, missing: str) -> Iterator[ShellNode]:
        is_found = False
        for found in find_nodes(self.root, path, self.working_directory):
            is_found = True
            yield found.node
        if not is_found:
            self.fail(missing)

    def completions(self, line: str, word: str) -> list[str]:
        """Return what can stand in place of ``word``, the last word of ``line`` so far."""
        if not line[: len(line) - len(word)].strip():
            return [f"{name} " for name in COMMANDS if name.startswith(word)]
        if line.split()[0] == "man":
            return [name for name in COMMANDS if name.startswith(word)]
        directory, slash, start = word.rpartition("/")
        node: ShellNode | None = self.root
        for part in parts_of(directory + slash, self.working_directory):
            node = node.child(part) if isinstance(node, ShellDirectory) else None
        if not isinstance(node, ShellDirectory):
            return []
        found = []
        for name in node.sorted_names():
            if name and name.startswith(start):
                ending = "/" if isinstance(node.child(name), ShellDirectory) else " "
                found.append(f"{directory}{slash}{name}{ending}")
        return found


def _check(name: str, arguments: Sequence[str]) -> None:
    """Raise ShellUsageError, mostly in the words of Kafka's shell."""
    if name not in COMMANDS:
        raise ShellUsageError(f"invalid choice: '{name}' ({_choices()})")
    each = COMMANDS[name]
    options = [word for word in arguments if word.startswith("-")]
    surplus = arguments[each.most :] if each.most is not None else []
    unknown = options or surplus
    if unknown:
        raise ShellUsageError(f"unrecognized arguments: '{' '.join(unknown)}'")
    if len(arguments) < each.fewest:
        raise ShellUsageError("too few arguments")


def _choices() -> str:
    return f"choose from {', '.join(repr(name) for name in COMMANDS)}"


def _paths_below(node: ShellNode, path: str) -> Iterator[str]:
    if not isinstance(node, ShellDirectory):
        return
    for name in node.sorted_names():
        below = f"{path}/{name}"
        yield below
        child = node.child(name)
        if child is not None:
            yield from _paths_below(child, below)


def _tree_lines(node: ShellNode, indent: str) -> Iterator[str]:
    if isinstance(node, ShellFile):
        yield indent + node.text()
        return
    for name in node.sorted_names():
        yield f"{indent}{name}:"
        child = node.child(name)
        if child is not None:
            yield from _tree_lines(child, indent + "  ")
