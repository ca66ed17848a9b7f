"""Benchmarks: kraft's work beside the same work of its peers, in the same run.

``generate``   the input files, made without kraft
``java_peers`` compiles and runs the Java peers on Kafka's released jars (``peers/``)
``bench_*``    pytest-benchmark suites; each measured work names itself with ``record``
``report``     the table of bars out of one run's JSON
"""
