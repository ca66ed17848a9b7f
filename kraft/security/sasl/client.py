"""The client's side of a SASL exchange: PLAIN or SCRAM with the credentials of a login module.

A controller uses it for its connections to other controllers; a tool uses it for its connections to
any controller.
Sources: Kafka's ``SaslClientAuthenticator``, ``SaslClientCallbackHandler``,
``ScramLoginModule`` (4.3.1).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from kraft.errors import InvalidConfigError, SaslAuthenticationError
from kraft.security.sasl.jaas import PLAIN_LOGIN_MODULE, SCRAM_LOGIN_MODULE, LoginModule
from kraft.security.sasl.plain import PLAIN, plain_message
from kraft.security.sasl.scram import SCRAM_MECHANISMS, ScramClient

#: The supported mechanisms, and the login modules of Kafka that belong to them.
LOGIN_MODULES = {
    PLAIN: PLAIN_LOGIN_MODULE,
    **dict.fromkeys(SCRAM_MECHANISMS, SCRAM_LOGIN_MODULE),
}


class SaslClient(Protocol):
    """The client's side of one exchange."""

    def first_message(self) -> bytes: ...

    def respond(self, message: bytes) -> bytes | None:
        """Return the answer to the server's message, None after the last one.

        SCRAM's takes milliseconds. Raises SaslAuthenticationError.
        """


class _PlainClient:
    def __init__(self, user: str, password: str) -> None:
        self._message = plain_message(user, password)

    def first_message(self) -> bytes:
        return self._message

    def respond(self, message: bytes) -> bytes | None:
        if message:
            raise SaslAuthenticationError("the server sent a challenge, which PLAIN does not have")
        return None


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """The mechanism, user and password of a client; ``is_token``: those of a delegation token."""

    mechanism: str
    user: str
    password: str = field(repr=False)
    is_token: bool = False

    def begin(self, nonce: str) -> SaslClient:
        """Return a new exchange; ``nonce`` as in `ScramClient`."""
        scram = SCRAM_MECHANISMS.get(self.mechanism)
        if scram is None:
            return _PlainClient(self.user, self.password)
        return ScramClient(scram, self.user, self.password, nonce, is_token=self.is_token)


def client_credentials(mechanism: str, module: LoginModule) -> ClientCredentials:
    """Return the credentials in a login module's options ``username`` and ``password``.

    Raises InvalidConfigError where one is missing, and for a module of another mechanism.
    """
    check_login_module(mechanism, module)
    for option in ("username", "password"):
        if not module.options.get(option):
            raise InvalidConfigError(
                f"sasl.jaas.config: the login module of {mechanism} has no {option}, which "
                "connections to controllers need"
            )
    return ClientCredentials(
        mechanism,
        module.options["username"],
        module.options["password"],
        is_token=module.options.get("tokenauth", "").lower() == "true",
    )


def check_login_module(mechanism: str, module: LoginModule) -> None:
    """Raise InvalidConfigError for a login module that does not belong to the mechanism."""
    expected = LOGIN_MODULES[mechanism]
    if module.name != expected:
        raise InvalidConfigError(
            f"sasl.jaas.config: {mechanism} needs the login module {expected}, not "
            f"{module.name!r:.200}"
        )
