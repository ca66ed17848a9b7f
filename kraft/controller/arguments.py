"""Checks of single values in a request: integers of a width, ids and texts.

Every decision calls these functions before it uses a value, so that a value that no record can hold
is rejected with one of Kafka's errors. ``True`` and ``2.0`` are rejected as integers, although
Python accepts them.
"""

from __future__ import annotations

from numbers import Integral

from kraft._core.table.table import PartitionTable
from kraft.errors import InvalidRequestError, KraftError

MAX_INT16 = (1 << 15) - 1
MAX_INT32 = (1 << 31) - 1
MAX_INT64 = (1 << 63) - 1
#: The most bytes of a string in a record or a request.
_LONGEST_TEXT = MAX_INT16


def is_integer(value: object, low: int, high: int) -> bool:
    """Return whether ``value`` is an integer, or a numpy integer, from ``low`` to ``high``."""
    if type(value) is int:
        return low <= value <= high
    if isinstance(value, bool) or not isinstance(value, Integral):
        return False
    return bool(low <= value <= high)  # type: ignore[operator]


def check_integer(
    what: str,
    value: object,
    low: int,
    high: int,
    error: type[KraftError] = InvalidRequestError,
) -> None:
    """Raise ``error`` unless ``value`` is an integer from ``low`` to ``high``."""
    if not is_integer(value, low, high):
        raise error(f"{what} is {value!r:.80}, and must be an integer from {low} to {high}")


def is_text(value: object) -> bool:
    """Return whether ``value`` is a string of at most 32,767 bytes in UTF-8."""
    if not isinstance(value, str):
        return False
    try:
        return len(value.encode()) <= _LONGEST_TEXT
    except UnicodeEncodeError:
        return False


def check_text(what: str, value: object, error: type[KraftError] = InvalidRequestError) -> None:
    """Raise ``error`` unless ``value`` is a string that a record can hold."""
    if not is_text(value):
        raise error(
            f"{what} is {value!r:.80}, and must be a string of at most {_LONGEST_TEXT} bytes"
        )


def check_bytes(what: str, value: object, error: type[KraftError] = InvalidRequestError) -> None:
    """Raise ``error`` unless ``value`` is bytes; the error does not show the value."""
    if not isinstance(value, bytes):
        raise error(f"{what} must be bytes, not {type(value).__name__}")


def check_uuid(what: str, value: object, error: type[KraftError] = InvalidRequestError) -> None:
    """Raise ``error`` unless ``value`` is the 16 bytes of a uuid."""
    if not isinstance(value, bytes) or len(value) != 16:
        raise error(f"{what} is {value!r:.80}, and must be 16 bytes")


def find_topic(table: PartitionTable, name: object) -> int:
    """Return the number of the topic ``name``, -1 if there is none or ``name`` is no text."""
    if not isinstance(name, str):
        return -1
    try:
        return table.topic_number(name)
    except UnicodeEncodeError:
        return -1


def find_row(table: PartitionTable, topic: int, partition: object) -> int:
    """Return the row of a partition of the topic with number ``topic``.

    -1 where ``topic`` is -1 or the topic has no such partition.
    """
    if topic < 0 or not is_integer(partition, 0, MAX_INT32):
        return -1
    return table.row_of(topic, int(partition))  # type: ignore[call-overload]
