"""Explain why a client cannot connect to a controller, and which setting to change.

A listener that speaks another protocol than the client mostly closes the connection without a
reason. `explain` therefore asks it once more in the other protocol: a plain listener answers
ApiVersions, a listener with TLS answers a ClientHello. `asks_for_sasl` asks a listener that closes
the connection at the first request whether it wants SASL. Called by
`kraft.network.quorum_client`; each probe is one short connection.
"""

from __future__ import annotations

import socket
import ssl
import time
from contextlib import closing, suppress

from kraft.errors import CorruptRecordError, KraftError
from kraft.network.controller_connection import Address, ClientSecurity, ControllerConnection

#: The longest time of one probe.
_PROBE_S = 1.0
# The first byte of a TLS record: a handshake message, or an alert.
_TLS_RECORDS = (b"\x16", b"\x15")
# X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH.
_HOST_MISMATCHES = (62, 64)


def explain(error: Exception, address: Address, client_id: str, security: ClientSecurity) -> str:
    """Return the reason of a connection that failed in its handshakes, and what to do."""
    match error:
        case socket.gaierror():
            return f"the host name {address[0]!r:.100} cannot be resolved ({error.strerror})"
        case ConnectionRefusedError():
            return f"{error}: no process listens there; is the address right, and does it run?"
        case ssl.SSLCertVerificationError():
            return _explain_certificate(error)
        case ssl.SSLError() if "ALERT" in (error.reason or ""):
            reason = (error.reason or "").lower().replace("_", " ")
            return (
                f"the listener rejected the TLS handshake ({reason}): check ssl.keystore.*, the "
                "certificate of this client, and ssl.enabled.protocols"
            )
        case ssl.SSLError() | ConnectionError() | CorruptRecordError():
            return _explain_protocol(address, client_id, security) or str(error)
    return str(error)


def asks_for_sasl(address: Address, client_id: str, security: ClientSecurity) -> str:
    """Return what to do for a listener that wants SASL; "" if it does not, or does not answer.

    ``security`` has no credentials.
    """
    try:
        probe = ControllerConnection(address, client_id, time.monotonic() + _PROBE_S, security)
        with closing(probe):
            mechanisms = probe.offered_mechanisms()
    except (OSError, KraftError):
        return ""
    if mechanisms is None:
        return ""
    protocol = "SASL_PLAINTEXT" if security.tls is None else "SASL_SSL"
    return (
        f"the listener asks for SASL: set security.protocol to {protocol}, sasl.mechanism (it has "
        f"{', '.join(mechanisms):.200}) and sasl.jaas.config in the client's configuration"
    )


def _explain_certificate(error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code in _HOST_MISMATCHES:
        return (
            f"the listener's certificate is for another host ({error.verify_message}): use a name "
            "of the certificate, or set ssl.endpoint.identification.algorithm to nothing"
        )
    return (
        f"the listener's certificate is not trusted ({error.verify_message}): name its authority "
        "in ssl.truststore.*"
    )


def _explain_protocol(address: Address, client_id: str, security: ClientSecurity) -> str:
    """Return what to do where the listener and the client disagree about TLS, else ""."""
    if security.tls is None:
        if not _speaks_tls(address):
            return ""
        return (
            "the listener speaks TLS: set security.protocol to SSL, or to SASL_SSL, and "
            "ssl.truststore.* in the client's configuration"
        )
    try:
        deadline = time.monotonic() + _PROBE_S
        ControllerConnection(address, client_id, deadline, ClientSecurity()).close()
    except (OSError, KraftError):
        return ""
    return (
        "the listener does not speak TLS: set security.protocol to PLAINTEXT, or to "
        "SASL_PLAINTEXT, in the client's configuration"
    )


def _speaks_tls(address: Address) -> bool:
    """Return whether the listener answers a ClientHello with a TLS record."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    outgoing = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    try:
        with socket.create_connection(address, _PROBE_S) as probe:
            probe.sendall(outgoing.read())
            return probe.recv(1) in _TLS_RECORDS
    except OSError:
        return False
