"""Kafka metadata, benchmark results and event traces in Spark, and sweeps that outgrow one machine.

Everything here takes a ``SparkSession`` of any kind: local, standalone, a cluster's. What is
computed is computed by the rooms below (`kraft.regression`, `kraft.lab`, `kraft.metadata`); this
one reads, spreads and gathers. Importing it needs PySpark (``pip install 'kraft[spark]'``) and no
Java; starting a session needs Java 17 or newer.
"""
