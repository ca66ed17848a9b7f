"""The controller of 2013 to 2017, as of Kafka 0.8.2: listeners of ZooKeeper under one lock.

Each znode is read and written by itself, and each request waits for the answer of the one before.
Znodes, contexts, tables of states, election strategies and requests are those of `kraft.zookeeper`.
"""
