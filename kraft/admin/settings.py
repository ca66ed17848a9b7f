"""The settings of an admin client, from the properties of Kafka's clients.

Read are ``request.timeout.ms``, ``default.api.timeout.ms``, ``client.id``, ``security.protocol``,
``ssl.*``, ``sasl.mechanism`` and ``sasl.jaas.config``; other properties have no effect. Source:
``AdminClientConfig`` (4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path

from kraft.configdef import ConfigType, ConfigValueError
from kraft.errors import InvalidArgumentError, InvalidConfigError
from kraft.metadata.properties import read_properties
from kraft.network.controller_connection import Address, ClientSecurity
from kraft.server.config.key_stores import read_client_security
from kraft.server.config.listeners import read_address
from kraft.server.config.values import Setting, read_setting

#: Kafka's defaults of request.timeout.ms and default.api.timeout.ms.
REQUEST_TIMEOUT_MS = 30_000
API_TIMEOUT_MS = 60_000

_REQUEST_TIMEOUT = Setting("request.timeout.ms", ConfigType.INT, REQUEST_TIMEOUT_MS, lowest=1)
_API_TIMEOUT = Setting("default.api.timeout.ms", ConfigType.INT, API_TIMEOUT_MS, lowest=1)

#: Properties by name, or the path of a file with them.
Properties = Mapping[str, str] | str | PathLike[str]


@dataclass(frozen=True, slots=True)
class AdminSettings:
    """How an admin client connects; times in milliseconds.

    ``bootstrap_controllers`` are the addresses to contact first. ``request_timeout_ms`` is the
    longest time of one attempt of a request, ``default_api_timeout_ms`` that of a call with its
    retries. ``leader_wait_ms`` is how long a call waits while the quorum has no leader; None: as
    long as the call may take.
    """

    bootstrap_controllers: tuple[Address, ...]
    request_timeout_ms: int = REQUEST_TIMEOUT_MS
    default_api_timeout_ms: int = API_TIMEOUT_MS
    leader_wait_ms: int | None = None
    client_id: str = "kraft-admin"
    security: ClientSecurity = field(default_factory=ClientSecurity)


def read_admin_settings(
    bootstrap_controllers: str | Iterable[str],
    properties: Properties | None = None,
    *,
    leader_wait_ms: int | None = None,
) -> AdminSettings:
    """Return the settings for addresses ``host:port,…`` and the properties of a Kafka client.

    ``leader_wait_ms`` is the default of `AdminSettings.leader_wait_ms`; a client that sets one of
    the timeouts itself waits for a leader that long. Raises InvalidArgumentError for a malformed
    address, InvalidConfigError for an invalid property or an unusable file.
    """
    addresses = read_addresses(bootstrap_controllers)
    values: dict[str, str] = {}
    path = Path("properties")
    if isinstance(properties, Mapping):
        values = dict(properties)
    elif properties is not None and not isinstance(properties, str | PathLike):
        raise InvalidArgumentError(
            f"the client properties are {properties!r:.100}: give a mapping, or the path of a file"
        )
    elif properties is not None:
        path = Path(fspath(properties))
        try:
            text = path.read_text("latin-1")
        except OSError as error:
            raise InvalidConfigError(f"cannot read {path}: {error.strerror}") from error
        values = {key: value for key, value, _ in read_properties(text, path)}
    request_ms, api_ms = REQUEST_TIMEOUT_MS, API_TIMEOUT_MS
    if _REQUEST_TIMEOUT.name in values:
        request_ms = read_setting(_REQUEST_TIMEOUT, values[_REQUEST_TIMEOUT.name], str(path))
        leader_wait_ms = request_ms
    if _API_TIMEOUT.name in values:
        api_ms = read_setting(_API_TIMEOUT, values[_API_TIMEOUT.name], str(path))
        leader_wait_ms = api_ms
        if api_ms < request_ms:
            raise InvalidConfigError(
                f"{path}: default.api.timeout.ms is {api_ms}, below request.timeout.ms, "
                f"{request_ms}: a call takes at least one request"
            )
    return AdminSettings(
        addresses,
        request_ms,
        max(api_ms, request_ms),
        leader_wait_ms,
        values.get("client.id", "kraft-admin"),
        read_client_security(values, path),
    )


def read_addresses(text: str | Iterable[str]) -> tuple[Address, ...]:
    """Return the addresses of ``host:port,…``, or of a list of ``host:port``.

    Raises InvalidArgumentError.
    """
    parts = text.split(",") if isinstance(text, str) else text
    parts = list(parts) if isinstance(parts, Iterable) else [parts]
    if not all(isinstance(part, str) for part in parts):
        raise InvalidArgumentError(
            f"the addresses of the controllers are {text!r:.100}: give 'host:port,…' or a list of "
            "'host:port'"
        )
    try:
        addresses = tuple(read_address(part.strip()) for part in parts if part.strip())
    except ConfigValueError as error:
        raise InvalidArgumentError(f"the address of a controller is {error}") from error
    if not addresses:
        raise InvalidArgumentError("no controller is named: give host:port of one or more")
    return addresses
