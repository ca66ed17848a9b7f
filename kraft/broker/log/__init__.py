"""The logs of a broker's partitions on disk, in Kafka's layout."""
