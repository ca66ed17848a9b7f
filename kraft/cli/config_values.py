"""The values of ``--add-config`` and ``--delete-config``, in the format of ``kafka-configs``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import typer

from kraft.errors import InvalidConfigError

_NAME = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


def read_changes(
    added: str | None, path: Path | None, deleted: Iterable[str] | None
) -> tuple[dict[str, str], list[str]]:
    """Return the values to set and the names to remove: at least one.

    Raises as `read_added` and `read_deleted`, and a usage error where nothing is given.
    """
    values, names = read_added(added, path), read_deleted(deleted)
    if not values and not names:
        raise typer.BadParameter("give --add-config, --add-config-file or --delete-config")
    return values, names


def read_added(text: str | None, path: Path | None) -> dict[str, str]:
    """Return the values of ``K=V,…`` and of a file; the text's win.

    Square brackets group a value that has commas or equals signs, and are dropped. Raises a usage
    error, InvalidConfigError for an unreadable file, CorruptRecordError. Source:
    ``ConfigCommand.parseConfigsToBeAdded``.
    """
    from kraft.metadata.properties import parse_properties

    added: dict[str, str] = {}
    if path is not None:
        try:
            added = parse_properties(path.read_text("latin-1"), path)
        except OSError as error:
            raise InvalidConfigError(f"cannot read {path}: {error.strerror}") from error
    for part in _split_outside_brackets(text or "", ","):
        pair = _split_outside_brackets(part, "=")
        if len(pair) != 2:
            raise typer.BadParameter(
                f"--add-config: {_without_value(part)!r:.80} is not of the form K=V; put a value "
                "with commas or equals signs in square brackets"
            )
        added[pair[0].strip()] = pair[1].replace("[", "").replace("]", "").strip()
    for name in added:
        if not _NAME.fullmatch(name):
            raise typer.BadParameter(f"--add-config: {name!r:.80} is not the name of a config")
    return added


def read_deleted(given: Iterable[str] | None) -> list[str]:
    """Return the names of ``K,…`` options; raises a usage error."""
    names = [name.strip() for text in given or () for name in text.split(",")]
    if not all(names):
        raise typer.BadParameter("--delete-config has an empty name")
    return names


def _without_value(part: str) -> str:
    """Return the part of ``K=V`` that can be shown: the value may be a password."""
    name, equals, _ = part.partition("=")
    return f"{name}=…" if equals else name


def _split_outside_brackets(text: str, separator: str) -> list[str]:
    """Split at each separator that is not within square brackets; [] for an empty text."""
    if not text.strip():
        return []
    parts, depth = [""], 0
    for character in text:
        depth += (character == "[") - (character == "]")
        if character == separator and depth <= 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts
