"""Where a store is: a directory, or a place in an object store such as ``s3://bucket/results``.

Data files are read and written through `StoreLocation.filesystem`, in this process or in a worker.
Object stores are configured by the environment variables that `deltalake` reads
(``AWS_ACCESS_KEY_ID``, ``AWS_ENDPOINT_URL``, ``AWS_REGION``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlparse

from pyarrow import fs

from kraft.errors import InvalidRequestError, StorageError

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
#: Escape sequences in messages of `deltalake`.
_COLORS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class StoreLocation:
    """The place of one store; an immutable value that can be sent to workers."""

    uri: str  # an absolute path, or a URI of an object store

    @classmethod
    def of(cls, store: str | os.PathLike[str]) -> StoreLocation:
        """Return the location of a path or URI (``file://`` is a path).

        Raises InvalidRequestError for an empty text, which would be the current directory, and for
        ``s3:/bucket``, which would be a directory ``s3:``.
        """
        text = os.fspath(store)
        if not text:
            raise InvalidRequestError("the name of the store is empty: write its directory")
        scheme, colon, rest = text.partition(":/")
        if colon and scheme.isalnum() and len(scheme) > 1 and not rest.startswith("/"):
            raise InvalidRequestError(f"{text}: an object store is {scheme}://bucket/…")
        if text.startswith("file://"):
            text = unquote(urlparse(text).path)
        return cls(text.rstrip("/") if _URI.match(text) else os.path.abspath(text))

    @property
    def is_local(self) -> bool:
        return _URI.match(self.uri) is None

    @property
    def filesystem(self) -> fs.FileSystem:
        """Return the file system whose paths are relative to the store.

        Raises StorageError for an object store that `deltalake` does not know or cannot use.
        """
        if self.is_local:
            return fs.SubTreeFileSystem(self.uri, fs.LocalFileSystem())
        from deltalake.exceptions import DeltaError
        from deltalake.fs import DeltaStorageHandler

        try:
            handler = DeltaStorageHandler(self.uri)
        except (DeltaError, OSError) as error:
            raise StorageError(f"{self.uri}: {message_of(error)}") from None
        return fs.PyFileSystem(handler)

    def absolute(self, file: str) -> str:
        return f"{self.uri}/{file}"

    def sync(self, file: str) -> None:
        """Make a file of a directory durable; objects are durable once they are written."""
        if self.is_local:
            path = self.absolute(file)
            _sync(path)
            _sync(os.path.dirname(path))

    def remove(self, files: Sequence[str]) -> None:
        """Remove files that no version of the store names."""
        filesystem = self.filesystem
        for file in files:
            filesystem.delete_file(file)


def message_of(error: Exception) -> str:
    """Return the message of an error of `deltalake` as one line of plain text."""
    return " ".join(_COLORS.sub("", str(error)).replace("↳", ":").split()).replace(" :", ":")


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
