"""Kafka's metadata before KRaft: ZooKeeper's znodes, its server, and the controller of 2018.

`znodes` has the paths and the JSON of znodes, `server` starts Apache ZooKeeper and connects to it,
`port` is the interface to a session, `memory` and `kazoo_port` its two drivers.

`controller` is the controller of Kafka 1.1: pure, over the compiled columns in `context`.
`controller_node` runs it with `event_loop`, and with `broker_channels` to brokers of Apache Kafka
or `light_broker`.

ZooKeeper needs Java 17 and ``pip install 'kraft[zookeeper]'``; the pure modules need neither.
"""

#: Before an address of ZooKeeper where a path may be given too.
SCHEME = "zookeeper://"
