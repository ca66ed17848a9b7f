"""Name the extra of kraft that a command needs, where a package of it is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kraft.errors import MissingPackageError


@contextmanager
def naming_extra(extra: str = "regress") -> Iterator[None]:
    """Raise MissingPackageError with the name of the extra in place of ImportError."""
    try:
        yield
    except ImportError as error:
        raise MissingPackageError(
            f"this needs kraft[{extra}]: pip install 'kraft[{extra}]' ({error})"
        ) from None
