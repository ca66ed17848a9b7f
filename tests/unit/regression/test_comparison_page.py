"""The HTML page of a comparison: every benchmark in the table, the largest differences drawn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kraft.regression import comparison_page
from kraft.regression.findings import Comparison, Ratio
from kraft.regression.points import BenchmarkMetric, SeriesKey
from tests.harness.html_pages import Page
from tests.unit.regression import examples


def rows(page: Page) -> dict[str, str]:
    """Return the text of each row of the table by its first cell."""
    cells = [each.text for each in page.all("td", **{"class": "name"})]
    texts = [each.text for each in page.all("tr") if "data-name" in each.attributes]
    return dict(zip(cells, texts, strict=True))


def traces(page: Page) -> list[dict[str, Any]]:
    found: Any = page.data("ratios")["traces"]
    assert isinstance(found, list)
    return found


def test_each_benchmark_is_in_the_table_and_each_interval_is_drawn() -> None:
    page = Page(comparison_page.page(examples.comparisons(), 0.05, title="<new> and old"))
    (title,) = page.all("h1")
    assert title.text == "<new> and old"
    found = rows(page)
    assert len(found) == 6
    load = found["LoadBench::bench_load[partitions=10000]"]
    assert "regression+52.6 % [49.6, 55.7]1.90 s2.90 s10 : 3" in load
    assert "undecided+40.0 %" in found["NewBench::bench_new[partitions=10000]"]
    assert "one run in the baseline: 5 are needed" in found["NewBench::bench_new[partitions=10000]"]
    assert "improvement" in found["CodecBench::bench_decode[partitions=10000]"]
    slower, faster, neutral = traces(page)
    assert slower["y"] == [0, 1, 2]  # the worst at the top
    assert slower["x"][0] == pytest.approx(52.63, abs=0.01)
    # Without an interval there is nothing to draw.
    labels = page.data("ratios")["layout"]["yaxis"]["ticktext"]  # type: ignore[index]
    assert labels[0] == "LoadBench::bench_load[partitions=10000]"
    assert not any("NewBench" in label for label in labels)
    assert len(slower["y"] + faster["y"] + neutral["y"]) == len(labels) == 5


def test_where_bigger_is_better_less_is_drawn_as_worse() -> None:
    rate = BenchmarkMetric("ops/s", bigger_is_better=True)
    lower = examples.comparison(
        "Rate::a", 100.0, 80.0, metric=rate, is_regression=True, is_improvement=False
    )
    (trace,) = traces(Page(comparison_page.page([lower], 0.05)))
    assert trace["x"] == [25.0]
    assert trace["marker"]["color"] == "@slower"
    (above,), (below,) = trace["error_x"]["array"], trace["error_x"]["arrayminus"]
    assert above > 0
    assert below > 0


def test_the_largest_differences_are_drawn_if_there_are_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(comparison_page, "MOST_DRAWN", 2)
    page = Page(comparison_page.page(examples.comparisons(), 0.05))
    labels = page.data("ratios")["layout"]["yaxis"]["ticktext"]  # type: ignore[index]
    assert labels == [
        "LoadBench::bench_load[partitions=10000]",
        "CodecBench::bench_decode[partitions=10000]",
    ]
    (body,) = page.all("body")
    assert "4 more benchmarks with smaller differences or without an interval" in body.text
    assert len(rows(page)) == 6


@pytest.mark.parametrize("given", [[], [Ratio(float("inf"), 1.0, float("inf"))]])
def test_nothing_to_draw_is_a_page_without_plotly(given: list[Ratio]) -> None:
    made: list[Comparison] = [
        examples.comparison("A::a", 0.0001, 1.0, ratio=each) for each in given
    ]
    text = comparison_page.page(made, 0.05)
    assert len(text) < 50_000
    assert len(rows(Page(text))) == len(made)


def test_hostile_names_and_notes_are_escaped() -> None:
    hostile = replace(
        examples.comparison("A::a", 1.0, 2.0, note=examples.HOSTILE),
        key=SeriesKey("s", examples.HOSTILE, "{}", examples.HOSTILE),
    )
    other = examples.comparison("B::b", 1.0, 2.0)
    page = Page(comparison_page.page([hostile, other], 0.05, title=examples.HOSTILE))
    assert not any(
        "alert(" in each.text for each in page.all("script") if "type" not in each.attributes
    )
    for each in page.elements:
        assert not any(name.startswith("on") for name in each.attributes)
    # plotly.js understands some markup in its texts.
    assert all("<" not in label for trace in traces(page) for label in trace["text"])
    labels: Any = page.data("ratios")["layout"]["yaxis"]["ticktext"]  # type: ignore[index]
    assert all("<" not in label for label in labels)
