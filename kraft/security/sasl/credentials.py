"""The secrets of users: SCRAM credentials and delegation tokens of the image.

Sources: Kafka's ``ScramServerCallbackHandler``, ``DelegationTokenCache``,
``DelegationTokenManager`` (4.3.1); RFC 5802, section 9, and KIP-48.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from kraft.image.security import ScramCredential, Token
from kraft.security.principals import parse_principal
from kraft.security.sasl.scram import (
    MIN_ITERATIONS,
    FoundCredential,
    ScramMechanism,
    salted_password,
    scram_keys,
)

if TYPE_CHECKING:
    from kraft.image.publishing import Image, ImageDelta

# Kafka's clients make salts of 130 random bits, written in base 36.
_SALT_BITS = 130
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class ImageCredentials:
    """The credentials of an image, and made-up ones for unknown users.

    ``secret`` is random and constant for the process: it makes the salts of unknown users, which
    must not change from one attempt to the next. ``token_key`` is ``delegation.token.secret.key``,
    None without delegation tokens.
    """

    def __init__(
        self,
        scram_credentials: Mapping[tuple[int, str], ScramCredential],
        tokens: Mapping[str, Token],
        *,
        secret: bytes,
        token_key: bytes | None = None,
    ) -> None:
        self._scram_credentials = scram_credentials
        self._tokens = tokens
        self._secret = secret
        self._token_key = token_key

    def scram_user(self, mechanism: ScramMechanism, user: str) -> FoundCredential:
        """Return the credential of a user, a made-up one with the least iterations if unknown."""
        made_up = self._made_up(mechanism, user)
        credential = self._scram_credentials.get((mechanism.number, user))
        return FoundCredential(credential or made_up, user, credential is not None)

    def scram_token(
        self, mechanism: ScramMechanism, token_id: str, *, now_ms: int
    ) -> FoundCredential:
        """Return the credential of a token for its owner; takes milliseconds.

        Derives the keys of an unknown token too, so that the time does not reveal which ids exist.
        An expired token is unknown; Kafka accepts it until it is removed, and ends the session at
        the next request.
        """
        key = self._secret if self._token_key is None else self._token_key
        token_hmac = hmac.digest(key, token_id.encode(), hashlib.sha512)
        salt = self._made_up(mechanism, token_id).salt
        password = base64.b64encode(token_hmac).decode()
        salted = salted_password(mechanism, password, salt, MIN_ITERATIONS)
        credential = ScramCredential(salt, *scram_keys(mechanism, salted), MIN_ITERATIONS)
        token = None if self._token_key is None else self._tokens.get(token_id)
        if token is None or token.expiration_timestamp_ms < now_ms:
            return FoundCredential(credential, "", is_valid=False)
        owner = parse_principal(token.owner).name
        return FoundCredential(credential, owner, True, token.expiration_timestamp_ms)

    def _made_up(self, mechanism: ScramMechanism, user: str) -> ScramCredential:
        seed = f"{mechanism.name}:{user}".encode()
        digest = hmac.digest(self._secret, seed, hashlib.sha512)
        number = int.from_bytes(digest, "big") >> (len(digest) * 8 - _SALT_BITS)
        size = hashlib.new(mechanism.hash_name).digest_size
        return ScramCredential(
            _base36(number).encode(), digest[:size], digest[-size:], MIN_ITERATIONS
        )


class PublishedCredentials(ImageCredentials):
    """The credentials of the latest published image; a publisher of images.

    Another thread may look up credentials at any time: the mappings are plain dicts.
    """

    name = "PublishedCredentials"

    def __init__(self, *, secret: bytes, token_key: bytes | None = None) -> None:
        super().__init__({}, {}, secret=secret, token_key=token_key)

    def on_metadata_update(self, delta: ImageDelta, image: Image) -> None:
        """Follow a published image."""
        if delta.is_full:
            self._scram_credentials = dict(image.state.scram_credentials)
            self._tokens = dict(image.state.delegation_tokens)
            return
        users = cast(dict[tuple[int, str], ScramCredential], self._scram_credentials)
        _update(users, delta.changes.get("scram_credential", {}))
        _update(cast(dict[str, Token], self._tokens), delta.changes.get("delegation_token", {}))


def _update(entries: dict[Any, Any], changes: Mapping[Any, Any]) -> None:
    for key, change in changes.items():
        if change.after is None:
            entries.pop(key, None)
        else:
            entries[key] = change.after


def _base36(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits or "0"
