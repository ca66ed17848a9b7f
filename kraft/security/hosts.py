"""Hosts of ACLs: which addresses a CIDR pattern contains, and how Kafka writes an address.

An ACL names a host by Java's text of the address, by ``*``, or (from metadata.version 4.4-IV1 on)
by a CIDR pattern. Called by ``kraft.security.authorizer`` and by the controller, which checks new
ACLs.

Sources: ``CidrUtils`` with Apache Commons' ``SubnetUtils`` (4.4.0), ``InetAddress.getHostAddress``;
KIP-1276.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import NamedTuple

# SubnetUtils reads decimal octets of up to three digits, leading zeros included.
_IPV4 = r"([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})/([0-9]{1,2})"
_IPV6 = r"\[?([0-9A-Fa-f:.]+)\]?/(?:\+|-(?=0+$))?0*([0-9]{1,3})"
_LONG_ZEROS = r"\b0+(?=[0-9A-Fa-f]{1,4}\b)"


class CidrNetwork(NamedTuple):
    """A CIDR pattern: the addresses of ``version`` 4 or 6 whose ``mask`` bits are ``prefix``."""

    version: int
    prefix: int
    mask: int

    def contains(self, address: ClientAddress | None) -> bool:
        return (
            address is not None
            and address.version == self.version
            and address.value & self.mask == self.prefix
        )


class ClientAddress(NamedTuple):
    """The address of a client as a number."""

    version: int
    value: int


def is_cidr(text: str) -> bool:
    """Return whether ``text`` is an address, a slash and a prefix length of at most its bits.

    Host bits may be set. IPv4-mapped IPv6 addresses are rejected, as in Kafka. Addresses with a
    scope (``fe80::1%eth0/64``) are rejected too; Kafka accepts them if the machine has that
    interface.
    """
    if ":" not in text:
        found = re.fullmatch(_IPV4, text)
        if found is None:
            return False
        *octets, prefix_length = map(int, found.groups())
        return max(octets) <= 255 and prefix_length <= 32
    found = re.fullmatch(_IPV6, text)
    if found is None or int(found[2]) > 128 or text.startswith("[") != ("]/" in text):
        return False
    try:
        address = ipaddress.IPv6Address(re.sub(_LONG_ZEROS, "", found[1]))
    except ValueError:
        return False
    return address.ipv4_mapped is None


def parse_cidr(text: str) -> CidrNetwork | None:
    """Return the network of a pattern; None if ``text`` is not a CIDR pattern (`is_cidr`)."""
    if "/" not in text or not is_cidr(text):
        return None
    address, _, length = text.partition("/")
    if ":" in address:
        version, bits = 6, 128
        value = int(ipaddress.IPv6Address(re.sub(_LONG_ZEROS, "", address.strip("[]"))))
    else:
        version, bits = 4, 32
        value = int.from_bytes(bytes(map(int, address.split("."))), "big")
    mask = (1 << bits) - (1 << (bits - abs(int(length))))
    return CidrNetwork(version, value & mask, mask)


def parse_address(host: str) -> ClientAddress | None:
    """Return a client's address for `CidrNetwork.contains`; None if no pattern contains it.

    That is a text that is not an address, and 0.0.0.0, as in ``SubnetUtils``.
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    value = int(address)
    return ClientAddress(address.version, value) if value or address.version == 6 else None


# Every request asks for its client's.
@lru_cache(maxsize=4096)
def java_host(address: str) -> str:
    """Return an address as ``InetAddress.getHostAddress`` writes it, which ACLs are compared with.

    IPv6 has eight groups without leading zeros; an IPv4-mapped address is written as IPv4. Raises
    ValueError for a text that is not an address.
    """
    plain, percent, scope = address.partition("%")
    parsed = ipaddress.ip_address(plain)
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return ":".join(f"{int(group, 16):x}" for group in parsed.exploded.split(":")) + percent + scope
