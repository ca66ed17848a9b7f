"""Load a node's configuration for a command, with notes about ignored settings.

Every command that loads a configuration reports each setting that has no effect here.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kraft.cli.output import Output
    from kraft.raft.voters import Endpoint
    from kraft.server.config.loading import ServerConfig


def load_configuration(output: Output, path: Path, overrides: Iterable[str] = ()) -> ServerConfig:
    """Return the configuration in ``path``; ``overrides`` are ``name=value`` and replace its
    settings.

    Notes settings without effect on stderr. Raises InvalidConfigError, CorruptRecordError.
    """
    from kraft.errors import InvalidConfigError
    from kraft.server.config.loading import ServerConfig

    given: dict[str, str] = {}
    for override in overrides:
        name, equals, value = override.partition("=")
        if not equals:
            raise InvalidConfigError(f"--override must be name=value, not {override!r:.80}")
        given[name.strip()] = value
    config = ServerConfig.load(path, given)
    for each in config.not_understood:
        meant = f"; did you mean {each.similar}?" if each.similar else ""
        output.note(f"{each.where}: {each.name} is unknown and has no effect{meant}")
    if unused := without_effect(config):
        names = ", ".join(unused)
        output.note(f"{config.path}: these settings of Kafka have no effect here: {names}")
    for warning in config.warnings:
        output.note(f"{config.path}: {warning}")
    return config


def without_effect(config: ServerConfig) -> list[str]:
    """Return the names of Kafka's settings that the node is given and does not use."""
    used: set[str] = set()
    if config.is_broker:
        from kraft.broker.config import BROKER_SETTINGS
        from kraft.broker.group_settings import GROUP_SETTINGS

        rules = BROKER_SETTINGS | GROUP_SETTINGS
        used = {name for name, rule in rules.items() if rule.has_effect}
    return [each.name for each in config.no_effect if each.name not in used]


def controller_endpoints(config: ServerConfig) -> tuple[Endpoint, ...]:
    """Return the advertised addresses of the node's controller listeners."""
    from kraft.raft.voters import Endpoint
    from kraft.server.config.listeners import written_host

    return tuple(
        Endpoint(name, written_host(host or "localhost"), port)
        for name, host, port, _ in config.advertised_controller_listeners
    )
