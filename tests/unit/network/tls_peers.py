"""Certificates and TLS settings of a listener in tests, and those of its clients."""

from __future__ import annotations

import ssl
from dataclasses import replace

from kraft.network.authentication import ListenerSecurity
from kraft.network.tls_context import ClientAuth, TlsSettings, client_context, tls_contexts
from kraft.security.protocols import SecurityProtocol
from tests.harness.certificates import Authority, authority

SERVER = authority().issue("controller-1")
ALICE = authority().issue("alice")
STRANGER = Authority("another").issue("alice")
SETTINGS = TlsSettings(SERVER.certificate_pem, SERVER.key_pem, trusted=authority().pem)


def secured(client_auth: ClientAuth = ClientAuth.NONE, **changes: object) -> ListenerSecurity:
    settings = replace(SETTINGS, client_auth=client_auth, **changes)  # type: ignore[arg-type]
    return ListenerSecurity(SecurityProtocol.SSL, tls_contexts(settings))


def trusting(**changes: object) -> ssl.SSLContext:
    return client_context(TlsSettings(trusted=authority().pem, **changes))  # type: ignore[arg-type]


AS_ALICE = {"certificates": ALICE.certificate_pem, "key": ALICE.key_pem}
