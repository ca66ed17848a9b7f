"""The fixtures, as pytest runs them, and the example of the page."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

from kraft.testing.cluster import QuorumForTests

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "how-to" / "test-with-a-quorum.md"


def test_the_example_of_the_page_passes(tmp_path: Path) -> None:
    (example,) = re.findall(r"```text\n# test_topics.py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "test_topics.py").write_text(example)
    command = [sys.executable, "-m", "pytest", "-p", "kraft.testing.plugin", "--strict-markers"]
    ran = subprocess.run(
        [*command, "-q", "--rootdir", str(tmp_path), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "4 passed" in ran.stdout


def test_the_plugin_imports_nothing_but_pytest() -> None:
    code = (
        "import sys, pytest; before = set(sys.modules); import kraft.testing.plugin;"
        "print(sorted(set(sys.modules) - before))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = eval(ran.stdout)
    assert loaded == ["kraft", "kraft.errors", "kraft.testing", "kraft.testing.plugin",
                      "kraft.version"]  # fmt: skip


def test_a_paused_controller_continues(tmp_path: Path) -> None:
    with QuorumForTests(tmp_path, 1, light_brokers=1) as cluster:
        cluster.pause(1)
        time.sleep(0.2)
        cluster.resume(1)
        cluster.create_topic("after", 2)
        cluster.stop(1)
        cluster.start(1)
        assert cluster.wait_for_leader() == 1
        cluster.delete_topic("after")
        with cluster.follow() as live:
            assert "after" not in live.topics
    assert not any(node.is_running for node in cluster._quorum.nodes)
