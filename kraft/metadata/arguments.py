"""Checks of what a caller of the library passes: types and ranges, before anything is done.

Each function returns the checked value in the type that the core takes, or raises
:class:`InvalidArgumentError` that names the argument, the value and what is expected. Called by
``kraft.metadata.facade``, ``decisions``, ``partitions``, ``diff`` and ``health``.

Booleans and floats are no numbers here: ``fence(True)`` would fence broker 1. Numpy's integers are.
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
    """Return ``value`` as an int of ``low`` to ``high``."""
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
    """Return ``value``, text that UTF-8 can express."""
    if not isinstance(value, str):
        raise InvalidArgumentError(f"{what} must be text, not {shown(value)}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(f"{what} {shown(value)} is not valid text: {error}") from None
    return value


def uuid_of(value: Any, what: str) -> Uuid:
    """Return the uuid that 16 bytes, or 22 characters as Kafka prints them, express."""
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
    """Return ``value``, a mapping; ``of`` says in the error from what to what."""
    if not isinstance(value, Mapping):
        raise InvalidArgumentError(f"{what} must be a mapping of {of}, not {shown(value)}")
    return value


def broker_ids(value: Any, what: str) -> list[int]:
    """Return a sequence of broker ids, or a numpy array of them, as a list."""
    return [
        whole_number(each, f"each broker id of {what}", high=INT32_MAX)
        for each in sequence(value, what, "broker ids")
    ]


def sequence(value: Any, what: str, of: str) -> list[Any]:
    """Return a list or another sequence, or a numpy array, as a list."""
    if not isinstance(value, (Sequence, np.ndarray)) or isinstance(
        value, (str, bytes, bytearray, memoryview)
    ):
        raise InvalidArgumentError(f"{what} must be a sequence of {of}, not {shown(value)}")
    try:
        return list(value)
    except TypeError:
        # A numpy array without dimensions.
        raise InvalidArgumentError(
            f"{what} must be a sequence of {of}, not {shown(value)}"
        ) from None


def path_of(value: Any, what: str) -> Path:
    """Return ``value`` as a path that the system's calls take."""
    if not isinstance(value, (str, os.PathLike)):
        raise InvalidArgumentError(f"{what} must be a path, not {shown(value)}")
    try:
        name = os.fsencode(value)
        path = Path(value)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"{what} {shown(value)} is no path: {error}") from None
    if b"\0" in name:
        raise InvalidArgumentError(f"{what} {shown(value)} holds a zero byte")
    return path


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Raise a :class:`StorageError` that names ``path`` in place of the system's own error."""
    try:
        yield
    except KraftError:
        raise
    except OSError as error:
        raise StorageError(f"{error.filename or path}: {error.strerror or error}") from error


def shown(value: Any) -> str:
    """Return a short repr for a message; of an object whose repr fails, its type."""
    try:
        told = repr(value)
    except Exception:
        told = f"a {type(value).__name__}"
    return told if len(told) <= 100 else f"{told[:97]}..."
