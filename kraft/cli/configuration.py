"""A node's configuration on a command line: the options that name it, and what is told of it.

Owns that nothing in a configuration is passed over in silence: every command that loads one names
what the node does not heed.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kraft.cli.output import Output
    from kraft.server.config.loading import ServerConfig

ConfigOption = Annotated[
    Path,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="The node's configuration: Kafka's own .properties file.",
        show_default=False,
    ),
]


def load_configuration(output: Output, path: Path, overrides: Iterable[str] = ()) -> ServerConfig:
    """The configuration in ``path``; ``overrides`` are ``name=value`` and stand in for the file.

    What the node does not heed is noted on stderr. Raises InvalidConfigError, CorruptRecordError.
    """
    from kraft.errors import InvalidConfigError
    from kraft.server.config.loading import ServerConfig

    given: dict[str, str] = {}
    for override in overrides:
        name, equals, value = override.partition("=")
        if not equals:
            raise InvalidConfigError(f"an override is name=value, which {override!r:.80} is not")
        given[name.strip()] = value
    config = ServerConfig.load(path, given)
    for each in config.not_understood:
        meant = f"; did you mean {each.similar}?" if each.similar else ""
        output.note(f"{each.where}: {each.name} is not understood and has no effect{meant}")
    if config.no_effect:
        names = ", ".join(each.name for each in config.no_effect)
        output.note(f"{config.path}: known to Kafka, has no effect here: {names}")
    for warning in config.warnings:
        output.note(f"{config.path}: {warning}")
    return config
