"""Listeners and features of a registration: check them and turn them into record structs.

Called by ``broker_lifecycle`` and ``controller_registration``. Source: Kafka's ``ListenerInfo``
(4.3.1). Its checks throw an unexpected exception, after which Kafka's controller resigns. Here the
request is rejected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kraft import records
from kraft.controller.arguments import MAX_INT16, check_integer, check_text
from kraft.errors import InvalidRegistrationError
from kraft.image import NodeEndpoint, VersionRange
from kraft.image.nodes import SECURITY_PROTOCOLS

_MAX_PORT = 65_535


def listener_structs(endpoints: Iterable[NodeEndpoint]) -> list[records.EndpointData]:
    """Return one struct per listener, in order; of several with the same name the last one counts.

    Raises InvalidRegistrationError for a listener without a name, a host or a port, and for an
    unknown security protocol.
    """
    by_name: dict[str, NodeEndpoint] = {}
    for point in endpoints:
        check_text("the name of a listener", point.name, InvalidRegistrationError)
        what = f"the security protocol of listener {point.name!r}"
        highest = len(SECURITY_PROTOCOLS) - 1
        check_integer(what, point.security_protocol, 0, highest, InvalidRegistrationError)
        by_name[point.name] = point
    for point in by_name.values():
        if not point.name:
            raise InvalidRegistrationError(f"the listener at {point.host!r} has no name")
        what = f"the port of listener {point.name!r}"
        check_integer(what, point.port, 1, _MAX_PORT, InvalidRegistrationError)
        check_text(f"the host of listener {point.name!r}", point.host, InvalidRegistrationError)
        if not point.host.strip():
            raise InvalidRegistrationError(f"listener {point.name!r} has no host")
    return [
        records.EndpointData(
            name=point.name,
            host=point.host,
            port=point.port,
            security_protocol=point.security_protocol,
        )
        for point in by_name.values()
    ]


def feature_structs(features: Mapping[str, VersionRange]) -> list[records.Feature]:
    """Return one struct per feature, in order.

    Raises InvalidRegistrationError for a range of levels that is empty or does not fit 16 bits.
    """
    for name, levels in features.items():
        check_text("the name of a feature", name, InvalidRegistrationError)
        lowest, highest = f"the lowest level of {name}", f"the highest level of {name}"
        check_integer(lowest, levels.min, 0, MAX_INT16, InvalidRegistrationError)
        check_integer(highest, levels.max, levels.min, MAX_INT16, InvalidRegistrationError)
    return [
        records.Feature(
            name=name, min_supported_version=levels.min, max_supported_version=levels.max
        )
        for name, levels in features.items()
    ]
