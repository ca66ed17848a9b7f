"""The output of commands: JSON, tables for a terminal, or plain columns for a pipe.

A terminal gets rich tables (without colours where ``NO_COLOR`` is set); a pipe or file gets the
same text in plain, aligned columns that are never cut or wrapped; ``--json`` prints one JSON
document. Progress bars go to stderr and only to a terminal.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rich.console import Console

#: A longer table is printed plain on a terminal too: laying it out would take too long.
_MAX_RICH_ROWS = 2000
#: Lines that one call writes. Where PYTHONUNBUFFERED is set, each call is a system call.
LINES_AT_ONCE = 1000
_ITEMS_AT_ONCE = 20


class Advance(Protocol):
    """Sets the finished amount of a progress bar."""

    def __call__(self, done: float) -> None: ...


class Output:
    """Prints to stdout in the format for a terminal, a pipe or ``--json``."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self.is_terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self._has_printed = False

    @cached_property
    def console(self) -> Console:
        """The rich console, for commands that print with rich themselves."""
        from rich.console import Console

        class PipeConsole(Console):
            def on_broken_pipe(self) -> None:
                """Raise, so that the command chooses the exit code; rich would exit with 1."""
                raise BrokenPipeError

        return PipeConsole()

    def document(self, document: Any) -> None:
        """Print one JSON document; indented for a terminal, on one line for a program."""
        json.dump(document, sys.stdout, indent=2 if self.is_terminal else None)
        sys.stdout.write("\n")
        # A reader gets the document before the command ends.
        sys.stdout.flush()

    def document_with_list(self, document: dict[str, Any], name: str, items: Iterable[Any]) -> None:
        """Print ``document`` with the list ``items`` as its last member ``name``.

        Encodes few items at a time: memory does not grow with the list. ``document`` is not empty.
        """
        self._write_with_list(document, name, items, depth=0)
        sys.stdout.write("\n")
        sys.stdout.flush()

    def documents_with_lists(
        self, documents: Iterable[tuple[dict[str, Any], Iterable[Any]]], name: str
    ) -> None:
        """Print a list of documents, each with its items as its last member ``name``.

        As `document_with_list`: encodes few items at a time.
        """
        is_first = True
        for document, items in documents:
            sys.stdout.write(self._separator(1, is_first=is_first))
            self._write_with_list(document, name, items, depth=1)
            is_first = False
        sys.stdout.write(self._closing(0, is_empty=is_first) + "\n")
        sys.stdout.flush()

    def _write_with_list(
        self, document: dict[str, Any], name: str, items: Iterable[Any], depth: int
    ) -> None:
        # The C encoder, which json.dump does not use: five times as fast.
        encode = json.JSONEncoder(indent=2 if self.is_terminal else None).encode
        write = sys.stdout.write
        opening = self._indented(encode({**document, name: []}), depth)
        write(opening[: opening.rindex("[")])
        is_first = True
        rest = iter(items)
        # An indented item has another indentation inside of a list.
        while some := list(islice(rest, 1 if self.is_terminal else _ITEMS_AT_ONCE)):
            write(self._separator(depth + 2, is_first=is_first))
            if self.is_terminal:
                write(self._indented(encode(some[0]), depth + 2))
            else:
                write(encode(some)[1:-1])
            is_first = False
        write(self._closing(depth + 1, is_empty=is_first) + opening[opening.rindex("]") + 1 :])

    def _indented(self, text: str, depth: int) -> str:
        return text.replace("\n", "\n" + 2 * depth * " ") if self.is_terminal else text

    def _separator(self, depth: int, *, is_first: bool) -> str:
        """Return what comes before an item of a list, in the text of `json.dump`."""
        opening = "[" if is_first else ","
        if self.is_terminal:
            return f"{opening}\n{2 * depth * ' '}"
        return opening if is_first else ", "

    def _closing(self, depth: int, *, is_empty: bool) -> str:
        """Return the end of a list at this depth, with its beginning if it is empty."""
        if is_empty:
            return "[]"
        return f"\n{2 * depth * ' '}]" if self.is_terminal else "]"

    def fields(self, title: str, fields: Sequence[tuple[str, object]]) -> None:
        """Print names and values, one a line; a value of None is omitted."""
        shown = [(name, _text(value)) for name, value in fields if value is not None]
        if not shown:
            return
        if self.is_terminal:
            from rich.table import Table

            grid = Table(box=None, show_header=False, pad_edge=False)
            grid.add_column(style="cyan", no_wrap=True)
            grid.add_column(overflow="fold")
            for name, value in shown:
                grid.add_row(name, _verbatim(value))
            self._panel(title, grid)
            return
        self._heading(title)
        width = max(len(name) for name, _ in shown)
        for name, value in shown:
            print(f"  {name:<{width}}  {value}")

    def table(
        self,
        title: str,
        columns: Sequence[str],
        rows: Iterable[Sequence[object]],
        *,
        numbers: Sequence[str] = (),
    ) -> None:
        """Print rows under their columns; the columns in ``numbers`` are right-aligned."""
        cells = [[_text(cell) for cell in row] for row in rows]
        if self.is_terminal and len(cells) <= _MAX_RICH_ROWS:
            from rich.table import Table

            table = Table(header_style="bold cyan", box=_thin())
            for column in columns:
                table.add_column(
                    column, justify="right" if column in numbers else "left", overflow="fold"
                )
            for row in cells:
                table.add_row(*map(_verbatim, row))
            self._panel(title, table)
            return
        self._heading(title)
        widths = [
            max([len(column), *(len(row[place]) for row in cells)])
            for place, column in enumerate(columns)
        ]
        for row in [list(columns), *cells]:
            aligned = [
                f"{cell:>{width}}" if column in numbers else f"{cell:<{width}}"
                for cell, width, column in zip(row, widths, columns, strict=True)
            ]
            print(("  " if title else "") + "  ".join(aligned).rstrip())

    def note(self, text: str) -> None:
        """Print a note that needs attention, on stderr so that it never mixes with data."""
        print(f"note: {text}", file=sys.stderr)

    def _heading(self, title: str) -> None:
        if not title:
            return
        if self._has_printed:
            print()
        self._has_printed = True
        print(title)

    def _panel(self, title: str, content: Any) -> None:
        if title:
            from rich.panel import Panel

            content = Panel(content, title=title, title_align="left", expand=False)
        self.console.print(content)


def write_lines(lines: Iterable[str]) -> None:
    """Write lines to stdout, many at a time, so that millions take seconds."""
    rest = iter(lines)
    while some := list(islice(rest, LINES_AT_ONCE)):
        sys.stdout.write("\n".join(some) + "\n")


@contextmanager
def progress(description: str, total: float | None, *, shown: bool = True) -> Iterator[Advance]:
    """Show a progress bar on stderr while the block runs; nothing where stderr is not a terminal.

    ``total`` None means unknown length. ``shown`` False is for short work, or work whose output
    goes to the same terminal.
    """
    if not shown or not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("" if total is None else "{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bars:
        task = bars.add_task(description, total=total)
        yield lambda done: bars.update(task, completed=done)


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _verbatim(text: str) -> Any:
    """Return text that rich prints unchanged, square brackets included."""
    from rich.text import Text

    return Text(text)


def _thin() -> Any:
    from rich import box

    return box.SIMPLE_HEAD
