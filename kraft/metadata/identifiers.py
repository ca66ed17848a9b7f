"""Uuids that Kafka could have drawn: random ones, and hashes."""

from __future__ import annotations

import hashlib
import secrets

from kraft.image.nodes import is_reserved_directory
from kraft.records import Uuid


def random_uuid() -> Uuid:
    """Return a random uuid as Kafka draws one: not reserved, and its text does not begin with a
    dash.

    A command line would take a leading dash for an option.
    """
    while True:
        uuid = Uuid(secrets.token_bytes(16))
        if _is_allowed(uuid):
            return uuid


def hashed_uuid(content: bytes) -> Uuid:
    """Return a uuid of the content, always the same: for ids that a repeated run must not change.

    `random_uuid` has the rules of its form.
    """
    while True:
        content = hashlib.sha256(content).digest()
        uuid = Uuid(content[:16])
        if _is_allowed(uuid):
            return uuid


def _is_allowed(uuid: Uuid) -> bool:
    return not is_reserved_directory(uuid) and not str(uuid).startswith("-")
