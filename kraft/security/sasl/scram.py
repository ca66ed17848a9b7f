"""SCRAM-SHA-256 and SCRAM-SHA-512: both sides of the exchange (RFC 5802, RFC 7677).

The client proves that it knows the password, and the server that it has the user's keys; neither
sends the password. Without channel binding, and without SASLprep, as in Kafka. A client that
authenticates by a delegation token sends the extension ``tokenauth=true``, the token's id as user
name, and uses the token's HMAC in base64 as password.

The server differs from Kafka's where RFC 5802 asks for more. An unknown user gets a salt as well,
and fails at the last message like a wrong password; Kafka fails at the first message, so that
anyone can find out which users exist. The channel binding of the last message has to repeat the
header of the first one, and the proof covers extensions; Kafka checks neither. A mandatory
extension (``m=``) fails; Kafka ignores it.

Sources: Kafka's ``ScramSaslServer``, ``ScramSaslClient``, ``ScramMessages``, ``ScramFormatter``
(4.3.1); KIP-84, KIP-48.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from kraft.errors import SaslAuthenticationError
from kraft.image.security import SCRAM_SHA_256, SCRAM_SHA_512, ScramCredential
from kraft.security.sasl.mechanism import (
    Authenticated,
    Challenge,
    check_user_length,
    generic_failure,
)

#: Allowed iterations of both mechanisms (``ScramMechanism``).
MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16384


class ScramMechanism(NamedTuple):
    """A SCRAM mechanism: its name, its number in records, and the hash function's name."""

    name: str
    number: int
    hash_name: str


SCRAM_MECHANISMS: Final = {
    mechanism.name: mechanism
    for mechanism in (
        ScramMechanism("SCRAM-SHA-256", SCRAM_SHA_256, "sha256"),
        ScramMechanism("SCRAM-SHA-512", SCRAM_SHA_512, "sha512"),
    )
}

#: The same by their numbers in records.
SCRAM_MECHANISMS_BY_NUMBER: Final = {
    mechanism.number: mechanism for mechanism in SCRAM_MECHANISMS.values()
}

# Repeated groups cost 250 bytes of the matcher's stack for each repetition, up to 16 MiB for a
# token: a repetition of single characters costs none. `_decode_name` and `_decode_base64` check the
# rest.
_NAME = r"[\x01-\x2b\x2d-\x7f]+"
_NONCE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = r"[A-Za-z0-9+/]*={0,2}"
# More than any client sends.
_EXTENSIONS = r"(?:,[A-Za-z]+=[\x01-\x2b\x2d-\x7f]+){0,8}"
#: Longer messages fail: two escaped names of 1 KiB and a nonce are far below it.
_MAX_MESSAGE_BYTES = 16 * 1024
_WRONG_ESCAPE = "=(?!2C|3D)"
_CLIENT_FIRST = (
    rf"(?P<header>n,(?:a=(?P<authorization>{_NAME}))?,)"
    rf"(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>{_NONCE})(?P<extensions>{_EXTENSIONS}))"
)
_SERVER_FIRST = (
    rf"r=(?P<nonce>{_NONCE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,9}}){_EXTENSIONS}"
)
_CLIENT_FINAL = (
    rf"(?P<unproven>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_NONCE}){_EXTENSIONS})"
    rf",p=(?P<proof>{_BASE64})"
)
_SERVER_FINAL = (
    rf"(?:e=(?P<error>[\x01-\x2b\x2d-\x3c\x3e-\x7f]+)|v=(?P<signature>{_BASE64})){_EXTENSIONS}"
)
_TOKEN_AUTHENTICATION = "tokenauth"
_OTHER_ID = (
    "Authentication failed: Client requested an authorization id that is different from username"
)


class FoundCredential(NamedTuple):
    """The credential to check a peer with.

    ``user`` is the principal's name: the user, or the owner of a token. ``is_valid`` is false for
    an unknown user, whose made-up credential nobody can satisfy.
    """

    credential: ScramCredential
    user: str
    is_valid: bool
    expires_at_ms: int | None = None


