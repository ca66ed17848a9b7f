"""A quorum of kraft's nodes that lost a majority is rescued by what the command says to type."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from tests.harness.commands import eventually, kraft, printed
from tests.harness.nodes import Controllers

pytestmark = pytest.mark.nodes


def test_a_lost_majority_is_rescued_and_replaced(tmp_path: Path) -> None:
    with Controllers(tmp_path, 3) as quorum:
        first, second, third = quorum.all
        quorum.form(quorum.all)
        cluster_id = quorum.status()["ClusterId"]
        first.stop(signal.SIGKILL)
        third.stop(signal.SIGKILL)
        alive = kraft("rescue", first.data)
        assert alive.returncode == 1
        assert f"a process answers at {second.address}" in alive.stderr
        second.stop(signal.SIGKILL)
        for node in (second, third):
            shutil.rmtree(node.data)
        before = printed("open", first.data, "--json")

        assert "What a rescue would do" in printed("rescue", first.data)
        assert (
            printed("open", first.data, "--json").partition("opened")[0]
            == (before.partition("opened")[0])
        )
        said = printed("rescue", first.data, "--in-place")
        assert f"kraft storage format -t {cluster_id} -c FILE --no-initial-controllers" in said

        first.start()
        status = quorum.status()
        assert status["LeaderId"] == 1
        assert status["LeaderEpoch"] > 1000
        assert [voter["id"] for voter in status["CurrentVoters"]] == [1]

        for node in (second, third):
            node.format(cluster_id, "--no-initial-controllers")
            node.start()
            eventually(lambda: not quorum.status()["MaxFollowerLag"])
            eventually(
                lambda node=node: (
                    kraft(
                        *("quorum", "add-controller", "-c", node.file),
                        *("--bootstrap-controller", first.address),
                    ).returncode
                    == 0
                )
            )
        assert [voter["id"] for voter in quorum.status()["CurrentVoters"]] == [1, 2, 3]
        refused = kraft("rescue", second.data)
        assert refused.returncode == 1
        assert "is in use" in refused.stderr
