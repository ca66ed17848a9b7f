"""Kafka's metadata before KRaft: ZooKeeper's znodes, its server, and the controllers of that time.

`znodes` has the paths and the JSON of znodes, `server` starts Apache ZooKeeper and connects to it,
`port` is the interface to a session, `memory` and `kazoo_port` its two drivers.
ZooKeeper needs Java 17 and ``pip install 'kraft[zookeeper]'``; the pure modules need neither.
"""
