"""Benchmarks: kraft's work beside the same work of its peers, in the same run.

``generate``   the input files, made without kraft
``java_peers`` compiles and runs the Java peers on Kafka's released jars (``peers/``)
``quorum_processes``, ``quorum_node``, ``quorum_trace``, ``bare_writer``
               quorums as processes, what a node of kraft's does in one, what nodes were told in a
               while of their lives, and a process that only writes and syncs
``bench_*``    pytest-benchmark suites; each measured work names itself with ``record``
``report``     the table of bars out of one run's JSON
"""
