"""Records real metadata: `python -m tests.interop.record 4.3` (or 3.9) fills `tests/data/kafka-…`."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path

from tests.interop import kafka_jars, scenario
from tests.interop.cluster import ADMIN_PASSWORD, ADMIN_USER, Cluster, wait_for
from tests.interop.scenario import CONTROLLERS, RACKS, Stage


def start_4(directory: Path) -> Stage:
    cluster = Cluster(kafka_jars.kafka("4.3.1"), directory, "kraft-recorded-4-3-00w", settings={})
    cluster.reserve_controllers(*CONTROLLERS)
    scram = f"SCRAM-SHA-256=[name={ADMIN_USER},password={ADMIN_PASSWORD}]"
    for node_id in CONTROLLERS:
        node = cluster.add_controller(
            node_id, metadata__log__max__record__bytes__between__snapshots="20000",
            internal__metadata__log__segment__bytes="30000",
        )
        how = "--standalone" if node_id == 101 else "--no-initial-controllers"
        node.format(cluster.cluster_id, how, "-r", "3.9-IV0", "-f", "kraft.version=1", "-S", scram)
    for node_id, rack in RACKS.items():
        cluster.add_broker(node_id, rack).format(cluster.cluster_id, "--no-initial-controllers")
    for node in cluster.nodes.values():
        node.start()
    for node in cluster.nodes.values():
        node.wait_until_listening()
    return Stage(cluster, cluster.driver())


if __name__ == "__main__":
    directory = Path(sys.argv[1])
    shutil.rmtree(directory, ignore_errors=True)
    stage = None
    t = time.time()
    try:
        stage = start_4(directory)
        for b in RACKS:
            stage.wait_for_brokers(including=b)
        print("up", time.time() - t)
        print(stage.ask("quorum"), stage.ask("features"))
        for v in (102, 103):
            wait_for("voter", lambda v=v: scenario._add_voter(stage, v), 40)
        names = sys.argv[2].split(",")
        for name in names:
            try:
                getattr(scenario, name)(stage)
            except Exception as e:
                print("FAILED", name, e, flush=True)
            print(name, round(time.time() - t, 1), flush=True)
        print(stage.ask("quorum"), stage.ask("features"))
        stage.cluster.stop()
        print("stopped", time.time() - t)
    finally:
        if stage:
            stage.ask.close()
            stage.cluster.kill()
