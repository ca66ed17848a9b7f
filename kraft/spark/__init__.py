"""Kafka metadata, benchmark results and event traces in Spark; sweeps over several machines.

All functions accept a ``SparkSession`` of any kind: local, standalone, a cluster's. This package
reads, distributes and collects; `kraft.regression`, `kraft.lab` and `kraft.metadata` compute.
Importing it needs PySpark (``pip install 'kraft[spark]'``) but no Java; starting a session needs
Java 17 or newer.
"""
