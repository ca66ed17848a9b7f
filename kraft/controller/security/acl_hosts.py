"""Hosts of ACLs: an address, `*`, or (from 4.4-IV1 on) a CIDR pattern.

The controller checks only the form of a pattern; brokers match addresses against it. Called by
``kraft.controller.security.acls``.

Sources: ``AclControlManager.validateHostPattern``, ``CidrUtils`` (4.4.0); KIP-1276.
"""

from __future__ import annotations

import ipaddress
import re

from kraft.errors import InvalidRequestError, KraftError, UnsupportedVersionError
from kraft.records.versions import MetadataVersion

# SubnetUtils reads decimal octets of up to three digits, leading zeros included.
_IPV4 = re.compile(r"([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})/([0-9]{1,2})")
_IPV6 = re.compile(r"\[?([0-9A-Fa-f:.]+)\]?/(?:\+|-(?=0+$))?0*([0-9]{1,3})")
_LONG_ZEROS = re.compile(r"\b0+(?=[0-9A-Fa-f]{1,4}\b)")


def host_refusal(host: str, metadata_version: int) -> KraftError | None:
    """Return the error of an invalid ``host`` at this level of metadata.version, or None.

    UnsupportedVersionError for a CIDR pattern below 4.4-IV1, InvalidRequestError for a malformed
    address or prefix length. A host without ``/`` is not checked, as in 4.3.
    """
    if "/" not in host:
        return None
    level = MetadataVersion.from_level(metadata_version)
    if not level.is_cidr_acl_supported:
        return UnsupportedVersionError(
            f"the host {host!r:.80} is a CIDR pattern, which needs metadata.version "
            f"{MetadataVersion.IBP_4_4_IV1.text}, not {level.text}"
        )
    if is_cidr(host):
        return None
    return InvalidRequestError(
        f"the host {host!r:.80} is not a CIDR pattern such as 10.0.0.0/8 or 2001:db8::/32"
    )


def is_cidr(text: str) -> bool:
    """Return whether ``text`` is an address, a slash and a prefix length of at most its bits.

    Host bits may be set. IPv4-mapped IPv6 addresses are rejected, as in Kafka. Addresses with a
    scope (``fe80::1%eth0/64``) are rejected too; Kafka accepts them if the machine has that
    interface.
    """
    if ":" not in text:
        found = _IPV4.fullmatch(text)
        if found is None:
            return False
        *octets, prefix_length = map(int, found.groups())
        return max(octets) <= 255 and prefix_length <= 32
    found = _IPV6.fullmatch(text)
    if found is None or int(found[2]) > 128 or text.startswith("[") != ("]/" in text):
        return False
    try:
        address = ipaddress.IPv6Address(_LONG_ZEROS.sub("", found[1]))
    except ValueError:
        return False
    return address.ipv4_mapped is None
