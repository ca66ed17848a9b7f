"""Check the values of znodes, which any ZooKeeper client may have written, before they are records.

Each function returns the value, or raises CorruptZnodeError with the path. Called by `migration`,
`migrated_security` and `registrations`.
"""

from __future__ import annotations

from collections.abc import Sequence

from kraft.errors import CorruptZnodeError
from kraft.zookeeper.tree import ZnodeTree
from kraft.zookeeper.znodes import config_path, decode_config

#: The name of the znode with the settings of every entity that has none of its own.
DEFAULT_ENTITY = "<default>"
INT16_MAX = (1 << 15) - 1
INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1
#: Names in a note; a tree may have thousands.
_NAMED = 5


def number(path: str, what: str, value: int, low: int, high: int) -> int:
    """Return ``value``, which is ``low`` to ``high``."""
    if not low <= value <= high:
        raise CorruptZnodeError(f"{path}: {what} is {value}, not {low} to {high}")
    return value


def text_of(path: str, text: str) -> str:
    """Return ``text``, which UTF-8 can encode: JSON may have half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise CorruptZnodeError(f"{path} has a text that is not valid: {error}") from None
    return text


def configs_of(tree: ZnodeTree, entity_type: str, entity: str) -> dict[str, str]:
    """Return the settings of an entity by name, sorted; none where its znode does not exist."""
    path = config_path(entity_type, entity)
    settings = decode_config(tree.data(path), path)
    for key, value in settings.items():
        if not (key.isascii() and value.isascii()):
            text_of(path, key)
            text_of(path, value)
    return dict(sorted(settings.items()))


def named(names: Sequence[str], kind: str) -> str:
    """Return ``topic a``, or ``3 topics (a, b, c)``, at most five of them by name."""
    if len(names) == 1:
        return f"{kind} {names[0]}"
    shown = ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
    return f"{len(names)} {kind}s ({shown})"
