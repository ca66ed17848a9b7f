"""What brokers and controllers say of themselves when they register: listeners and features.

Owns the checks of a listener, and both as the structs of records. Fed by the requests of
``brokers`` and ``controllers``. Source: Kafka's ``ListenerInfo`` (4.3.1), whose checks end in an
unexpected exception, after which the controller gives up its leadership; here the request is
refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kraft import records
from kraft.errors import InvalidRegistrationError
from kraft.image import Endpoint, VersionRange
from kraft.image.nodes import SECURITY_PROTOCOLS

_MAX_PORT = 65_535


def listener_structs(endpoints: Iterable[Endpoint]) -> list[records.Endpoint]:
    """One struct a listener, in their order; of a name that is given twice the last one counts.

    Raises InvalidRegistrationError for a listener without a name, a host or a port, and for a
    security protocol that is none.
    """
    by_name: dict[str, Endpoint] = {}
    for point in endpoints:
        if not 0 <= point.security_protocol < len(SECURITY_PROTOCOLS):
            raise InvalidRegistrationError(
                f"listener {point.name!r} has the unknown security protocol "
                f"{point.security_protocol}"
            )
        by_name[point.name] = point
    for point in by_name.values():
        if not point.name:
            raise InvalidRegistrationError(f"the listener at {point.host!r} has no name")
        if not 0 < point.port <= _MAX_PORT:
            raise InvalidRegistrationError(f"listener {point.name!r} has the port {point.port}")
        if not point.host or not point.host.strip():
            raise InvalidRegistrationError(f"listener {point.name!r} has no host")
    return [
        records.Endpoint(
            name=point.name,
            host=point.host,
            port=point.port,
            security_protocol=point.security_protocol,
        )
        for point in by_name.values()
    ]


def feature_structs(features: Mapping[str, VersionRange]) -> list[records.Feature]:
    """One struct a feature, in their order."""
    return [
        records.Feature(
            name=name, min_supported_version=levels.min, max_supported_version=levels.max
        )
        for name, levels in features.items()
    ]
