"""Turn the registrations of brokers in ZooKeeper into records.

Pure. A broker's znode exists while its session lasts, so the records describe the brokers that were
alive when the tree was read. Kafka's migration takes no registration from ZooKeeper: its brokers
register with the controllers themselves.
"""

from __future__ import annotations

from collections.abc import Iterator

from kraft.errors import CorruptZnodeError
from kraft.image.nodes import SECURITY_PROTOCOLS
from kraft.metadata.identifiers import hashed_uuid
from kraft.records import EndpointData, Feature, RegisterBroker
from kraft.records.versions import record_version
from kraft.zookeeper.checked_values import INT16_MAX, INT32_MAX, number
from kraft.zookeeper.tree import ZnodeTree
from kraft.zookeeper.znodes import BROKER_IDS, BrokerZnode, broker_path

_PORT_MAX = 65535


def registered_brokers(tree: ZnodeTree) -> list[int]:
    """Return the ids of the brokers that were alive when the tree was read, sorted."""
    ids: list[int] = []
    for name in tree.children(BROKER_IDS):
        if not (name.isascii() and name.isdigit() and int(name) <= INT32_MAX):
            raise CorruptZnodeError(f"{BROKER_IDS}/{name} is not named by a broker's id")
        ids.append(int(name))
    return sorted(ids)


def registrations(tree: ZnodeTree, metadata_version: int) -> Iterator[RegisterBroker]:
    """Yield the registration of each broker as one that is not fenced and migrates from ZooKeeper.

    Its epoch is the czxid of its znode, as for other brokers in ZooKeeper mode. Its incarnation is
    a hash of id and epoch. Raises CorruptZnodeError.
    """
    for broker_id in registered_brokers(tree):
        path = broker_path(broker_id)
        stored = tree.required(path)
        znode = BrokerZnode.decode(stored.data, broker_id)
        endpoints = []
        for one in znode.listeners:
            if one.security_protocol not in SECURITY_PROTOCOLS:
                raise CorruptZnodeError(
                    f"{path}: listener {one.listener} has the security protocol "
                    f"{one.security_protocol!r:.40}, not one of {', '.join(SECURITY_PROTOCOLS)}"
                )
            port = number(path, "a port", one.port, 0, _PORT_MAX)
            protocol = SECURITY_PROTOCOLS.index(one.security_protocol)
            endpoints.append(EndpointData(one.listener, one.host, port, protocol))
        features = [
            Feature(
                name,
                number(path, f"the lowest level of {name}", low, 0, INT16_MAX),
                number(path, f"the highest level of {name}", high, 0, INT16_MAX),
            )
            for name, (low, high) in sorted((znode.features or {}).items())
        ]
        yield RegisterBroker(
            broker_id=broker_id,
            is_migrating_zk_broker=True,
            incarnation_id=hashed_uuid(f"{broker_id} {stored.czxid}".encode()),
            broker_epoch=stored.czxid,
            end_points=endpoints,
            features=features,
            rack=znode.rack,
            fenced=False,
            version=record_version(RegisterBroker, metadata_version),
        )
