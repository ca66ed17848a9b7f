"""The fleet: clusters of many light brokers on one machine, against any KRaft quorum.

``kraft fleet`` and ``kraft lab fleet`` run it. A light broker sends its controllers what a broker
of Apache Kafka sends them, over connections of its own, and stores no partition's records.
"""
