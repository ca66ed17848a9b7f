"""Small trees of znodes, as Kafka 3.9 writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kraft.zookeeper.tree import StoredZnode, ZnodeTree
from kraft.zookeeper.znodes import BrokerZnode, ListenerAddress, PartitionStateZnode, TopicZnode

CLUSTER_ID = "bGVhdmVfem9va2VlcGVyXw"
TOPIC_ID = "AAECAwQFBgcICQoLDA0ODw"


def document(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def settings(**config: str) -> bytes:
    """Return the content of a config's znode; ``__`` in a name is a dot."""
    named = {name.replace("__", "."): value for name, value in config.items()}
    return document(version=1, config=named)


def topic(*replicas: tuple[int, ...], topic_id: str | None = TOPIC_ID) -> bytes:
    """Return the assignment of a topic with these replicas of its partitions."""
    return TopicZnode(dict(enumerate(replicas)), topic_id=topic_id).encode(3)


def state(leader: int, isr: tuple[int, ...], *, epoch: int = 0, version: int = 0) -> StoredZnode:
    znode = PartitionStateZnode(leader, epoch, isr, controller_epoch=1)
    return StoredZnode(znode.encode(), version)


def broker(broker_id: int, *, czxid: int = 0, rack: str | None = None) -> StoredZnode:
    listener = ListenerAddress("localhost", 9092)
    return StoredZnode(BrokerZnode(broker_id, (listener,), rack).encode(4), 0, czxid)


def tree(
    more: Mapping[str, bytes | StoredZnode | None] | None = None, *, changed: tuple[str, ...] = ()
) -> ZnodeTree:
    """Return the tree of an empty cluster with ``more``; None removes a znode."""
    znodes: dict[str, bytes | StoredZnode | None] = {
        "/cluster/id": document(version="1", id=CLUSTER_ID),
        "/brokers/ids": b"",
        "/brokers/topics": b"",
        "/config/topics": b"",
        "/latest_producer_id_block": b"",
        **(more or {}),
    }
    stored = {
        path: znode if isinstance(znode, StoredZnode) else StoredZnode(znode)
        for path, znode in znodes.items()
        if znode is not None
    }
    return ZnodeTree(stored, changed=changed)
