"""Watch a controller process: metrics and health over HTTP, its log as JSON lines."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kraft.server.local_quorum import free_ports
from tests.harness.commands import Foreground, eventually
from tests.harness.http_answers import get
from tests.harness.nodes import Controllers

pytestmark = pytest.mark.nodes


def samples(port: int) -> dict[str, float]:
    """Return the values of the metrics without labels."""
    status, body = get(port, "/metrics")
    assert status == 200
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(body)
        for sample in family.samples
        if not sample.labels
    }


def test_a_running_controller_is_watched(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    quorum = Controllers(tmp_path, 2, {"kraft.http.listener": f":{port}"})
    node = quorum.all[0]
    quorum.lay_out(quorum.all)
    command = ["server", "start", node.file, "--log-format", "json"]
    with Foreground(command, tmp_path / "log") as running:
        # One of two voters: healthy, and not ready.
        eventually(lambda: get(port, "/healthz")[0], until=lambda status: status == 200)
        status, body = get(port, "/readyz")
        assert status == 503
        document = json.loads(body)
        assert document["status"] == "not ready"
        assert "is known" in document["reasons"][0]
        assert get(port, "/other")[0] == 404
        # Started now, the other node could ask for this node's vote before its own timeout ends.
        alone = "no leader of epoch 0 was found within the election timeout"
        eventually(lambda: alone in running.text)

        other = ["server", "start", quorum.all[1].file, "--override", "kraft.http.listener="]
        with Foreground(other, tmp_path / "other"):
            eventually(lambda: get(port, "/readyz")[0], until=lambda status: status == 200)
            first = samples(port)
            assert first["kafka_server_raft_metrics_number_of_voters"] == 2
            name = "kafka_server_raft_metrics_high_watermark"
            eventually(lambda: samples(port)[name], until=lambda offset: offset > first[name])
        assert running.end(signal.SIGTERM) == 0
        lines: list[dict[str, Any]] = [json.loads(line) for line in running.text.splitlines()]
    assert {line["node_id"] for line in lines} == {1}
    messages = [line["message"] for line in lines if line["logger"] == "kraft.raft"]
    reasons = "\n".join(messages)
    assert alone in reasons
    assert "elected: votes granted by" in reasons or "names leader 2" in reasons, reasons
