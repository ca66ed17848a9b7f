"""Tests of the replication of partitions: each rule with its source in Kafka."""
