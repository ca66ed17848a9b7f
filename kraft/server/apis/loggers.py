"""Change the levels of this node's loggers: IncrementalAlterConfigs of BROKER_LOGGER resources.

Each controller answers for its own loggers, active or not; nothing is written to the log of the
quorum, and a restart resets the levels. Errors have Kafka's codes and messages. Called by
``configs``. Source: Kafka's ``RuntimeLoggerManager`` (4.3.1).
"""

from __future__ import annotations

import logging
import re
from typing import Final

from kraft.controller.configs.config_changes import ConfigOperation
from kraft.errors import InvalidConfigError, InvalidRequestError
from kraft.protocol.incremental_alter_configs import IncrementalAlterConfigsResource
from kraft.server.logs import LEVELS, ROOT, logger_exists, set_level, unset_level

logger = logging.getLogger(__name__)

#: Java's ``Integer.parseInt``, without digits that are not ASCII, and not yet its range.
_INTEGER: Final = re.compile(r"[+-]?0*[0-9]{1,10}")


def alter_loggers(
    resource: IncrementalAlterConfigsResource, node_id: int, *, validate_only: bool
) -> None:
    """Change the levels that a BROKER_LOGGER resource names, all or none.

    Raises InvalidRequestError and InvalidConfigError; then nothing has changed.
    """
    check_node_name(resource.resource_name, node_id)
    for change in resource.configs:
        _check(change.name, change.value, change.config_operation)
    if validate_only:
        return
    for change in resource.configs:
        if change.value is not None and change.config_operation == ConfigOperation.SET:
            set_level(change.name, change.value)
            logger.warning("Updated the log level of %s to %s", change.name, change.value)
        else:
            unset_level(change.name)
            logger.warning("Unset the log level of %s", change.name)


def check_node_name(name: str, node_id: int) -> None:
    """Raise InvalidRequestError unless ``name`` is the id of this node."""
    if not _INTEGER.fullmatch(name) or not -(1 << 31) <= int(name) < 1 << 31:
        raise InvalidRequestError(f"Node id must be an integer, but it is: {name:.80}")
    if int(name) != node_id:
        raise InvalidRequestError(
            f"Unexpected node id. Expected {node_id}, but received {int(name)}"
        )


def _check(name: str, level: str | None, operation: int) -> None:
    if operation not in (ConfigOperation.SET, ConfigOperation.DELETE):
        known = operation in ConfigOperation.__members__.values()
        which = ConfigOperation(operation).name if known else f"Unknown operation type {operation}"
        kind = f"{which} operation" if known else which
        raise InvalidRequestError(f"{kind} is not allowed for the BROKER_LOGGER resource")
    if not logger_exists(name):
        raise InvalidConfigError(f"Logger {name:.200} does not exist!")
    if operation == ConfigOperation.DELETE:
        if name == ROOT:
            raise InvalidRequestError(f"Removing the log level of the {ROOT} logger is not allowed")
    elif level not in LEVELS:
        raise InvalidConfigError(
            f"Cannot set the log level of {name} to {level!s:.80} as it is not a supported log "
            f"level. Valid log levels are {', '.join(sorted(LEVELS))}"
        )
