"""Check the types and ranges of arguments that callers of the library pass.

Each function returns the checked value in the type that the core takes, or raises
:class:`InvalidArgumentError` that names the argument, the value and what is expected. Called by
``kraft.metadata.facade``, ``decisions``, ``partitions``, ``diff`` and ``health``.

Booleans and floats are rejected as numbers (``fence_broker(True)`` would fence broker 1); numpy's
integers are accepted.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from kraft.errors import InvalidArgumentError, KraftError, StorageError
from kraft.records import Uuid

if TYPE_CHECKING:
    from collections.abc import Iterator

INT16_MAX = (1 << 15) - 1
INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1
_UUID_SIZE = 16

T = TypeVar("T")


def whole_number(value: Any, what: str, *, low: int = 0, high: int = INT64_MAX) -> int:
    """Return ``value`` as an int from ``low`` to ``high``."""
    number = None
    if not isinstance(value, (bool, np.bool_)):
        with suppress(TypeError):
            number = operator.index(value)
    if number is None:
        raise InvalidArgumentError(f"{what} must be a whole number, not {shown(value)}")
    if not low <= number <= high:
        raise InvalidArgumentError(f"{what} must be {low} to {high}, not {shown(number)}")
    return number


def text(value: Any, what: str) -> str:
    """Return ``value``, a str that UTF-8 can encode."""
    if not isinstance(value, str):
        raise InvalidArgumentError(f"{what} must be text, not {shown(value)}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(f"{what} {shown(value)} is not valid text: {error}") from None
    return value


def uuid_of(value: Any, what: str) -> Uuid:
    """Return the uuid given as 16 bytes or as Kafka's text of 22 characters."""
    if isinstance(value, str):
        with suppress(ValueError, KraftError):
            return Uuid.parse(value)
    elif isinstance(value, (bytes, bytearray, memoryview)) and len(bytes(value)) == _UUID_SIZE:
        return Uuid(bytes(value))
    raise InvalidArgumentError(
        f"{what} must be 16 bytes or Kafka's text of 22 characters, not {shown(value)}"
    )


def instance_of(value: Any, expected: type[T], what: str) -> T:
    """Return ``value``, an instance of ``expected``."""
    if not isinstance(value, expected):
        raise InvalidArgumentError(f"{what} must be a {expected.__name__}, not {shown(value)}")
    return value


def mapping(value: Any, what: str, of: str) -> Mapping[Any, Any]:
    """Return ``value``, a mapping; ``of`` describes keys and values in the error message."""
    if not isinstance(value, Mapping):
        raise InvalidArgumentError(f"{what} must be a mapping of {of}, not {shown(value)}")
    return value


def broker_ids(value: Any, what: str) -> list[int]:
    """Return a sequence or numpy array of broker ids as a list of int."""
    return [
        whole_number(each, f"each broker id of {what}", high=INT32_MAX)
        for each in sequence(value, what, "broker ids")
    ]


def sequence(value: Any, what: str, of: str) -> list[Any]:
    """Return a sequence or numpy array as a list; str and bytes are rejected."""
    if not isinstance(value, (Sequence, np.ndarray)) or isinstance(
        value, (str, bytes, bytearray, memoryview)
    ):
        raise InvalidArgumentError(f"{what} must be a sequence of {of}, not {shown(value)}")
    try:
        return list(value)
    except TypeError:
        # A numpy array with no dimension is not iterable.
        raise InvalidArgumentError(
            f"{what} must be a sequence of {of}, not {shown(value)}"
        ) from None


def path_of(value: Any, what: str) -> Path:
    """Return ``value`` as a path without zero bytes."""
    if not isinstance(value, (str, os.PathLike)):
        raise InvalidArgumentError(f"{what} must be a path, not {shown(value)}")
    try:
        name = os.fsencode(value)
        path = Path(value)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"{what} {shown(value)} is not a path: {error}") from None
    if b"\0" in name:
        raise InvalidArgumentError(f"{what} {shown(value)} contains a zero byte")
    return path


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Convert an ``OSError`` of the block to a :class:`StorageError` that names the file."""
    try:
        yield
    except KraftError:
        raise
    except OSError as error:
        raise StorageError(f"{error.filename or path}: {error.strerror or error}") from error


def shown(value: Any) -> str:
    """Return ``repr(value)`` cut to 100 characters; the type's name where ``repr`` raises."""
    try:
        shortened = repr(value)
    except Exception:
        shortened = f"a {type(value).__name__}"
    return shortened if len(shortened) <= 100 else f"{shortened[:97]}..."
