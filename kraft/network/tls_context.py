"""Create the TLS contexts of a listener from keys and certificates in PEM.

One set of keys, certificates and limits makes two contexts: the server's, and the one for this
node's connections to other controllers, as in Kafka. A trusted certificate need not be a root: any
certificate of a trust store ends a chain, as in Java.

Keys never touch a disk: OpenSSL reads them from a file in memory where the system has such files
(Linux), and else from a file that only this user can read, for the time of reading.

Called by ``kraft.server.config`` and by clients. Sources: Kafka's ``DefaultSslEngineFactory``,
``SslConfigs`` (4.3.1); KIP-651, KIP-684.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from kraft.errors import InvalidConfigError

#: The versions of ssl.enabled.protocols that are supported. Older ones are insecure (RFC 8996).
TLS_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}

_TLS_13_SUITES = frozenset(
    ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
)
_SUITE = re.compile(
    r"TLS_(?P<keys>(?:ECDHE|DHE)_(?:RSA|ECDSA|DSS)|RSA)_WITH_"
    r"(?P<cipher>AES_(?P<bits>128|256)_(?P<mode>GCM|CBC)|CHACHA20_POLY1305)_(?P<hash>SHA(?:256|384)?)"
)


class ClientAuth(Enum):
    """ssl.client.auth: whether a listener asks its peers for certificates."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The keys, certificates and limits of a listener, as PEM texts.

    ``key`` may be encrypted with ``key_password``; ``certificates`` begin with the node's own. Both
    are None for a client without a certificate. ``trusted`` None: the system's trust store.
    """

    certificates: str | None = None
    key: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    trusted: str | None = None
    client_auth: ClientAuth = ClientAuth.NONE
    versions: tuple[str, ...] = tuple(TLS_VERSIONS)
    #: IANA's names; empty: OpenSSL's default.
    cipher_suites: tuple[str, ...] = ()
    #: Whether a client checks that the certificate names the host that it connects to.
    checks_host: bool = True


class TlsContexts(NamedTuple):
    """The contexts of one listener: for accepted connections, and for this node's own."""

    server: ssl.SSLContext
    client: ssl.SSLContext


def tls_contexts(settings: TlsSettings) -> TlsContexts:
    """Return the contexts. Raises InvalidConfigError for unusable keys, certificates or limits."""
    if settings.certificates is None:
        raise InvalidConfigError("a TLS listener needs a key and a certificate: set ssl.keystore.*")
    return TlsContexts(_server_context(settings), client_context(settings))


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return a client's context. Raises InvalidConfigError as `tls_contexts`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.checks_host
    context.verify_mode = ssl.CERT_REQUIRED
    _configure(context, settings, is_verifying=True)
    return context


def _server_context(settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = {
        ClientAuth.NONE: ssl.CERT_NONE,
        ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
        ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
    }[settings.client_auth]
    # A peer could make the server work by renegotiating again and again.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    # One ticket is enough for a client that reconnects. A ticket is void with a new context, so
    # that a certificate that is no longer trusted cannot resume a session.
    context.num_tickets = 1
    _configure(context, settings, is_verifying=settings.client_auth is not ClientAuth.NONE)
    return context


def _configure(context: ssl.SSLContext, settings: TlsSettings, *, is_verifying: bool) -> None:
    _limit(context, settings)
    if settings.certificates is not None:
        with _as_file(settings.certificates) as chain, _as_file(settings.key or "") as key:
            try:
                # Without a callback OpenSSL would ask for a password at the terminal.
                context.load_cert_chain(chain, key, lambda: settings.key_password or "")
            except (ssl.SSLError, OSError, ValueError) as error:
                raise InvalidConfigError(
                    f"the key and certificate chain of ssl.keystore.* cannot be used: "
                    f"{_reason(error)}; the chain begins with the certificate of the key, and an "
                    "encrypted key needs ssl.key.password"
                ) from None
    if not is_verifying:
        return
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if settings.trusted is None:
        context.load_default_certs(
            ssl.Purpose.CLIENT_AUTH
            if context.protocol is ssl.PROTOCOL_TLS_SERVER
            else ssl.Purpose.SERVER_AUTH
        )
        return
    try:
        context.load_verify_locations(cadata=settings.trusted)
    except (ssl.SSLError, ValueError) as error:
        raise InvalidConfigError(
            f"the certificates of ssl.truststore.* cannot be used: {_reason(error)}"
        ) from None


def _limit(context: ssl.SSLContext, settings: TlsSettings) -> None:
    """Set the allowed versions and cipher suites."""
    unknown = [name for name in settings.versions if name not in TLS_VERSIONS]
    if unknown or not settings.versions:
        raise InvalidConfigError(
            f"ssl.enabled.protocols is {','.join(settings.versions)!r:.80}; expected one or more "
            f"of {', '.join(TLS_VERSIONS)}"
        )
    versions = {TLS_VERSIONS[name] for name in settings.versions}
    if settings.cipher_suites:
        names = set(settings.cipher_suites)
        older = [
            _openssl_name(name) for name in settings.cipher_suites if name not in _TLS_13_SUITES
        ]
        if (
            names & _TLS_13_SUITES
            and not names >= _TLS_13_SUITES
            and (ssl.TLSVersion.TLSv1_3 in versions)
        ):
            missing = ", ".join(sorted(_TLS_13_SUITES - names))
            raise InvalidConfigError(
                "ssl.cipher.suites has some of the suites of TLS 1.3, and Python cannot switch off "
                f"the others: add {missing}, or leave all of TLS 1.3 out"
            )
        if not names & _TLS_13_SUITES:
            versions.discard(ssl.TLSVersion.TLSv1_3)
        if older:
            try:
                context.set_ciphers(":".join(older))
            except ssl.SSLError:
                raise InvalidConfigError(
                    f"ssl.cipher.suites: OpenSSL has none of {', '.join(settings.cipher_suites)}"
                ) from None
        else:
            versions.discard(ssl.TLSVersion.TLSv1_2)
        if not versions:
            raise InvalidConfigError(
                "ssl.cipher.suites has no suite of a version in ssl.enabled.protocols"
            )
    context.minimum_version, context.maximum_version = min(versions), max(versions)


def _openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a suite of TLS 1.2, from IANA's."""
    match = _SUITE.fullmatch(suite)
    if match is None:
        raise InvalidConfigError(
            f"ssl.cipher.suites has {suite!r:.80}, which is not supported; write names such as "
            "TLS_AES_256_GCM_SHA384 or TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
        )
    parts = [] if match["keys"] == "RSA" else [match["keys"].replace("_", "-")]
    if match["bits"] is None:
        return "-".join((*parts, "CHACHA20-POLY1305"))
    mode = ["GCM"] if match["mode"] == "GCM" else []
    return "-".join((*parts, f"AES{match['bits']}", *mode, match["hash"]))


def _reason(error: Exception) -> str:
    """Return OpenSSL's reason without the place in its sources."""
    return (getattr(error, "reason", None) or str(error)).replace("_", " ").lower()


@contextmanager
def _as_file(text: str) -> Iterator[str]:
    """Yield the path of a file with this text, which no other user can read."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("tls")
        try:
            with os.fdopen(os.dup(descriptor), "wb") as file:
                file.write(text.encode())
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    # Imported where there is no memfd only: a node should start fast.
    import tempfile

    with tempfile.NamedTemporaryFile("w", suffix=".pem") as named:
        named.write(text)
        named.flush()
        yield named.name
