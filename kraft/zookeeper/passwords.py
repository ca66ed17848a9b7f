"""Decode the passwords that brokers keep encrypted in ZooKeeper: `PasswordDecoder`.

The text is a list of ``name:value``, separated by commas::

    keyFactoryAlgorithm:PBKDF2WithHmacSHA512,cipherAlgorithm:AES/CBC/PKCS5Padding,keyLength:128,
    salt:<base64>,iterations:4096,initializationVector:<base64>,encryptedPassword:<base64>,
    passwordLength:8

The key is made of the broker's ``password.encoder.secret``. Source: ``EncryptingPasswordEncoder``
and its encoders of parameters of Kafka 3.9. No error holds a secret.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping

from kraft.errors import CorruptZnodeError, InvalidConfigError, MissingPackageError

_HASHES = {
    "PBKDF2WithHmacSHA1": "sha1",
    "PBKDF2WithHmacSHA256": "sha256",
    "PBKDF2WithHmacSHA384": "sha384",
    "PBKDF2WithHmacSHA512": "sha512",
}
_CBC, _GCM = "AES/CBC/PKCS5Padding", "AES/GCM/NoPadding"
_AES_KEY_BITS = (128, 192, 256)
_BLOCK_BITS = 128
_MAX_ITERATIONS = 1_000_000


class PasswordDecoder:
    """Decodes with one secret; a `kraft.zookeeper.migration.DecodePassword`.

    Raises MissingPackageError without the package cryptography.
    """

    def __init__(self, secret: str) -> None:
        try:
            import cryptography.hazmat.primitives.ciphers  # noqa: F401
        except ImportError:
            raise MissingPackageError(
                "passwords in ZooKeeper need the package cryptography: pip install "
                "'kraft[zookeeper]'"
            ) from None
        self._secret = secret.encode()

    def __call__(self, text: str, where: str) -> str:
        """Return the password; ``where`` names the setting in errors.

        Raises CorruptZnodeError for a text that Kafka did not write, InvalidConfigError for another
        secret.
        """
        fields = dict(part.strip().partition(":")[::2] for part in text.split(","))
        key = self._key(fields, where)
        encrypted = _bytes(fields, "encryptedPassword", where)
        vector = _bytes(fields, "initializationVector", where)
        length = _number(fields, "passwordLength", where)
        cipher = fields.get("cipherAlgorithm", "")
        if cipher not in (_CBC, _GCM):
            raise CorruptZnodeError(
                f"{where} is encrypted with {cipher!r:.60}; known are {_CBC} and {_GCM}"
            )
        try:
            decrypt = _decrypt_gcm if cipher == _GCM else _decrypt_cbc
            password = decrypt(key, vector, encrypted).decode()
        except ValueError:
            password = None
        # Java counts in UTF-16.
        if password is None or len(password.encode("utf-16-le")) != 2 * length:
            raise InvalidConfigError(
                f"{where} is not encrypted with this password.encoder.secret: give that of the "
                "brokers which set it"
            )
        return password

    def _key(self, fields: Mapping[str, str], where: str) -> bytes:
        factory = fields.get("keyFactoryAlgorithm", "")
        bits = _number(fields, "keyLength", where)
        iterations = _number(fields, "iterations", where)
        salt = _bytes(fields, "salt", where)
        if factory not in _HASHES:
            raise CorruptZnodeError(
                f"{where} has a key of {factory!r:.60}; known are {', '.join(_HASHES)}"
            )
        if bits not in _AES_KEY_BITS or not 1 <= iterations <= _MAX_ITERATIONS:
            raise CorruptZnodeError(
                f"{where} has a key of {bits} bits and {iterations} iterations, which is none of "
                "AES"
            )
        return hashlib.pbkdf2_hmac(_HASHES[factory], self._secret, salt, iterations, bits // 8)


def _decrypt_cbc(key: bytes, vector: bytes, encrypted: bytes) -> bytes:
    """Raises ValueError for another key."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.padding import PKCS7

    decryptor = Cipher(algorithms.AES(key), modes.CBC(vector)).decryptor()
    padded = decryptor.update(encrypted) + decryptor.finalize()
    unpadder = PKCS7(_BLOCK_BITS).unpadder()
    return unpadder.update(padded) + unpadder.finalize()


def _decrypt_gcm(key: bytes, vector: bytes, encrypted: bytes) -> bytes:
    """Raises ValueError for another key."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        return AESGCM(key).decrypt(vector, encrypted, None)
    except InvalidTag:
        raise ValueError("the tag differs") from None


def _number(fields: Mapping[str, str], name: str, where: str) -> int:
    text = fields.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise CorruptZnodeError(f"{where} is not encrypted by Kafka: it has no number {name}")
    return int(text)


def _bytes(fields: Mapping[str, str], name: str, where: str) -> bytes:
    try:
        found = base64.b64decode(fields.get(name, ""), validate=True)
    except (binascii.Error, ValueError):
        found = b""
    if not found:
        raise CorruptZnodeError(f"{where} is not encrypted by Kafka: it has no bytes {name}")
    return found
