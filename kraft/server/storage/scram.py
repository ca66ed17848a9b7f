"""Parse SCRAM credentials for the format of a cluster, and make their records.

    SCRAM-SHA-256=[name=alice,password=alice-secret,iterations=8192,salt="N3E="]
    SCRAM-SHA-512=[name=alice,salt="N3E=",saltedpassword="YCE="]

Implements the syntax of ``--add-scram`` (Kafka's ``ScramParser``) and the salting of the password
(RFC 5802, section 3). No error holds the password. Salt and salted password are base64;
without a salt a random one is used.
"""

from __future__ import annotations

import base64
import binascii
import re
import secrets
from collections.abc import Callable

from kraft.errors import InvalidRequestError
from kraft.records import UserScramCredential
from kraft.security.sasl.scram import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    SCRAM_MECHANISMS,
    salted_password,
    scram_keys,
)

DEFAULT_ITERATIONS = 4096
_SALT_SIZE = 24


def draw_salt() -> bytes:
    return secrets.token_bytes(_SALT_SIZE)


def parse_scram(text: str, *, draw: Callable[[], bytes] = draw_salt) -> UserScramCredential:
    """Return the record of one credential. Raises InvalidRequestError without any secret in it."""
    name, equals, rest = text.strip().partition("=")
    mechanism = SCRAM_MECHANISMS.get(name)
    if not equals or mechanism is None:
        raise InvalidRequestError(
            f"a SCRAM credential begins with one of {', '.join(SCRAM_MECHANISMS)} and an equals "
            f"sign, not with {name!r:.40}"
        )
    if not (rest.startswith("[") and rest.endswith("]")):
        raise InvalidRequestError(f"{name}= is followed by [name=…,password=…] in brackets")
    fields = _fields(rest[1:-1])
    user, iterations = fields.pop("name", None), fields.pop("iterations", None)
    salt_text, password = fields.pop("salt", None), fields.pop("password", None)
    salted_text = fields.pop("saltedpassword", None)
    if user is None:
        raise InvalidRequestError("a SCRAM credential needs a name")
    if fields:
        raise InvalidRequestError(
            f"unknown in the SCRAM credential of {user}: {', '.join(sorted(fields))}; known are "
            "name, password, iterations, salt and saltedpassword"
        )
    count = _iterations(user, iterations)
    salt = None if salt_text is None else _base64(user, "salt", salt_text)
    if password is not None:
        salt = draw() if salt is None else salt
        salted = salted_password(mechanism, password, salt, count)
    elif salted_text is None:
        raise InvalidRequestError(f"the SCRAM credential of {user} needs a password")
    elif salt is None:
        raise InvalidRequestError(
            f"the saltedpassword of {user} needs the salt that it was made of"
        )
    else:
        salted = _base64(user, "saltedpassword", salted_text)
    stored_key, server_key = scram_keys(mechanism, salted)
    return UserScramCredential(
        name=user,
        mechanism=mechanism.number,
        salt=salt,
        stored_key=stored_key,
        server_key=server_key,
        iterations=count,
    )


def _fields(text: str) -> dict[str, str]:
    """Parse ``key=value,…``; a value may be in double quotes, but a comma always separates."""
    fields: dict[str, str] = {}
    entries = text.split(",")
    while entries and not entries[-1]:
        del entries[-1]
    for place, entry in enumerate(entries, 1):
        key, equals, value = entry.partition("=")
        if not equals:
            # Without the entry itself: it may be part of a password with a comma.
            raise InvalidRequestError(f"no equals sign in entry {place} of a SCRAM credential")
        if len(value) >= 2 and value[0] == value[-1] == '"':
            value = value[1:-1]
        fields[key] = value
    return fields


def _iterations(user: str, text: str | None) -> int:
    if text is None:
        return DEFAULT_ITERATIONS
    allowed = f"{MIN_ITERATIONS} to {MAX_ITERATIONS}"
    count = int(text) if re.fullmatch(r"\+?[0-9]{1,9}", text, re.ASCII) else -1
    if not MIN_ITERATIONS <= count <= MAX_ITERATIONS:
        raise InvalidRequestError(f"the iterations of {user} are {text!r:.20}; expected {allowed}")
    return count


def _base64(user: str, name: str, text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequestError(f"the {name} of {user} is not base64") from None
