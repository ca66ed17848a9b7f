"""Keep files that another version of kraft writes, for `test_older_files`.

``python -m tests.e2e.record_version COMMIT [--work DIR]`` builds the commit (`built_version`) and
writes ``tests/data/kraft-COMMIT``:

- ``controller/``: the directory of a stopped controller, with snapshots that it made;
- ``snapshots/``: a snapshot of ``kraft snapshot write`` with its column checkpoint;
- ``lab.trace``: the trace of ``kraft lab million``;
- ``manifest.json``: the acknowledged topics, and the end of the state.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import tempfile
from pathlib import Path

from kraft.metadata.identifiers import random_uuid
from kraft.network.quorum_client import QuorumClient
from kraft.protocol.create_topics import (
    CREATE_TOPICS,
    CreatableConfig,
    CreatableTopic,
    CreateTopicsRequestData,
    CreateTopicsResponseData,
)
from kraft.protocol.delete_topics import (
    DELETE_TOPICS,
    DeleteTopicsRequestData,
    DeleteTopicsResponseData,
    DeleteTopicState,
)
from kraft.server.light_brokers import LightBrokers
from kraft.server.local_quorum import LOOPBACK
from tests.e2e.built_version import ROOT, BuiltVersion, build
from tests.harness.commands import eventually
from tests.harness.nodes import Controllers

BROKERS = 3
CONFIG = ("retention.ms", "86400000")
PARTITIONS = {f"topic-{number}": number % 5 + 1 for number in range(24)} | {"deleted": 4}


def record(version: BuiltVersion, target: Path) -> None:
    """Write the files of one version to ``target``, which must not exist."""
    target.mkdir()
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        small = {"metadata.log.max.record.bytes.between.snapshots": "2000"}
        with Controllers(home, 1, small) as controllers:
            (node,) = controllers.all
            node.program = version.program
            cluster_id, directory_id = str(random_uuid()), str(random_uuid())
            version.run(
                *("storage", "format", "-t", cluster_id, "-c", node.file),
                *("--initial-controllers", f"1@{node.address}:{directory_id}"),
            )
            node.start()
            address = (LOOPBACK, node.port)
            brokers = LightBrokers([address], cluster_id, BROKERS)
            brokers.start()
            eventually(lambda: brokers.unfenced_count == BROKERS)
            _change_topics(address)
            eventually(lambda: len(list(node.metadata_log.glob("*.checkpoint"))) > 1)
            brokers.stop()
            assert node.stop(signal.SIGTERM) == 0
            written = json.loads(
                version.run(
                    *("snapshot", "write", "--from", node.data, "--to", target / "snapshots"),
                    "--json",
                )
            )
            shutil.copytree(node.data, target / "controller")
        (target / "controller" / ".lock").unlink(missing_ok=True)
        scale = ("--partitions", "2000", "--brokers", "12", "--dir", home / "lab")
        version.run("lab", "million", *scale, "--trace", target / "lab.trace")
    manifest = {
        "commit": version.name,
        "topics": {name: count for name, count in PARTITIONS.items() if name != "deleted"},
        "brokers": BROKERS,
        "endOffset": written["endOffset"],
    }
    (target / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


def _change_topics(address: tuple[str, int]) -> None:
    topics = [
        CreatableTopic(name, count, BROKERS, configs=[CreatableConfig(*CONFIG)])
        for name, count in PARTITIONS.items()
    ]
    with QuorumClient([address]) as client:
        for topic in topics:
            created = client.call(
                CREATE_TOPICS,
                CreateTopicsRequestData([topic]),
                CreateTopicsResponseData,
                lambda each: each.topics[0].error_code,
            ).response
            assert created.topics[0].error_code == 0, created
        deleted = client.call(
            DELETE_TOPICS,
            DeleteTopicsRequestData([DeleteTopicState("deleted")], timeout_ms=30_000),
            DeleteTopicsResponseData,
            lambda each: each.responses[0].error_code,
        ).response
        assert deleted.responses[0].error_code == 0, deleted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("commit")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "kraft-versions")
    given = parser.parse_args()
    version = build(given.commit, given.work, print)
    record(version, ROOT / "tests" / "data" / f"kraft-{version.name}")


if __name__ == "__main__":
    main()
