"""Hosts of ACLs: an address, `*`, or (from 4.4-IV1 on) a CIDR pattern.

The controller checks only the form of a pattern; ``kraft.security.hosts`` matches addresses.
Called by ``kraft.controller.security.acls``.

Source: ``AclControlManager.validateHostPattern`` (4.4.0); KIP-1276.
"""

from __future__ import annotations

from kraft.errors import InvalidRequestError, KraftError, UnsupportedVersionError
from kraft.records.versions import MetadataVersion
from kraft.security.hosts import is_cidr


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