class ScramCredentialSource(Protocol):
    """Finds the credentials of peers; `credentials.ImageCredentials` is one."""

    def scram_user(self, mechanism: ScramMechanism, user: str) -> FoundCredential:
        """Return the credential of a user, a made-up one for an unknown user."""

    def scram_token(
        self, mechanism: ScramMechanism, token_id: str, *, now_ms: int
    ) -> FoundCredential:
        """Return the credential of a delegation token, likewise."""


@dataclass(frozen=True, slots=True)
class _Exchange:
    """The server's state between the two messages of a peer."""

    found: FoundCredential = field(repr=False)
    header: str
    nonce: str
    #: The first messages of client and server.
    messages: str = field(repr=False)
    is_token: bool


class ScramServer:
    """The server's side of one exchange.

    ``nonce`` is random, unique, and of printable ASCII without commas.
    """

    def __init__(
        self, mechanism: ScramMechanism, credentials: ScramCredentialSource, nonce: str
    ) -> None:
        self._mechanism = mechanism
        self._credentials = credentials
        self._nonce = nonce
        self._exchange: _Exchange | None = None
        self._is_over = False

    def respond(self, message: bytes, *, now_ms: int) -> Challenge | Authenticated:
        """Return the answer to the peer's first or last message.

        Raises SaslAuthenticationError, whose text the peer may read; the exchange is then over.
        """
        if self._is_over or len(message) > _MAX_MESSAGE_BYTES:
            self._is_over = True
            raise generic_failure(self._mechanism.name)
        if self._exchange is None:
            self._is_over = True
            answer = self._answer_first(message, now_ms)
            self._is_over = False
            return answer
        self._is_over = True
        return self._answer_final(message, self._exchange)

    def _answer_first(self, message: bytes, now_ms: int) -> Challenge:
        first = re.fullmatch(_CLIENT_FIRST, _text(message))
        if first is None:
            raise generic_failure(self._mechanism.name)
        try:
            user = _decode_name(first["name"])
            authorization_id = _decode_name(first["authorization"] or first["name"])
        except ValueError:
            raise generic_failure(self._mechanism.name) from None
        check_user_length(user, self._mechanism.name)
        if authorization_id != user:
            raise SaslAuthenticationError(_OTHER_ID)
        is_token = _extensions(first["extensions"]).get(_TOKEN_AUTHENTICATION, "").lower() == "true"
        if is_token:
            found = self._credentials.scram_token(self._mechanism, user, now_ms=now_ms)
        else:
            found = self._credentials.scram_user(self._mechanism, user)
        if found.credential.iterations < MIN_ITERATIONS:
            raise generic_failure(self._mechanism.name)
        nonce = first["nonce"] + self._nonce
        salt = base64.b64encode(found.credential.salt).decode()
        challenge = f"r={nonce},s={salt},i={found.credential.iterations}"
        self._exchange = _Exchange(
            found, first["header"], nonce, f"{first['bare']},{challenge}", is_token
        )
        return Challenge(challenge.encode())

    def _answer_final(self, message: bytes, exchange: _Exchange) -> Authenticated:
        found, hash_name = exchange.found, self._mechanism.hash_name
        final = re.fullmatch(_CLIENT_FINAL, _text(message))
        if final is None or final["nonce"] != exchange.nonce:
            raise generic_failure(self._mechanism.name)
        try:
            binding, proof = _decode_base64(final["binding"]), _decode_base64(final["proof"])
        except ValueError:
            raise generic_failure(self._mechanism.name) from None
        if binding != exchange.header.encode():
            raise generic_failure(self._mechanism.name)
        auth_message = f"{exchange.messages},{final['unproven']}".encode()
        stored_key = found.credential.stored_key
        signature = hmac.digest(stored_key, auth_message, hash_name)
        client_key = _xor(signature, proof) if len(proof) == len(signature) else b""
        is_proven = hmac.compare_digest(hashlib.new(hash_name, client_key).digest(), stored_key)
        if not is_proven or not found.is_valid:
            raise generic_failure(self._mechanism.name)
        verifier = hmac.digest(found.credential.server_key, auth_message, hash_name)
        return Authenticated(
            b"v=" + base64.b64encode(verifier), found.user, exchange.is_token, found.expires_at_ms
        )


