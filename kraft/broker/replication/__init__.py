"""Replication of a broker's partitions: leaders, followers, high watermarks, ISR changes, fetches.

Pure: no socket, file, thread, clock or random source. Time is an argument in milliseconds, a
partition's log is a port (`ports`), and what has to be sent is returned. `replica_manager` is the
entry; it owns one `partition.HostedPartition` for each replica on this broker.

Rules: Apache Kafka 4.3's ``Partition``, ``ReplicaManager``, ``AlterPartitionManager``,
``AbstractFetcherThread``, ``DelayedProduce``, ``DelayedFetch``, ``FetchSession``; KIP-101, KIP-207,
KIP-227, KIP-279, KIP-320, KIP-392, KIP-497, KIP-841, KIP-903, KIP-966.
"""
