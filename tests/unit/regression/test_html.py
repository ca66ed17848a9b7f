"""The HTML report: complete, without network access, with every name escaped."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from kraft.errors import InvalidConfigError
from kraft.regression import html, page_parts
from kraft.regression.findings import Analysis
from tests.harness.html_pages import Page
from tests.unit.regression import examples


@pytest.fixture(scope="module")
def hostile() -> str:
    return html.page(
        examples.analysis(hostile=True),
        title="<i>numbers</i>",
        repository_url="https://github.com/me/kraft",
    )


@pytest.fixture(scope="module")
def parsed(hostile: str) -> Page:
    return Page(hostile)


def test_each_kept_series_has_plots_with_data(parsed: Page) -> None:
    sections = [each for each in parsed.all("section") if each.attributes.get("id")]
    headings = [each.text for each in parsed.all("h3")]
    assert [each for each in headings if "Bench::bench_" in each] == [
        "CrcBench::bench_crc",
        "LoadBench::bench_load[partitions=1000000]",
        "ElectBench::bench_elect[partitions=1000000]",
        "SlowBench::bench_slow",
        "CodecBench::bench_decode",
        "WildBench::bench_wild",
        "ScanBench::bench_scan",
        "LoadBench::bench_load",
    ]
    plots = [
        (each.attributes["data-kind"], each.attributes["data-of"])
        for each in parsed.all("div")
        if each.attributes.get("class") == "plot"
    ]
    expected = [("overview", "overview")]
    for section in sections:
        name = section.attributes["id"]
        kinds = ["scaling"] if name.startswith("law") else ["history", "distribution"]
        expected += [(kind, name) for kind in kinds]
    assert plots == expected
    load = parsed.data("series-2")
    assert load["run"] == list(range(1, 101))
    assert load["unit"] == "s"
    levels = load["levels"]
    assert isinstance(levels, list)
    assert [(each["kind"], each["runs"]) for each in levels] == [
        ("neutral", [1, 31]),
        ("faster", [31, 61]),
        ("slower", [61, 100]),
    ]


def test_changes_are_listed_with_their_commits(parsed: Page) -> None:
    elect = next(each for each in parsed.all("tr") if each.text.startswith("ElectBench"))
    assert "+14.3 % [13.7, 15.0]" in elect.text
    assert "12.4 ms → 14.1 ms" in elect.text
    links = {each.attributes["href"] for each in parsed.all("a")}
    between = f"{examples.commit(39)}...{examples.commit(40)}"
    assert f"https://github.com/me/kraft/compare/{between}" in links
    assert any("same code on both sides" in each.text for each in parsed.all("li"))
    for link in links:
        if link.startswith("#"):
            assert parsed.all("section", id=link[1:]), f"{link} leads nowhere"


def test_the_page_contains_all_series_machines_problems_and_settings(parsed: Page) -> None:
    (body,) = parsed.all("body")
    for said in (
        "NewBench::bench_new",
        "too little data",
        "cpu.brand_raw",
        "AMD EPYC 7763",
        "old/run-17.json: truncated at byte 4,096; skipped",
        "false_discovery_rate",
        "1.000 → 1.310 since 2026-03-27",
    ):
        assert said in body.text


def test_the_page_fetches_nothing(hostile: str, parsed: Page) -> None:
    for each in parsed.elements:
        assert each.tag not in ("link", "img", "iframe", "object", "embed", "base", "form")
        assert not each.attributes.keys() & {"src", "srcset", "data", "action", "style"}
        if each.tag != "a":
            assert "href" not in each.attributes
    (style,) = parsed.all("style")
    assert not re.search(r"@import|url\(", style.text)
    (policy,) = parsed.all("meta", **{"http-equiv": "Content-Security-Policy"})
    rules = dict(rule.split(" ", 1) for rule in policy.attributes["content"].split("; "))
    assert rules["default-src"] == "'none'"
    assert set(rules["script-src"].split() + rules["style-src"].split()) == {"'unsafe-inline'"}
    assert "http" not in policy.attributes["content"]
    assert hostile.index("Content-Security-Policy") < hostile.index("<title>")


def test_plotly_is_embedded_once_and_compressed(hostile: str, parsed: Page) -> None:
    (script,) = [each for each in parsed.all("script") if "type" not in each.attributes]
    assert "IntersectionObserver" in script.text
    assert "plotly.js v" in parsed.packed("plotly")[:100]
    assert len(parsed.packed("plotly")) > 4_000_000
    assert len(hostile) < 2_200_000


def test_the_data_of_the_first_plot_and_its_script_come_before_all_else(hostile: str) -> None:
    parsed = Page(hostile)
    assert list(parsed.first_data) == ["overview"]
    assert "overview" not in json.loads(parsed.packed("data"))
    places = [hostile.index(f'id="{id}"') for id in ("first-data", "packed-data", "packed-plotly")]
    assert places[0] < hostile.index("const sketch") < places[1] < places[2]


def test_a_hostile_name_is_escaped_everywhere(parsed: Page) -> None:
    shown = examples.HOSTILE.replace("\x1b", "\\x1b") + "[<img src=x onerror=alert(1)>=|`\\n]"
    assert shown in [each.text for each in parsed.all("h3")]
    (title,) = parsed.all("title")
    assert title.text == "<i>numbers</i>"
    for each in parsed.elements:
        assert not any(name.startswith("on") for name in each.attributes)
        if each.tag == "script" and "type" in each.attributes:
            assert re.fullmatch(r"[\w+/=]+", each.text) or each.attributes["id"] == "first-data"
    (first,) = parsed.all("script", id="first-data")
    assert "<" not in first.text
    assert any("alert('x')" in str(label) for label in parsed.data("overview")["label"])  # type: ignore[attr-defined]


def test_the_number_of_drawn_series_is_limited_worst_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "MOST_DRAWN", 2)
    page = Page(html.page(replace(examples.analysis(), scaling=())))
    assert [each.text for each in page.all("h3")] == [
        "CrcBench::bench_crc",
        "LoadBench::bench_load[partitions=1000000]",
    ]
    (body,) = page.all("body")
    assert "4 more series with smaller changes or none are omitted" in body.text


def test_a_page_without_plots_is_small() -> None:
    analysis = Analysis(settings=examples.SETTINGS, series=())
    text = html.page(analysis)
    assert len(text) < 50_000
    (body,) = Page(text).all("body")
    assert "No series changed" in body.text


def test_a_script_is_rejected_as_repository_url() -> None:
    with pytest.raises(InvalidConfigError):
        html.page(examples.analysis(), repository_url="javascript:alert(1)")


def test_a_drift_and_a_change_of_variance_are_in_tables_and_in_their_histories() -> None:
    text = html.page(examples.analysis())
    for title, name in (
        ("Slow drifts", "SlowBench::bench_slow"),
        ("Changes of variance", "WildBench::bench_wild"),
    ):
        assert name in text.partition(f"<h2>{title}</h2>")[2].partition("</section>")[0]
    page = Page(text)
    drawn = [page.data(f"series-{place}")["drifts"] for place in range(6)]
    (found,) = [each for each in drawn if each]
    assert isinstance(found, list)
    assert found[0]["runs"][1] >= 71
    assert found[0]["values"][1] > found[0]["values"][0]


def test_a_scaling_law_shows_the_history_of_its_exponent() -> None:
    law = examples.law("ScanBench::bench_scan", 1.31, changed=True)
    exponents = np.concatenate([np.full(30, 1.0), np.full(30, 1.31)])
    history = replace(
        examples.series("ScanBench::bench_scan", [(60, 1.0)], rounds=None), value=exponents
    )
    kept = replace(law, history=replace(history, key=law.key))
    analysis = replace(examples.analysis(), scaling=(kept, examples.law("Other::law", 1.02)))
    page = Page(html.page(analysis))
    (section,) = page.all("section", id="law-0")
    assert "Exponent in 60 runs of all sizes" in section.text
    assert "Exponent in" not in page.all("section", id="law-1")[0].text
    drawn = page.data("law-0-history")
    assert drawn["value"] == list(exponents)
    assert drawn["statistic"] == "exponent"
    levels = drawn["levels"]
    assert isinstance(levels, list)
    assert [(each["runs"], each["kind"]) for each in levels] == [
        ([1, 31], "neutral"),
        ([31, 60], "slower"),
    ]
    assert "distribution" not in drawn


def test_a_cell_has_a_sort_key_unless_its_text_is_the_key() -> None:
    assert page_parts.cell("12.3 ms", key=0.0123456789) == (
        '<td class="number" data-key="0.0123457">12.3 ms</td>'
    )
    assert page_parts.cell("1,000", key=1000) == '<td class="number" data-key="1000">1,000</td>'
    assert page_parts.cell("7", key=7) == '<td class="number">7</td>'
    assert page_parts.cell('<a href="#x">a &lt; b</a>', key="a < b", style="name") == (
        '<td class="name"><a href="#x">a &lt; b</a></td>'
    )
    assert page_parts.cell("a<br>b", key="a") == '<td data-key="a">a<br>b</td>'
