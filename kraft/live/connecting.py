"""`open_client`: a client of the quorum from addresses and a client's .properties file.

``kraft.live`` calls it; the commands read the same settings in ``kraft.cli.quorum``.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from kraft.configdef import ConfigValueError
from kraft.errors import InvalidArgumentError, InvalidConfigError
from kraft.metadata.properties import read_properties
from kraft.network.quorum_client import QuorumClient
from kraft.server.config.key_stores import read_client_security
from kraft.server.config.listeners import read_address


def open_client(
    bootstrap_controllers: str | Sequence[str],
    client_config: str | PathLike[str] | None,
    timeout_s: float,
) -> QuorumClient:
    """Return a client that waits up to ``timeout_s`` for a leader.

    Raises InvalidArgumentError for unusable addresses, InvalidConfigError.
    """
    parts = (
        bootstrap_controllers.split(",")
        if isinstance(bootstrap_controllers, str)
        else list(bootstrap_controllers)
    )
    try:
        servers = [read_address(part.strip()) for part in parts if part.strip()]
    except ConfigValueError as error:
        raise InvalidArgumentError(f"bootstrap_controllers: {error}") from error
    if not servers:
        raise InvalidArgumentError("bootstrap_controllers names no controller: give host:port")
    if client_config is None:
        return QuorumClient(servers, timeout_s=timeout_s, client_id="kraft-follow")
    path = Path(client_config)
    try:
        text = path.read_text("latin-1")
    except OSError as error:
        raise InvalidConfigError(f"cannot read {path}: {error.strerror}") from error
    given = {key: value for key, value, _ in read_properties(text, path)}
    return QuorumClient(
        servers,
        timeout_s=timeout_s,
        client_id=given.get("client.id", "kraft-follow"),
        security=read_client_security(given, path),
    )
