"""The base class of the bodies of requests and responses.

A module of an RPC has one subclass for its request and one for its response. ``decode`` and
``encode`` are what servers, clients and tests call; the schema is compiled, see
``kraft._core.codec.metadata_codec``.
"""

from __future__ import annotations

from typing import Self, cast

from kraft._core.codec.metadata_codec import Struct
from kraft.protocol.headers import Body


class Message(Struct):
    """The body of a request or response."""

    @classmethod
    def decode(cls, body: Body, version: int, position: int = 0) -> Self:
        """Return the message that ``body[position:]`` is in this version.

        Raises CorruptRecordError with the position of malformed, missing or left-over bytes, and
        UnsupportedVersionError for a version that the API does not have.
        """
        return cast(Self, cls.schema.decode(body, version, position))

    def encode(self, version: int) -> bytes:
        """Return the body in this version.

        Raises UnsupportedVersionError where the version cannot carry a field that is not at its
        default, InvalidRecordError for a value of the wrong type or range.
        """
        return type(self).schema.encode(self, version)
