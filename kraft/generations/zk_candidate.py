"""A process with one of kraft's controllers of the ZooKeeper era, so that it can be killed.

``python -m kraft.generations.zk_candidate ERA ID ADDRESS TIMEOUT [--sync]`` runs it until its
standard input closes, however its parent ends; TIMEOUT is the session's, in ms.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import replace

from kraft.collector import collect_rarely
from kraft.zookeeper.controller_node import ZkControllerNode
from kraft.zookeeper.server import ZooKeeperAddress
from kraft.zookeeper.settings import SETTINGS_0_8, ZkControllerSettings, ZkEra

#: The line on standard output once it has a session and takes part in elections.
READY = "this process is a candidate"


def main() -> None:
    """Run the candidate of the command line."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    era = ZkEra(sys.argv[1])
    id, address, timeout_ms = sys.argv[2:5]
    settings = SETTINGS_0_8 if era is ZkEra.V0_8 else ZkControllerSettings()
    node = ZkControllerNode(
        int(id),
        ZooKeeperAddress.parse(address),
        era=era,
        # Leaders move only where the script moves them.
        settings=replace(settings, auto_leader_rebalance_enable=False),
        session_timeout_ms=int(timeout_ms),
        pipelines="--sync" not in sys.argv[5:],
    )
    collect_rarely()
    node.start()
    print(READY, flush=True)
    sys.stdin.read()
    node.stop()


if __name__ == "__main__":
    main()
