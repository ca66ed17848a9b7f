"""Types and failures that the mechanisms share."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from kraft.errors import SaslAuthenticationError

#: The longest user name that is looked up, in bytes of UTF-8.
MAX_USER_BYTES: Final = 1024


class Challenge(NamedTuple):
    """The exchange continues: the server sends ``message`` and waits for the peer's answer."""

    message: bytes


class Authenticated(NamedTuple):
    """The exchange succeeded: the server sends ``message``, and the peer is ``user``.

    ``expires_at_ms`` is the time since 1970 at which the credential expires, None if it does not.
    """

    message: bytes
    user: str
    is_token: bool = False
    expires_at_ms: int | None = None


class SaslServer(Protocol):
    """The server's side of one exchange."""

    def respond(self, message: bytes, *, now_ms: int) -> Challenge | Authenticated:
        """Return the answer to the peer's next message. Raises SaslAuthenticationError."""


def generic_failure(mechanism: str) -> SaslAuthenticationError:
    """Return the error of a failure whose reason the peer may not know."""
    return SaslAuthenticationError(
        f"Authentication failed during authentication due to invalid credentials with SASL "
        f"mechanism {mechanism}"
    )


def check_user_length(user: str, mechanism: str) -> None:
    """Raise SaslAuthenticationError for a name longer than `MAX_USER_BYTES`."""
    if len(user) > MAX_USER_BYTES or len(user.encode(errors="replace")) > MAX_USER_BYTES:
        raise generic_failure(mechanism)
