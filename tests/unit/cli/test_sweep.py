"""``kraft sweep outages``: output and exit codes."""

from __future__ import annotations

import pytest

from kraft import open_metadata
from kraft.lab.outages import sweep_outages
from tests.unit.cli.conftest import CONTROLLER, Run

pytest.importorskip("numba")


def test_the_worst_outages_are_printed_as_a_table(kraft: Run) -> None:
    ran = kraft("sweep", "outages", "--from", CONTROLLER, "--top", 2)
    assert ran.code == 0
    assert "outages swept" in ran.out
    first = next(line for line in ran.lines if "brokers 1, 2" in line)
    assert first.split()[3] == "132"
    assert ran.lines[-1].split()[0] in ("broker", "rack")
    assert "The 2 worst outages" in ran.out


def test_json_is_the_report(kraft: Run) -> None:
    ran = kraft("sweep", "outages", "--from", CONTROLLER, "--json", "--top", 0)
    assert ran.json == sweep_outages(open_metadata(CONTROLLER)).as_dict()


def test_only_the_requested_outages_are_swept(kraft: Run) -> None:
    arguments = ("--no-brokers", "--no-racks", "--no-pairs", "--lose", "2,1", "--lose", "1")
    ran = kraft("sweep", "outages", "--from", CONTROLLER, "--json", *arguments)
    assert [each["brokers"] for each in ran.json["worst"]] == [[2, 1], [1]]


@pytest.mark.parametrize(
    ("limit", "value", "said"),
    [
        ("--max-unavailable", 131, "unavailable 132 (limit 131)"),
        ("--max-under-min-isr", 0, "under_min_isr 130 (limit 0)"),
        ("--max-unavailable", 132, None),
        ("--max-unclean", 0, None),
        ("--max-leader-skew", 100.0, None),
    ],
)
def test_an_outage_beyond_a_limit_ends_with_1(
    kraft: Run, limit: str, value: float, said: str | None
) -> None:
    ran = kraft("sweep", "outages", "--from", CONTROLLER, limit, value, "--top", 1)
    assert ran.code == (0 if said is None else 4)
    assert (said or "") in ran.err


def test_a_list_that_names_no_brokers_is_wrong_usage(kraft: Run) -> None:
    assert kraft("sweep", "outages", "--from", CONTROLLER, "--lose", "one").code == 2
    ran = kraft("sweep", "outages", "--from", CONTROLLER, "--lose", "77")
    assert (ran.code, "broker 77 is not registered" in ran.err) == (1, True)


def test_a_missing_directory_has_another_exit_code_than_an_exceeded_limit(kraft: Run) -> None:
    ran = kraft("sweep", "outages", "--from", CONTROLLER / "nowhere", "--max-unavailable", 0)
    assert ran.code == 1
    assert ran.err.startswith("error: no such file or directory")
