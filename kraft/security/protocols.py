"""Kafka's security protocols, and the identity that a listener established for a peer.

Source: Kafka's ``SecurityProtocol`` (4.3.1).
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from kraft.security.principals import ANONYMOUS, KafkaPrincipal


class SecurityProtocol(IntEnum):
    """A security protocol, by its number in Kafka."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3

    @property
    def has_tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class PeerIdentity(NamedTuple):
    """The peer of a connection: its IP address, its principal, and how and where it connected."""

    address: str
    principal: KafkaPrincipal = ANONYMOUS
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    listener: str = ""
