"""``kraft transplant check --wait`` while the controllers are not up."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from kraft.testing.cluster import QuorumForTests
from tests.harness.commands import PATIENCE_S, Foreground, kraft
from tests.harness.preflight import addresses


@pytest.mark.kraft_cluster(controllers=1)
def test_a_check_waits_for_a_controller_that_does_not_answer(
    kraft_cluster: QuorumForTests, tmp_path: Path
) -> None:
    bootstrap = kraft_cluster.bootstrap_controllers
    kraft_cluster.kill(1)
    words = ["transplant", "check", "--bootstrap-controller", bootstrap, "--json"]
    refused = kraft(*words)
    assert refused.returncode == 1
    assert "no controller answers" in refused.stderr
    with socket.create_server(addresses(bootstrap)[0]) as silent:
        silent.settimeout(PATIENCE_S)
        waiting = Foreground([*words, "--wait", "60"], tmp_path / "log")
        with waiting:
            # It asks again after a connection that ended without an answer.
            for _ in range(2):
                silent.accept()[0].close()
            silent.close()
            kraft_cluster.start(1)
            document = waiting.announced()
            assert waiting.process.wait(PATIENCE_S) in (0, 3)
    assert document["canContinue"] is True
    assert "blocks" not in {finding["severity"] for finding in document["findings"]}
