"""Sizes of a fleet: what fits, and what is rejected with what it would need."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from kraft.errors import InvalidConfigError
from kraft.fleet.fleet import FleetSettings
from kraft.fleet.limits import FleetNeeds, check_limits, heap_bytes


def test_a_small_fleet_fits(tmp_path: Path) -> None:
    check_limits(FleetNeeds(10, 100, 1, own_controllers=1), tmp_path)


@pytest.mark.parametrize(
    ("needs", "reason"),
    [
        (FleetNeeds(10_000_000, 1, 1), "ephemeral ports, and"),
        (FleetNeeds(10, 10**12, 1), "GiB of memory, and"),
        (FleetNeeds(10, 1, 1, own_controllers=3, heap="4000g"), "GiB of memory, and"),
        (FleetNeeds(10, 10**12, 1, own_controllers=3), "they write up to"),
    ],
)
def test_a_size_that_cannot_be_names_what_it_needs(
    needs: FleetNeeds, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidConfigError, match=reason):
        check_limits(needs, tmp_path / "not" / "there")


def test_descriptors_are_counted_for_the_largest_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda what: (1024, 1024))
    check_limits(FleetNeeds(300, 1, 2), tmp_path)
    with pytest.raises(InvalidConfigError, match="may open 1024 files and needs 1456"):
        check_limits(FleetNeeds(300, 1, 1), tmp_path)
    with pytest.raises(InvalidConfigError, match="may open 1024 files and needs 1456"):
        check_limits(FleetNeeds(300, 1, 2, own_controllers=1), tmp_path)


@pytest.mark.parametrize(("text", "size"), [("2g", 2 << 30), ("512M", 512 << 20), ("1024", 1024)])
def test_a_heap_has_a_suffix(text: str, size: int) -> None:
    assert heap_bytes(text) == size


@pytest.mark.parametrize("text", ["", "g", "0g", "-1g", "2t"])
def test_a_malformed_heap_is_rejected(text: str) -> None:
    with pytest.raises(InvalidConfigError, match="give a size such as 2g"):
        heap_bytes(text)


def test_racks_are_in_regions() -> None:
    from random import Random

    settings = FleetSettings(12, racks=4, regions=2)
    racks = {settings.rack_of(id): settings.region_of(id) for id in settings.broker_ids}
    assert racks == {
        "rack-1": "region-1",
        "rack-2": "region-1",
        "rack-3": "region-2",
        "rack-4": "region-2",
    }
    choose = settings.choose
    assert len(choose(rack="rack-2", region="", brokers=0, random=Random(0))) == 3
    assert len(choose(rack="", region="region-2", brokers=0, random=Random(0))) == 6
    some = choose(rack="", region="", brokers=5, random=Random(3))
    assert some == choose(rack="", region="", brokers=5, random=Random(3))
    assert len(set(some)) == 5
    assert choose(rack="", region="", brokers=0, random=Random(0)) == list(settings.broker_ids)
    with pytest.raises(InvalidConfigError, match="no 'rack-9': it has racks rack-1 to rack-4"):
        settings.check_place("rack-9", "")
