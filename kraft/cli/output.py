"""What commands print: JSON, tables for a terminal, or plain columns for a pipe.

Owns the choice among them. A terminal gets rich tables (without colours where ``NO_COLOR`` is
set); anything else gets the same words in plain, aligned columns that are never cut or wrapped;
``--json`` prints one JSON document. Progress bars go to stderr and only to a terminal.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rich.console import Console

#: A table of more rows is printed plain on a terminal too: laying it out would take longer than
#: reading it.
_MOST_RICH_ROWS = 2000


class Advance(Protocol):
    """Tells a progress bar how far the work is."""

    def __call__(self, done: float) -> None: ...


class Output:
    """Prints for whoever listens on stdout."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self.is_terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self._began = False

    @cached_property
    def console(self) -> Console:
        """For those who print with rich themselves."""
        from rich.console import Console

        class Told(Console):
            def on_broken_pipe(self) -> None:
                """The exit code is the command's to choose; rich would exit with 1."""
                raise BrokenPipeError

        return Told()

    def document(self, document: Any) -> None:
        """One JSON document; indented for a terminal, on one line for a program."""
        json.dump(document, sys.stdout, indent=2 if self.is_terminal else None)
        sys.stdout.write("\n")
        # Whoever reads need not wait for the command's end.
        sys.stdout.flush()

    def fields(self, title: str, fields: Sequence[tuple[str, object]]) -> None:
        """Names and values, one a line; a value that is None is left out."""
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
        """Rows under their columns; those named in ``numbers`` are set to the right."""
        cells = [[_text(cell) for cell in row] for row in rows]
        if self.is_terminal and len(cells) <= _MOST_RICH_ROWS:
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
        """Something that wants attention, on stderr so that it never mixes with data."""
        print(f"note: {text}", file=sys.stderr)

    def _heading(self, title: str) -> None:
        if not title:
            return
        if self._began:
            print()
        self._began = True
        print(title)

    def _panel(self, title: str, content: Any) -> None:
        if title:
            from rich.panel import Panel

            content = Panel(content, title=title, title_align="left", expand=False)
        self.console.print(content)


@contextmanager
def progress(description: str, total: float | None, *, shown: bool = True) -> Iterator[Advance]:
    """A progress bar on stderr while the block runs; nothing where stderr is no terminal.

    ``total`` None is for work whose length is not known. ``shown`` False is for work that is short,
    or whose output goes to the same terminal.
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
    """Text that rich takes as it is, square brackets included."""
    from rich.text import Text

    return Text(text)


def _thin() -> Any:
    from rich import box

    return box.SIMPLE_HEAD
