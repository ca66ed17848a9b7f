"""The users of SASL in tests: alice by PLAIN, bob by SCRAM, a delegation token of carol."""

from __future__ import annotations

from collections.abc import Callable

from kraft.image.security import ScramCredential, Token
from kraft.security.sasl.credentials import ImageCredentials
from kraft.security.sasl.mechanism import SaslServer
from kraft.security.sasl.plain import PlainServer
from kraft.security.sasl.scram import (
    MIN_ITERATIONS,
    SCRAM_MECHANISMS,
    ScramServer,
    salted_password,
    scram_keys,
)

SCRAM = SCRAM_MECHANISMS["SCRAM-SHA-256"]
TOKEN_KEY = b"key of tokens"
TOKEN = Token("User:carol", "User:carol", (), 0, 1 << 60, 1 << 60)


def scram_credentials() -> ImageCredentials:
    salt = b"salt"
    salted = salted_password(SCRAM, "secret-b", salt, MIN_ITERATIONS)
    bob = ScramCredential(salt, *scram_keys(SCRAM, salted), MIN_ITERATIONS)
    return ImageCredentials(
        {(SCRAM.number, "bob"): bob}, {"token-1": TOKEN}, secret=b"s", token_key=TOKEN_KEY
    )


def sasl_servers() -> dict[str, Callable[[], SaslServer]]:
    """Return, by mechanism, a function that creates the server's side of an exchange."""
    credentials = scram_credentials()
    return {
        "PLAIN": lambda: PlainServer({"alice": "secret-a"}.get),
        SCRAM.name: lambda: ScramServer(SCRAM, credentials, "server-nonce"),
    }
