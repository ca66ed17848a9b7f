"""Texts that become values, as Kafka's ConfigDef reads them."""

from __future__ import annotations

import math

import pytest

from kraft.configdef import (
    Between,
    Kind,
    OneOf,
    RefusedError,
    SetOfEntries,
    check_share_offset_reset,
    check_throttled_replicas,
    read,
)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Kind.BOOLEAN, " TRUE\t", True),
        (Kind.INT, "+7", 7),
        (Kind.LONG, "-9223372036854775808", -(1 << 63)),
        (Kind.DOUBLE, "0.5f", 0.5),
        (Kind.DOUBLE, "1e-3", 0.001),
        (Kind.DOUBLE, ".5", 0.5),
        (Kind.DOUBLE, "0x1p-1", 0.5),
        (Kind.DOUBLE, "1e999", math.inf),
        (Kind.DOUBLE, "-Infinity", -math.inf),
        (Kind.STRING, " a b ", "a b"),
        (Kind.LIST, "a , b,c", ("a", "b", "c")),
        (Kind.LIST, "a,", ("a", "")),
        (Kind.LIST, "  ", ()),
    ],
)
def test_a_text_says_a_value(kind: Kind, text: str, value: object) -> None:
    assert read(kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Kind.BOOLEAN, "yes"),
        (Kind.INT, "2147483648"),
        (Kind.INT, "1_0"),
        (Kind.LONG, "1e3"),
        (Kind.DOUBLE, "1_0"),
        (Kind.DOUBLE, "0x1"),
        (Kind.DOUBLE, "nan"),
        (Kind.DOUBLE, ""),
    ],
)
def test_a_text_that_says_none_is_refused_with_the_kind(kind: Kind, text: str) -> None:
    with pytest.raises(RefusedError, match=kind.value):
        read(kind, text)


def test_a_range_may_have_one_value_outside_of_it() -> None:
    level = Between(1, 9, also=-1)
    for value in (-1, 1, 9):
        level(value)
    for value in (-2, 0, 10):
        with pytest.raises(RefusedError, match="between 1 and 9, or -1"):
            level(value)


def test_a_text_may_be_one_of_a_few() -> None:
    OneOf(("zstd", "gzip"))("gzip")
    with pytest.raises(RefusedError, match="one of zstd, gzip"):
        OneOf(("zstd", "gzip"))("GZIP")


def test_entries_of_a_list_say_something() -> None:
    policy = SetOfEntries(("compact", "delete"))
    policy(())
    policy(("delete", "compact"))
    for entries in (("",), ("delete", ""), ("shrink",)):
        with pytest.raises(RefusedError, match="a list"):
            policy(entries)


@pytest.mark.parametrize("entries", [(), ("*",), ("0:1", " 2:3 "), ("",)])
def test_replicas_to_throttle(entries: tuple[str, ...]) -> None:
    check_throttled_replicas(entries)


@pytest.mark.parametrize("entries", [("0",), ("*", "0:1"), ("a:b",), ("0:-1",)])
def test_what_names_no_replicas_to_throttle(entries: tuple[str, ...]) -> None:
    with pytest.raises(RefusedError, match="partition:broker"):
        check_throttled_replicas(entries)


@pytest.mark.parametrize(
    "text",
    ["earliest", "latest", "by_duration:PT1.5S", "by_duration:p1dt-1h", "by_duration:-PT-1S"],
)
def test_where_a_share_group_begins(text: str) -> None:
    check_share_offset_reset(text)


@pytest.mark.parametrize(
    "text",
    [
        *("none", "LATEST", "by_duration", "by_duration:", "by_duration:P", "by_duration:P1DT"),
        *("by_duration:PT-1S", "by_duration:-PT1S", "by_duration:PT9223372036854775808S"),
    ],
)
def test_where_a_share_group_cannot_begin(text: str) -> None:
    with pytest.raises(RefusedError, match="by_duration"):
        check_share_offset_reset(text)
