"""The files of deploy/: each metric, option and command in them works with a running controller."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kraft.server.local_quorum import free_ports
from tests.e2e.beating_broker import BeatingBroker
from tests.harness.commands import Foreground, eventually
from tests.harness.http_answers import get
from tests.harness.nodes import Controllers

DEPLOY = Path(__file__).parents[2] / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
UNIT = DEPLOY / "kraft.service"
PAGE = DEPLOY.parent / "docs" / "how-to" / "run-in-production.md"
#: Where the files expect the program and the configuration.
PROGRAM, CONFIGURATION = "/opt/kraft/bin/", "/etc/kraft/controller.properties"
#: Grafana's grid has so many columns.
COLUMNS = 24


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def expressions() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel["targets"]]


def alerts() -> list[str]:
    """Return the expressions of the page's table of alerts."""
    return re.findall(r"`([^`\n]*\b(?:kafka|process)_[^`\n]*)`", PAGE.read_text())


def container(instruction: str) -> list[str]:
    """Return the words of an instruction in exec form, which is a JSON array."""
    text = (DEPLOY / "Containerfile").read_text()
    found = re.search(rf"^{instruction} .*?(\[.*\])$", text, re.MULTILINE)
    assert found is not None
    words: list[str] = json.loads(found[1])
    return words


def service() -> dict[str, str]:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(UNIT)
    return dict(parser["Service"])


