"""Parsing and validation of configuration values, as in Kafka's ConfigDef."""

from __future__ import annotations

import math

import pytest

from kraft.configdef import (
    Between,
    ConfigType,
    ConfigValueError,
    OneOf,
    SetOfEntries,
    check_share_offset_reset,
    check_throttled_replicas,
    read,
    text_of,
)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (ConfigType.BOOLEAN, " TRUE\t", True),
        (ConfigType.INT, "+7", 7),
        (ConfigType.LONG, "-9223372036854775808", -(1 << 63)),
        (ConfigType.DOUBLE, "0.5f", 0.5),
        (ConfigType.DOUBLE, "1e-3", 0.001),
        (ConfigType.DOUBLE, ".5", 0.5),
        (ConfigType.DOUBLE, "0x1p-1", 0.5),
        (ConfigType.DOUBLE, "1e999", math.inf),
        (ConfigType.DOUBLE, "-Infinity", -math.inf),
        (ConfigType.STRING, " a b ", "a b"),
        (ConfigType.LIST, "a , b,c", ("a", "b", "c")),
        (ConfigType.LIST, "a,", ("a", "")),
        (ConfigType.LIST, "  ", ()),
    ],
)
def test_a_text_is_parsed_as_its_type(kind: ConfigType, text: str, value: object) -> None:
    assert read(kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ConfigType.BOOLEAN, "yes"),
        (ConfigType.INT, "2147483648"),
        (ConfigType.INT, "1_0"),
        (ConfigType.LONG, "1e3"),
        (ConfigType.DOUBLE, "1_0"),
        (ConfigType.DOUBLE, "0x1"),
        (ConfigType.DOUBLE, "nan"),
        (ConfigType.DOUBLE, ""),
    ],
)
def test_an_invalid_text_is_rejected_with_the_type(kind: ConfigType, text: str) -> None:
    with pytest.raises(ConfigValueError, match=kind.value):
        read(kind, text)


def test_a_range_may_allow_one_value_outside_of_it() -> None:
    level = Between(1, 9, also=-1)
    for value in (-1, 1, 9):
        level(value)
    for value in (-2, 0, 10):
        with pytest.raises(ConfigValueError, match="between 1 and 9, or -1"):
            level(value)


def test_a_text_must_be_one_of_the_allowed() -> None:
    OneOf(("zstd", "gzip"))("gzip")
    with pytest.raises(ConfigValueError, match="one of zstd, gzip"):
        OneOf(("zstd", "gzip"))("GZIP")


def test_a_list_must_not_have_empty_entries() -> None:
    policy = SetOfEntries(("compact", "delete"))
    policy(())
    policy(("delete", "compact"))
    for entries in (("",), ("delete", ""), ("shrink",)):
        with pytest.raises(ConfigValueError, match="a list"):
            policy(entries)


@pytest.mark.parametrize("entries", [(), ("*",), ("0:1", " 2:3 "), ("",)])
def test_valid_throttled_replicas(entries: tuple[str, ...]) -> None:
    check_throttled_replicas(entries)


@pytest.mark.parametrize("entries", [("0",), ("*", "0:1"), ("a:b",), ("0:-1",)])
def test_invalid_throttled_replicas(entries: tuple[str, ...]) -> None:
    with pytest.raises(ConfigValueError, match="partition:broker"):
        check_throttled_replicas(entries)


@pytest.mark.parametrize(
    "text",
    ["earliest", "latest", "by_duration:PT1.5S", "by_duration:p1dt-1h", "by_duration:-PT-1S"],
)
def test_valid_share_offset_resets(text: str) -> None:
    check_share_offset_reset(text)


@pytest.mark.parametrize(
    "text",
    [
        *("none", "LATEST", "by_duration", "by_duration:", "by_duration:P", "by_duration:P1DT"),
        *("by_duration:PT-1S", "by_duration:-PT1S", "by_duration:PT9223372036854775808S"),
    ],
)
def test_invalid_share_offset_resets(text: str) -> None:
    with pytest.raises(ConfigValueError, match="by_duration"):
        check_share_offset_reset(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        ("a", "a"),
        (True, "true"),
        (-7, "-7"),
        (("a", "b"), "a,b"),
        ((), ""),
        (0.5, "0.5"),
        (0.0, "0.0"),
        (0.001, "0.001"),
        (9999999.5, "9999999.5"),
        (1e7, "1.0E7"),
        (-12345678.9, "-1.23456789E7"),
        (0.00025, "2.5E-4"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
    ],
)
def test_values_are_written_as_java_writes_them(value: object, text: str | None) -> None:
    assert text_of(value) == text
