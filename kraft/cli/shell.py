"""``kraft shell``: walk through the metadata as through directories, as kafka-metadata-shell.

Over a running quorum the tree is current at each command (``kraft.live``).
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kraft.cli.exit_codes import EPILOG, REFUSED
from kraft.cli.metadata_source import SourceOptions
from kraft.cli.option_groups import takes_groups

if TYPE_CHECKING:
    from kraft.metadata.view import MetadataView
    from kraft.shell.commands import MetadataShell

app = typer.Typer(add_completion=False)

_PROMPT = ">> "
_HISTORY_FILE = Path("~/.kraft_shell_history")
_HISTORY_LINES = 1000


@app.command(
    epilog=EPILOG,
    # The words behind the command belong to it, also those that begin with a dash.
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@takes_groups
def shell(
    source: SourceOptions,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[COMMAND [PATH]...]",
            help="One command: ls, cat, find, tree, … Default: read commands until `exit`.",
            show_default=False,
        ),
    ] = None,
    show_secrets: Annotated[
        bool,
        typer.Option("--show-secrets", help="Print SCRAM credentials and passwords too."),
    ] = False,
) -> None:
    """Walk through the metadata of a directory or a running quorum with ls, cd, cat, find and tree.

    The tree is that of kafka-metadata-shell. On a running quorum each command sees the latest committed state. Commands come from the arguments, a pipe, or a terminal, where Tab completes paths.

    Exit code 1: a path does not exist, or a line is no command; only of arguments and of a pipe.

    [bold]Examples[/bold]

      kraft shell --from /var/lib/kafka/metadata

      kraft shell --bootstrap-controller localhost:9093 cat '/image/topics/byName/orders/*'

      echo 'tree /image/features' | kraft shell --from /var/lib/kafka/metadata
    """  # noqa: E501
    from kraft.cli.output import LINES_AT_ONCE, write_lines
    from kraft.shell.commands import MetadataShell, ShellUsageError
    from kraft.shell.nodes import root_of

    failures = 0
    lines: list[str] = []

    def write(line: str) -> None:
        lines.append(line)
        if len(lines) == LINES_AT_ONCE:
            flush()

    def flush() -> None:
        write_lines(lines)
        lines.clear()
        sys.stdout.flush()

    def fail(line: str) -> None:
        nonlocal failures
        failures += 1
        flush()
        print(line, file=sys.stderr)

    is_typed = not words and sys.stdin.isatty()
    has_columns = sys.stdout.isatty()
    with _opened(source) as (metadata, refresh):
        walk = MetadataShell(
            root_of(metadata, show_secrets=show_secrets),
            write,
            fail,
            (lambda: shutil.get_terminal_size().columns) if has_columns else (lambda: None),
        )
        if words:
            try:
                walk.run(words)
            except ShellUsageError as error:
                raise typer.BadParameter(str(error)) from error
        else:
            for line in _typed_lines(walk) if is_typed else sys.stdin:
                refresh()
                try:
                    if not walk.run_line(line):
                        break
                except ShellUsageError as error:
                    fail(str(error))
                flush()
    flush()
    if failures and not is_typed:
        raise typer.Exit(REFUSED)


@contextmanager
def _opened(source: SourceOptions) -> Iterator[tuple[MetadataView, Callable[[], object]]]:
    """Open the source; yield it with a function that makes it current. Raises a usage error."""
    quorum = source.quorum()
    if quorum is None:
        yield source.read_directory(), lambda: None
        return
    with quorum.follow() as live:
        yield live, live.poll


def _typed_lines(walk: MetadataShell) -> Iterator[str]:
    """Yield lines from a terminal, with Tab and the history of earlier shells, until Ctrl-D."""
    # A Python may lack readline; then its input has neither.
    with suppress(ImportError):
        _use_readline(walk)
    while True:
        try:
            yield input(_PROMPT)
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            # Ctrl-C drops the line.
            print()


def _use_readline(walk: MetadataShell) -> None:
    """Complete paths with Tab, and keep the history in a file. Raises ImportError."""
    import atexit
    import readline

    file = _HISTORY_FILE.expanduser()
    with suppress(OSError):
        readline.read_history_file(file)
    readline.set_history_length(_HISTORY_LINES)

    def save() -> None:
        with suppress(OSError):
            readline.write_history_file(file)

    atexit.register(save)
    found: list[str] = []

    def complete(word: str, number: int) -> str | None:
        nonlocal found
        if number == 0:
            found = walk.completions(readline.get_line_buffer()[: readline.get_endidx()], word)
        return found[number] if number < len(found) else None

    readline.set_completer_delims(" \t\n")
    readline.set_completer(complete)
    is_libedit = "libedit" in (readline.__doc__ or "")
    readline.parse_and_bind("bind ^I rl_complete" if is_libedit else "tab: complete")
