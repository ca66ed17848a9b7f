"""PLAIN: the peer sends user name and password in one message (RFC 4616).

::

    [authorization id] NUL user name NUL password

Sources: Kafka's ``PlainSaslServer``, ``PlainServerCallbackHandler`` (4.3.1).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from typing import Final

from kraft.errors import SaslAuthenticationError
from kraft.security.sasl.mechanism import Authenticated, check_user_length

PLAIN: Final = "PLAIN"

# Kafka's messages to the peer.
_WRONG = "Authentication failed: Invalid username or password"
_OTHER_ID = (
    "Authentication failed: Client requested an authorization id that is different from username"
)


class PlainServer:
    """The server's side of one PLAIN exchange.

    ``password_of`` returns the password of a user, or None for an unknown one.
    """

    def __init__(self, password_of: Callable[[str], str | None]) -> None:
        self._password_of = password_of

    def respond(self, message: bytes, *, now_ms: int) -> Authenticated:
        """Check the peer's only message; the answer to it is empty.

        Raises SaslAuthenticationError, whose text the peer may read.
        """
        # Counted first: the parts of 64 KiB of NULs would be a list of 600 KiB.
        count = message.count(0) + 1
        if count != 3:
            raise SaslAuthenticationError(
                f"Invalid SASL/PLAIN response: expected 3 tokens, got {count}"
            )
        authorization_id, user, password = message.decode(errors="replace").split("\0")
        for value, what in ((user, "username"), (password, "password")):
            if not value:
                raise SaslAuthenticationError(f"Authentication failed: {what} not specified")
        check_user_length(user, PLAIN)
        expected = self._password_of(user)
        is_equal = hmac.compare_digest(_digest(password), _digest(expected or ""))
        if not is_equal or not expected:
            raise SaslAuthenticationError(_WRONG)
        if authorization_id not in ("", user):
            raise SaslAuthenticationError(_OTHER_ID)
        return Authenticated(b"", user)


def plain_message(user: str, password: str) -> bytes:
    """Return the client's only message."""
    return f"\0{user}\0{password}".encode()


def _digest(text: str) -> bytes:
    # Of equal length, so that the time of a comparison does not reveal that of the password.
    return hashlib.sha256(text.encode(errors="replace")).digest()
