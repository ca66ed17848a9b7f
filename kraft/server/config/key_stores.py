"""Read key stores and trust stores: PEM texts and files, PKCS12 files.

Returns PEM texts for `kraft.network.tls_context`. PKCS12 needs the package ``cryptography``
(``kraft[pkcs12]``). A JKS file is rejected with the command that converts it: no maintained package
reads it. As in Java, the type JKS also stands for PKCS12 files, which ``keytool`` has written since
Java 9.

Sources: Kafka's ``DefaultSslEngineFactory`` (4.3.1); KIP-651, RFC 7468.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from kraft.errors import InvalidConfigError
from kraft.server.config.security import PEM, SecurityReader, StoreSettings, TlsFileSettings

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

    from kraft.network.controller_connection import ClientSecurity
    from kraft.network.tls_context import TlsSettings

# A store of a company's certificates has some hundred kilobytes.
_MAX_FILE_SIZE = 16 * 1024 * 1024
_JKS_MAGIC = b"\xfe\xed\xfe\xed"
# In a properties file a PEM text may stand on one line, with blanks instead of line ends.
_BLOCK = re.compile(
    r"-----BEGIN (?P<label>[A-Z0-9 ]+)-----(?P<content>[A-Za-z0-9+/=\s]+)-----END (?P=label)-----"
)
_LINE = re.compile(r".{1,64}")


def read_tls_settings(settings: TlsFileSettings) -> TlsSettings:
    """Return the settings with keys and certificates as texts.

    Raises InvalidConfigError for a missing or unusable file or text.
    """
    # Imported here: formatting needs no network.
    from kraft.network.tls_context import ClientAuth, TlsSettings

    key, key_password, chain = _key_store(settings)
    return TlsSettings(
        certificates=chain,
        key=key,
        key_password=key_password,
        trusted=_trust_store(settings.trust_store),
        client_auth=ClientAuth(settings.client_auth),
        versions=settings.versions,
        cipher_suites=settings.cipher_suites,
        checks_host=settings.checks_host,
    )


def read_client_security(values: dict[str, str], path: Path) -> ClientSecurity:
    """Return how a client connects whose configuration file has these settings.

    Raises InvalidConfigError.
    """
    from kraft.network.controller_connection import ClientSecurity
    from kraft.network.tls_context import client_context

    settings = SecurityReader(values, {}, str(path)).read_client()
    tls = None if settings.tls is None else client_context(read_tls_settings(settings.tls))
    return ClientSecurity(tls, settings.credentials)


def _key_store(settings: TlsFileSettings) -> tuple[str | None, str | None, str | None]:
    """Return key, its password, and certificate chain; None for a client without a key store."""
    store = settings.key_store
    if store.location is None and store.certificates is None:
        return None, None, None
    if store.location is None:
        key = _blocks(store.key or "", "ssl.keystore.key", "PRIVATE KEY")
        return (
            key,
            settings.key_password,
            _blocks(store.certificates or "", "ssl.keystore.certificate.chain", "CERTIFICATE"),
        )
    content = _content(store.location)
    if store.type == PEM:
        text = content.decode(errors="replace")
        return (
            _blocks(text, store.location, "PRIVATE KEY"),
            settings.key_password,
            _blocks(text, store.location, "CERTIFICATE"),
        )
    return _pkcs12_key(content, store)


def _trust_store(store: StoreSettings) -> str | None:
    """Return the trusted certificates; None without a trust store."""
    if store.certificates is not None:
        return _blocks(store.certificates, "ssl.truststore.certificates", "CERTIFICATE")
    if store.location is None:
        return None
    content = _content(store.location)
    if store.type == PEM:
        return _blocks(content.decode(errors="replace"), store.location, "CERTIFICATE")
    return _pkcs12_certificates(content, store)


def _blocks(text: str, where: str, ending: str) -> str:
    """Return the PEM blocks whose label ends with ``ending``, in lines of 64 characters."""
    found = []
    for match in _BLOCK.finditer(text):
        if match["label"].endswith(ending):
            lines = _LINE.findall("".join(match["content"].split()))
            label = match["label"]
            found.append(
                "\n".join((f"-----BEGIN {label}-----", *lines, f"-----END {label}-----\n"))
            )
    if not found:
        raise InvalidConfigError(
            f"{where} has no {ending.lower()} in PEM (a block with BEGIN … {ending})"
        )
    return "".join(found)


def _content(location: str) -> bytes:
    path = Path(location)
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_FILE_SIZE + 1)
    except OSError as error:
        raise InvalidConfigError(f"cannot read {path}: {error.strerror}") from None
    if len(content) > _MAX_FILE_SIZE:
        raise InvalidConfigError(f"{path} is larger than {_MAX_FILE_SIZE:,} bytes: not a key store")
    return content


def _pkcs12_key(content: bytes, store: StoreSettings) -> tuple[str, None, str]:
    from_store = _load_pkcs12(content, store)
    from cryptography.hazmat.primitives import serialization

    if from_store.key is None or from_store.cert is None:
        raise InvalidConfigError(f"{store.location} has no key with a certificate")
    key = from_store.key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    chain = [from_store.cert, *from_store.additional_certs]
    pem = serialization.Encoding.PEM
    texts = (each.certificate.public_bytes(pem).decode() for each in chain)
    return key.decode(), None, "".join(texts)


def _pkcs12_certificates(content: bytes, store: StoreSettings) -> str:
    from_store = _load_pkcs12(content, store)
    from cryptography.hazmat.primitives import serialization

    found = [each for each in (from_store.cert, *from_store.additional_certs) if each is not None]
    if not found:
        raise InvalidConfigError(f"{store.location} has no certificate")
    pem = serialization.Encoding.PEM
    return "".join(each.certificate.public_bytes(pem).decode() for each in found)


def _load_pkcs12(content: bytes, store: StoreSettings) -> PKCS12KeyAndCertificates:
    if content.startswith(_JKS_MAGIC):
        raise InvalidConfigError(
            f"{store.location} is a JKS file, which kraft does not read; convert it by keytool "
            f"-importkeystore -srckeystore {store.location} -destkeystore store.p12 "
            "-deststoretype PKCS12, and set the type PKCS12"
        )
    try:
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise InvalidConfigError(
            f"{store.location} is a PKCS12 file: install kraft[pkcs12] to read it, or convert it "
            f"by openssl pkcs12 -in {store.location} -out store.pem -nodes, and set the type PEM"
        ) from None
    password = None if store.password is None else store.password.encode()
    try:
        return pkcs12.load_pkcs12(content, password)
    except (ValueError, TypeError):
        raise InvalidConfigError(
            f"{store.location} is not a PKCS12 file, or its password is wrong"
        ) from None
