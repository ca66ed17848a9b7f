"""The log of a node: text or JSON lines on stderr, and the levels of its loggers at run time.

A node logs with Python's ``logging``. As in Kafka, BROKER_LOGGER resources show and change the
levels. They use log4j's level names, and Kafka's logger names beside kraft's own. A Kafka logger
name is an alias of the kraft logger for the same component (`ALIASES`).

Called by ``process`` at the start and by ``apis.config_descriptions`` and ``apis.loggers``.
Sources: Kafka's ``RuntimeLoggerManager``, ``LoggingController``, ``LogLevelConfig`` (4.3.1).
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from kraft.security.audit import TRACE

#: The name that Kafka gives to the root logger.
ROOT: Final = "root"
#: The loggers of Kafka's default configuration, and kraft's logger for the same lines.
ALIASES: Final = {
    "kafka": "kraft",
    "kafka.network": "kraft.network",
    "org.apache.kafka": "kraft",
    "org.apache.kafka.controller": "kraft.server.controller",
    "org.apache.kafka.image": "kraft.server.publishing",
    "org.apache.kafka.raft": "kraft.raft",
}
#: log4j's levels, by the lowest level of Python that they stand for.
_NAMES = (
    (logging.CRITICAL, "FATAL"),
    (logging.ERROR, "ERROR"),
    (logging.WARNING, "WARN"),
    (logging.INFO, "INFO"),
    (logging.DEBUG, "DEBUG"),
    (TRACE, "TRACE"),
)
#: log4j's levels that a BROKER_LOGGER resource may have.
LEVELS: Final = {name: level for level, name in _NAMES}
_TEXT_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class JsonFormatter(logging.Formatter):
    """Formats a line as a JSON object: time, level, logger, node_id, message, exception.

    ``time`` is in UTC, ISO 8601 with milliseconds; ``level`` is log4j's name. ``exception`` is the
    traceback, and present only with one. A line break inside is escaped: one object is one line.
    """

    def __init__(self, node_id: int) -> None:
        super().__init__()
        self._node_id = node_id

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, object] = {
            "time": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": level_name(record.levelno),
            "logger": record.name,
            "node_id": self._node_id,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def configure_logging(node_id: int, *, as_json: bool) -> None:
    """Log to stderr, from INFO on; do nothing where the root logger has a handler."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(node_id) if as_json else logging.Formatter(_TEXT_FORMAT))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def loggers() -> Iterator[tuple[str, str]]:
    """Yield the loggers of this process with the levels that apply to them: the root, then the
    others by name, with Kafka's names.
    """
    yield ROOT, level_name(logging.getLogger().level)
    found = {
        name
        for name, one in logging.root.manager.loggerDict.items()
        if isinstance(one, logging.Logger)
    }
    for name in sorted(found.union(ALIASES)):
        yield name, level_name(_logger(name).getEffectiveLevel())


def logger_exists(name: str) -> bool:
    """Return whether `loggers` has this name."""
    found = logging.root.manager.loggerDict.get(name)
    return name == ROOT or name in ALIASES or isinstance(found, logging.Logger)


def set_level(name: str, level: str) -> None:
    """Set the level of an existing logger to one of `LEVELS`."""
    _logger(name).setLevel(LEVELS[level])


def unset_level(name: str) -> None:
    """Let an existing logger other than the root have the level of its parent."""
    _logger(name).setLevel(logging.NOTSET)


def level_name(level: int) -> str:
    """Return log4j's name of a level of Python."""
    return next((name for lowest, name in _NAMES if level >= lowest), "TRACE")


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else ALIASES.get(name, name))
