"""Which hosts an ACL may name: an address, `*`, or (from 4.4-IV1 on) a CIDR pattern.

Called by ``kraft.controller.acls``. The controller checks the pattern's form only; brokers match
addresses against it.

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
    """Return why no ACL may name ``host`` at this level of metadata.version; None if one may.

    UnsupportedVersionError for a CIDR pattern below 4.4-IV1, InvalidRequestError for one whose
    address or prefix length is malformed. A host without ``/`` is not looked at, as in 4.3.
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
        f"the host {host!r:.80} is no CIDR pattern: 10.0.0.0/8 and 2001:db8::/32 are"
    )


def is_cidr(text: str) -> bool:
    """Return whether ``text`` is an address, a slash and a prefix length of at most its bits.

    Host bits may be set. IPv4-mapped IPv6 addresses are refused, as in Kafka. So are addresses with
    a scope (``fe80::1%eth0/64``), which Kafka takes where the machine has that interface.
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