def test_grafana_imports_the_dashboard() -> None:
    """Grafana's importer needs no id, a title, a schema version; panels with places and queries."""
    assert DASHBOARD["id"] is None
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", DASHBOARD["uid"])
    assert DASHBOARD["title"]
    assert isinstance(DASHBOARD["schemaVersion"], int)
    assert set(DASHBOARD["time"]) == {"from", "to"}
    variables = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == "prometheus"
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(numbers)) == len(numbers)
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= COLUMNS
        cells = {
            (place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
    for panel in panels():
        assert panel["type"] in ("stat", "timeseries")
        names = [target["refId"] for target in panel["targets"]]
        assert names
        assert len(set(names)) == len(names)
        for each in (panel, *panel["targets"]):
            assert each["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    used = {name for text in expressions() for name in re.findall(r"\$(\w+)", text)}
    assert used <= set(variables)


def test_a_running_controller_has_the_metrics_and_the_health_of_the_files(tmp_path: Path) -> None:
    """Run the container's command, with the paths of this machine, and its health check."""
    (port,) = free_ports(1)
    quorum = Controllers(tmp_path, 1)
    quorum.lay_out(quorum.all)
    entry, command = container("ENTRYPOINT"), container("CMD")
    assert entry == [f"{PROGRAM}kraft"]
    check = container("HEALTHCHECK")
    assert check[0] == f"{PROGRAM}python"
    probe = [sys.executable, *(word.replace(":9404", f":{port}") for word in check[1:])]
    assert subprocess.run(probe, stderr=subprocess.DEVNULL, check=False).returncode != 0
    places = {CONFIGURATION: str(quorum.all[0].file), "127.0.0.1:9404": f"127.0.0.1:{port}"}
    words = []
    for word in command:
        for before, after in places.items():
            word = word.replace(before, after)
        words.append(word)
    with Foreground(words, tmp_path / "log") as running:
        eventually(lambda: get(port, "/readyz")[0], until=lambda status: status == 200)
        assert subprocess.run(probe, check=False).returncode == 0
        exposed: set[str] = set()
        for family in text_string_to_metric_families(get(port, "/metrics")[1]):
            # A family without samples, for example of an absent broker, has only its name.
            exposed.add(f"{family.name}_total" if family.type == "counter" else family.name)
            exposed.update(sample.name for sample in family.samples)
        assert len(alerts()) > 5
        for text in expressions() + alerts():
            names = re.findall(r"\b(?:kafka|process)_\w+", text)
            assert names, text
            assert not set(names) - exposed, text
        assert running.end(signal.SIGTERM) == 0


def selectors(promql: Any, expression: Any) -> list[Any]:
    """Return the parsed vector selectors of a PromQL expression."""
    found: list[Any] = []

    def visit(node: Any) -> None:
        if isinstance(node, promql.VectorSelector):
            found.append(node)

    promql.walk(expression, visit)
    return found


def grouped_by(promql: Any, expression: Any) -> set[str] | None:
    """Return the labels that an aggregation keeps; None for other expressions."""
    if not isinstance(expression, promql.AggregateExpr):
        return None
    return set() if expression.modifier is None else set(expression.modifier.labels)


def test_every_query_selects_series_of_a_quorum(tmp_path: Path) -> None:
    """Parse each expression; its metrics, labels and legends exist at three controllers."""
    promql = pytest.importorskip("promql_parser")
    ports = free_ports(3)
    series: dict[str, list[dict[str, str]]] = {}
    with Controllers(tmp_path, 3) as quorum:
        for node, port in zip(quorum.all, ports, strict=True):
            node.settings = {"kraft.http.listener": f"127.0.0.1:{port}"}
            node.write()
        quorum.form(quorum.all)
        leader = next(one for one in quorum.all if one.id == quorum.described().leader_id)
        with BeatingBroker(leader.port, quorum.status()["ClusterId"]):
            for port in ports:
                eventually(partial(get, port, "/readyz"), until=lambda answer: answer[0] == 200)
                for family in text_string_to_metric_families(get(port, "/metrics")[1]):
                    for sample in family.samples:
                        series.setdefault(sample.name, []).append(dict(sample.labels))
    #: Labels that Prometheus adds to each series.
    added = {"job", "instance"}
    legends = [target["legendFormat"] for panel in panels() for target in panel["targets"]]
    queries = list(zip(expressions(), legends, strict=True)) + [(text, "") for text in alerts()]
    for text, legend in queries:
        parsed = promql.parse(text)
        chosen = selectors(promql, parsed)
        assert chosen, text
        kept = added | set.intersection(*(set(series[one.name][0]) for one in chosen))
        for one in chosen:
            asked = [each for each in one.matchers.matchers if each.name not in added]
            exact = {each.name: each.value for each in asked if each.op == promql.MatchOp.Equal}
            assert any(exact.items() <= labels.items() for labels in series[one.name]), text
            assert {each.name for each in asked} <= set(series[one.name][0]), text
        grouped = grouped_by(promql, parsed)
        if grouped is not None:
            assert grouped <= kept, text
            kept = grouped
        assert set(re.findall(r"{{(\w+)}}", legend)) <= kept, (text, legend)


def test_the_container_is_built_in_a_format_with_a_health_check() -> None:
    """Podman and buildah ignore HEALTHCHECK in their own format, OCI."""
    for path in (DEPLOY / "Containerfile", PAGE):
        (command,) = re.findall(r"podman build .*", path.read_text())
        assert "--format docker" in command, path


def test_the_service_starts_and_stops_a_controller(tmp_path: Path) -> None:
    quorum = Controllers(tmp_path, 1)
    quorum.lay_out(quorum.all)
    settings = service()
    program, *words = shlex.split(settings["ExecStart"])
    assert program == f"{PROGRAM}kraft"
    words = [word.replace(CONFIGURATION, str(quorum.all[0].file)) for word in words]
    with Foreground(words, tmp_path / "log") as running:
        eventually(lambda: "node 1 of cluster" in running.text)
        assert running.end(signal.Signals[settings["KillSignal"]]) == 0


def test_systemd_accepts_the_service(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("needs systemd-analyze")
    installed = tmp_path / "kraft"
    installed.write_text("#!/bin/sh\n")
    installed.chmod(0o755)
    unit = tmp_path / "kraft.service"
    unit.write_text(UNIT.read_text().replace(f"{PROGRAM}kraft", str(installed)))
    ran = subprocess.run(
        [program, "verify", "--man=no", unit], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "kraft.service" not in ran.stderr, ran.stderr