class ScramClient:
    """The client's side of one exchange.

    ``nonce`` is random, unique, and of printable ASCII without commas. ``is_token``: user and
    password are the id and the base64 of the HMAC of a delegation token.
    """

    def __init__(
        self,
        mechanism: ScramMechanism,
        user: str,
        password: str,
        nonce: str,
        *,
        is_token: bool = False,
    ) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        extension = f",{_TOKEN_AUTHENTICATION}=true" if is_token else ""
        self._first = f"n={_encode_name(user)},r={nonce}{extension}"
        self._server_signature: bytes | None = None
        self.is_complete = False

    def first_message(self) -> bytes:
        return f"n,,{self._first}".encode()

    def respond(self, message: bytes) -> bytes | None:
        """Return the answer to the server's next message; None after the last one.

        Raises SaslAuthenticationError for a malformed message, iterations outside of 4096 to 16384,
        or a server that does not have the user's keys.
        """
        if self._server_signature is None:
            return self._answer_first(_text(message))
        final = re.fullmatch(_SERVER_FINAL, _text(message))
        if final is None or self.is_complete:
            raise SaslAuthenticationError("the server's last SCRAM message is malformed")
        if final["error"] is not None:
            raise SaslAuthenticationError(f"the server rejects the user: {final['error']:.200}")
        try:
            signature = _decode_base64(final["signature"])
        except ValueError:
            raise SaslAuthenticationError("the server's last SCRAM message is malformed") from None
        if not hmac.compare_digest(signature, self._server_signature):
            raise SaslAuthenticationError("the server does not have the keys of the user")
        self.is_complete = True
        return None

    def _answer_first(self, message: str) -> bytes:
        first = re.fullmatch(_SERVER_FIRST, message)
        if first is None or not first["nonce"].startswith(self._nonce):
            raise SaslAuthenticationError("the server's first SCRAM message is malformed")
        try:
            salt = _decode_base64(first["salt"])
        except ValueError as error:
            raise SaslAuthenticationError("the server's SCRAM salt is no base64") from error
        iterations, hash_name = int(first["iterations"]), self._mechanism.hash_name
        if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
            raise SaslAuthenticationError(
                f"the server asks for {iterations} SCRAM iterations; allowed are {MIN_ITERATIONS} "
                f"to {MAX_ITERATIONS}"
            )
        salted = salted_password(self._mechanism, self._password, salt, iterations)
        unproven = f"c={base64.b64encode(b'n,,').decode()},r={first['nonce']}"
        auth_message = f"{self._first},{message},{unproven}".encode()
        client_key = hmac.digest(salted, b"Client Key", hash_name)
        stored_key, server_key = scram_keys(self._mechanism, salted)
        proof = _xor(client_key, hmac.digest(stored_key, auth_message, hash_name))
        self._server_signature = hmac.digest(server_key, auth_message, hash_name)
        return f"{unproven},p={base64.b64encode(proof).decode()}".encode()


def salted_password(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int
) -> bytes:
    """Return the key that SCRAM derives from a password; takes milliseconds."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def scram_keys(mechanism: ScramMechanism, salted: bytes) -> tuple[bytes, bytes]:
    """Return StoredKey and ServerKey of a salted password."""
    client_key = hmac.digest(salted, b"Client Key", mechanism.hash_name)
    stored_key = hashlib.new(mechanism.hash_name, client_key).digest()
    return stored_key, hmac.digest(salted, b"Server Key", mechanism.hash_name)


def _text(message: bytes) -> str:
    # All patterns are of ASCII: any other byte becomes a character that they reject.
    return message.decode("ascii", errors="replace")


def _decode_base64(text: str) -> bytes:
    """Return the bytes. Raises ValueError for a length that is no multiple of four."""
    if len(text) % 4:
        raise ValueError("base64 ends early")
    return base64.b64decode(text)


def _decode_name(name: str) -> str:
    """Return the name without escapes. Raises ValueError for an unknown escape."""
    if re.search(_WRONG_ESCAPE, name) is not None:
        raise ValueError("an unknown escape")
    return name.replace("=2C", ",").replace("=3D", "=")


def _encode_name(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _extensions(text: str) -> dict[str, str]:
    """Return the extensions of ``,name=value,name=value``; the last one of a name counts."""
    pairs = (extension.partition("=") for extension in text.split(",")[1:])
    return {name: value for name, _, value in pairs}


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
