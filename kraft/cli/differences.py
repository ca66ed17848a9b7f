"""Differences of two states as text and as JSON, for ``kraft snapshot diff``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kraft.metadata.diff import Difference


def summary_line(from_offset: int, offset: int, counts: Mapping[str, int]) -> str:
    """Return the line after the differences; ``counts`` are their numbers by kind."""
    listed = ", ".join(f"{count} {kind}" for kind, count in counts.items()) or "none"
    return f"differences from offset {from_offset} to {offset}: {listed}"


def difference_document(change: Difference) -> dict[str, Any]:
    """Return a difference as JSON; values of secret settings are hidden."""
    from kraft.metadata.kafka_json import camel_case

    cause = change.cause
    return {
        "kind": change.kind,
        "key": _key(change),
        "field": change.field if change.kind == "config" else camel_case(change.field),
        "before": _value(change, change.before),
        "after": _value(change, change.after),
        "cause": None if cause is None else {"offset": cause.offset, "type": cause.type},
    }


def difference_line(change: Difference) -> str:
    """Return a difference as one line: ``+`` new, ``-`` removed, ``~`` changed."""
    document = difference_document(change)
    what = " ".join(filter(None, (change.kind, document["key"], document["field"])))
    before, after = _text(document["before"]), _text(document["after"])
    if change.before is None:
        text = f"+ {what}: {after}"
    elif change.after is None:
        text = f"- {what}: {before}"
    else:
        text = f"~ {what}: {before} -> {after}"
    return text if change.cause is None else f"{text}  ({change.cause})"


def _key(change: Difference) -> str:
    """Return the changed object as text: ``payments-3``, ``topic payments``, ``user=alice``."""
    from kraft.image.configs import RESOURCE_TYPES

    key: Any = change.key
    match change.kind:
        case "partition":
            return f"{key[0]}-{key[1]}"
        case "config":
            return f"{RESOURCE_TYPES.get(key[0], key[0])} {key[1] or '<default>'}"
        case "client_quota":
            return ",".join(f"{kind}={name or '<default>'}" for kind, name in key)
        case "scram_credential":
            return f"{_MECHANISMS.get(key[0], key[0])} {key[1]}"
    return str(key)


def _value(change: Difference, value: Any) -> Any:
    if value is None or isinstance(value, int):
        # Most differences; the values of settings are text.
        return value
    from kraft.image.diff import HIDDEN
    from kraft.metadata.kafka_json import is_secret_setting, json_value

    if value is not None and change.kind == "config" and is_secret_setting(change.field):
        return HIDDEN
    return json_value(value)


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={_text(item)}" for name, item in value.items())
    if isinstance(value, list):
        return "[" + ",".join(map(_text, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "none" if value is None else str(value)


_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
