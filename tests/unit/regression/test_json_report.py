"""Findings as JSON: stable keys, times in UTC, valid JSON numbers."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace

import pytest

from kraft.regression import json_report
from kraft.regression.findings import Ratio
from tests.unit.regression import examples


def test_every_key_is_documented_and_every_documented_key_is_there() -> None:
    given = json_report.as_json(examples.with_verdicts(examples.analysis()))
    compared = json_report.comparison_as_json(examples.comparisons())

    def keys(of: object) -> set[str]:
        if isinstance(of, list):
            return set().union(*map(keys, of))
        if isinstance(of, dict):
            own = {str(key) for key in of}
            return own.union(*map(keys, of.values()))
        return set()

    free = (keys(given["settings"]) - {"statistic"}) | keys(given["machines"]) | {"partitions"}
    documented = set(re.findall(r"``(\w+)``", json_report.__doc__ or ""))
    assert (keys(given) | keys(compared)) - free == documented


def test_a_change_point_has_all_fields() -> None:
    analysis = examples.analysis()
    given = json_report.as_json(analysis)
    assert [each["ratio"]["value"] for each in given["change_points"]] == [
        point.ratio.value for point in analysis.change_points
    ]
    elect = next(each for each in given["change_points"] if "elect" in each["benchmark"])
    assert elect["kind"] == "regression"
    assert elect["params"] == {"partitions": 1_000_000}
    assert elect["index"] == elect["count_before"] == 40
    assert elect["time"] == "2026-04-06T06:13:20.000000Z"
    assert (elect["commit_before"], elect["commit_after"]) == (
        examples.commit(39),
        examples.commit(40),
    )
    assert elect["same_commit"] is False
    assert given["summary"] == {
        "series": 9,
        "changed": 6,
        "too_little_data": 1,
        "regressions": 3,
        "improvements": 2,
        "drifts": 1,
        "variance_changes": 1,
        "ended": 0,
        "began": 0,
        "scaling_changed": 1,
        "machines": 2,
        "alarms": 5,
        "did_not_come": 0,
        "problems": 1,
    }
    (drift,) = given["drifts"]
    assert (drift["benchmark"], drift["kind"]) == ("SlowBench::bench_slow", "regression")
    assert drift["ongoing"] is True
    assert drift["end_index"] >= 70
    assert 20 <= drift["start_index"] <= 40
    assert drift["start_time"] < drift["end_time"]
    runs = drift["end_index"] - drift["start_index"]
    assert drift["slope"] * runs + 1 == pytest.approx(drift["ratio"]["value"])
    assert drift["ratio"]["value"] == pytest.approx(1.12, abs=0.03)
    (variance,) = given["variance_changes"]
    assert variance["benchmark"] == "WildBench::bench_wild"
    assert abs(variance["index"] - 60) <= 5
    assert variance["noise_before"] == pytest.approx(0.01, rel=0.5)
    assert variance["noise_after"] == pytest.approx(0.08, rel=0.5)
    assert given["machines"][examples.OTHER_MACHINE] == {"cpu": "Apple M2"}


def test_nan_and_infinity_become_null() -> None:
    analysis = examples.analysis()
    first = analysis.series[0]
    point = replace(first.change_points[0], ratio=Ratio(math.inf, math.nan, math.inf))
    odd = replace(first, noise=math.nan, run_count=0, change_points=(point,))
    odd = replace(odd, key=odd.key._replace(params='{"load": NaN}'))
    text = json.dumps(json_report.as_json(replace(analysis, series=(odd,))), allow_nan=False)
    given = json.loads(text)
    assert given["series"][0]["noise"] is None
    assert given["series"][0]["first_time"] is None
    assert given["series"][0]["params"] == '{"load": NaN}'
    assert given["change_points"][0]["ratio"] == {"value": None, "low": None, "high": None}


def test_comparisons_come_worst_first_and_unknown_ratios_as_null() -> None:
    given = json_report.comparison_as_json(examples.comparisons())
    assert given["summary"] == {"compared": 6, "regressions": 3, "improvements": 1}
    order = [each["benchmark"].split("::")[0] for each in given["comparisons"]]
    assert order == ["LoadBench", "NewBench", "ElectBench", "CodecBench", "ScanBench", "CodecBench"]
    new = given["comparisons"][1]
    assert new["ratio"] is None
    assert new["note"] == "one run in the baseline: 5 are needed"
