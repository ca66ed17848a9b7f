"""The log's formats, and the levels of loggers."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from kraft.server import logs
from kraft.server.logs import JsonFormatter


@pytest.fixture
def own() -> Iterator[logging.Logger]:
    """Yield a logger that does not propagate; remove its handlers and level afterwards."""
    logger = logging.getLogger("kraft.test_logs")
    logger.propagate = False
    yield logger
    logger.propagate = True
    logger.handlers.clear()
    logger.setLevel(logging.NOTSET)


def lines(logger: logging.Logger) -> io.StringIO:
    output = io.StringIO()
    handler = logging.StreamHandler(output)
    handler.setFormatter(JsonFormatter(3))
    logger.addHandler(handler)
    return output


def test_a_line_is_one_json_object(own: logging.Logger) -> None:
    output = lines(own)
    own.warning("%d of %s\n\tare gone \N{SNOWMAN}", 2, '"x"')
    (line,) = output.getvalue().splitlines()
    found = json.loads(line)
    assert list(found) == ["time", "level", "logger", "node_id", "message"]
    assert found["level"] == "WARN"
    assert found["logger"] == "kraft.test_logs"
    assert found["node_id"] == 3
    assert found["message"] == '2 of "x"\n\tare gone \N{SNOWMAN}'
    date, _, time = found["time"].partition("T")
    assert len(date) == 10
    assert time.endswith("Z")
    assert len(time) == len("12:34:56.789Z")


def test_an_exception_is_in_its_line(own: logging.Logger) -> None:
    output = lines(own)
    try:
        raise ValueError("no\nnumber")
    except ValueError:
        own.exception("failed")
    (line,) = output.getvalue().splitlines()
    found = json.loads(line)
    assert found["message"] == "failed"
    assert found["exception"].startswith("Traceback")
    assert found["exception"].endswith("ValueError: no\nnumber")


@pytest.mark.parametrize(
    ("level", "name"),
    [
        (logging.CRITICAL, "FATAL"),
        (logging.ERROR, "ERROR"),
        (logging.WARNING, "WARN"),
        (logging.INFO, "INFO"),
        (logging.DEBUG, "DEBUG"),
        (5, "TRACE"),
        (1, "TRACE"),
    ],
)
def test_levels_have_the_names_of_log4j(level: int, name: str) -> None:
    assert logs.level_name(level) == name


def test_a_level_is_set_and_unset(own: logging.Logger) -> None:
    logs.set_level(own.name, "DEBUG")
    assert own.level == logging.DEBUG
    assert dict(logs.loggers())[own.name] == "DEBUG"
    logs.unset_level(own.name)
    assert own.level == logging.NOTSET


def test_a_name_of_kafka_stands_for_a_logger_of_kraft() -> None:
    logger = logging.getLogger("kraft.raft")
    before = logger.level
    try:
        logs.set_level("org.apache.kafka.raft", "TRACE")
        levels = dict(logs.loggers())
        assert levels["org.apache.kafka.raft"] == levels["kraft.raft"] == "TRACE"
    finally:
        logger.setLevel(before)


def test_only_known_loggers_exist(own: logging.Logger) -> None:
    assert logs.logger_exists(own.name)
    assert logs.logger_exists("root")
    assert logs.logger_exists("kafka")
    assert not logs.logger_exists("kraft.unknown.logger")
    assert "kraft.unknown.logger" not in dict(logs.loggers())
