"""The modes of a comparison, and what the command line may say about them."""

from __future__ import annotations

import pytest

from kraft.errors import InvalidArgumentError
from kraft.generations.modes import MODES, parse_homes, parse_modes, parse_sizes


def test_modes_keep_their_order() -> None:
    assert [mode.name for mode in parse_modes("zk-2018, kraft")] == ["zk-2018", "kraft"]
    assert MODES["kraft"].largest == 1_000_000
    assert not MODES["zk-2018-sync"].pipelines


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kraft,zk-2017", "there is no mode 'zk-2017'; there are kraft, "),
        ("", "there is no mode ''"),
        ("kraft,kraft", "a mode is named twice"),
    ],
)
def test_modes_that_do_not_exist(text: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        parse_modes(text)


def test_sizes_are_sorted() -> None:
    assert parse_sizes("10_000,100, 1000") == (100, 1000, 10_000)


@pytest.mark.parametrize("text", ["", "0", "-1", "1e3", "100,", "20000000", "²"])
def test_sizes_that_are_no_numbers(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="is no number of partitions"):
        parse_sizes(text)


def test_a_size_is_named_once() -> None:
    with pytest.raises(InvalidArgumentError, match="named twice"):
        parse_sizes("100,1_00")


def test_directories_of_releases() -> None:
    assert parse_homes(["4.3=/opt/kafka=4", "1.1.1=old"]) == {"4.3": "/opt/kafka=4", "1.1.1": "old"}


@pytest.mark.parametrize("text", ["/opt/kafka", "4.3=", "2.0=/opt/kafka"])
def test_directories_that_name_no_release(text: str) -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"write VERSION=DIR.*0\.8\.2, 1\.1\.1, 3\.9, 4\.3"
    ):
        parse_homes([text])


def test_a_release_has_one_directory() -> None:
    with pytest.raises(InvalidArgumentError, match=r"release 4\.3 has two directories"):
        parse_homes(["4.3=a", "4.3=b"])
