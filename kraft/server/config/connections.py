"""The limits of connections that a configuration sets, in the properties file or dynamically.

Called by ``loading`` at the start, and again whenever dynamic settings change. Sources: Kafka's
``SocketServerConfigs``, ``ConnectionQuotas``, ``SocketServer.validateReconfiguration`` (4.3.1).
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from kraft.configdef import ConfigType, ConfigValueError, read
from kraft.errors import InvalidConfigError
from kraft.server.config.settings import NO_LIMIT, SETTINGS
from kraft.server.config.values import read_csv_map, read_setting

if TYPE_CHECKING:
    from kraft.controller.quotas.limits import QuotaWindows
    from kraft.network.listener import Limits

_WHERE = "the dynamic configuration"


def host_address(host: str) -> str:
    """Return the first address of a host. Raises ConfigValueError for an unknown host."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigValueError(
            f"IP addresses or host names that resolve; {host!r:.80} does not"
        ) from error
    return str(found[0][4][0])


def no_host_name(host: str) -> str:
    """Raise ConfigValueError: resolving a host name would block the node's event loop."""
    raise ConfigValueError(
        f"IP addresses; {host!r:.80} is a host name, which only the node's properties file may have"
    )


def read_ip_limits(text: str, resolve: Callable[[str], str]) -> dict[str, int]:
    """Return ``max.connections.per.ip.overrides``: limits by address.

    ``resolve`` returns the address of a host name. Raises ConfigValueError.
    """
    if not text:
        return {}
    # Imported here: formatting needs no network, and a start opens its store first.
    from kraft.controller.configs.client_quotas import is_ip_address
    from kraft.network.creation_rates import parsed_address
    from kraft.security.hosts import java_host

    limits: dict[str, int] = {}
    for host, count in read_csv_map(text).items():
        address = parsed_address(host) if is_ip_address(host) else java_host(resolve(host))
        limits[address] = int(read(ConfigType.INT, count))
    return limits


def connection_limits(
    own: Limits,
    values: Mapping[str, str],
    listeners: Iterable[str],
    windows: QuotaWindows,
    resolve: Callable[[str], str],
) -> Limits:
    """Return ``own`` with the connection limits that the settings ``values`` set.

    ``values`` are texts by name; ``listeners`` are the names of the controller's listeners. Where a
    setting has Kafka's value for "unlimited", the limit of ``own`` stays. Raises InvalidConfigError
    for an invalid value.
    """
    from kraft.network.creation_rates import RateLimits

    def number(name: str, setting: str = "") -> int | None:
        """Return the value of the setting ``name``, None if it is unset or unlimited."""
        if name not in values:
            return None
        limit: int = read_setting(SETTINGS[setting or name], values[name], _WHERE)
        return None if limit == NO_LIMIT else limit

    in_all, per_ip = number("max.connections"), number("max.connections.per.ip")
    overrides = "max.connections.per.ip.overrides"
    try:
        of_ips = read_ip_limits(values.get(overrides, ""), resolve)
    except ConfigValueError as refused:
        raise InvalidConfigError(
            f"{overrides} is {values[overrides]!r:.200}; expected {refused}"
        ) from None
    if per_ip == 0 and not of_ips:
        raise InvalidConfigError(
            f"max.connections.per.ip is 0, which rejects every client: set {overrides} for the "
            "addresses that may connect"
        )
    of_listeners: dict[str, int] = {}
    rates: dict[str, int] = {}
    for listener in listeners:
        for setting, found in (
            ("max.connections", of_listeners),
            ("max.connection.creation.rate", rates),
        ):
            limit = number(f"listener.name.{listener.lower()}.{setting}", setting)
            if limit is not None:
                found[listener] = limit
    return own._replace(
        max_connections=own.max_connections if in_all is None else in_all,
        max_connections_per_ip=own.max_connections_per_ip if per_ip is None else per_ip,
        max_connections_of_ips=of_ips,
        max_connections_of_listeners=of_listeners,
        creation_rates=RateLimits(
            number("max.connection.creation.rate"), rates, windows.window_count, windows.window_s
        ),
    )
