"""Random uuids."""

from __future__ import annotations

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
        if not is_reserved_directory(uuid) and not str(uuid).startswith("-"):
            return uuid
