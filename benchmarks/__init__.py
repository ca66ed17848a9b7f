"""Benchmarks: kraft and its peers do the same work in the same run.

``generate``   the input files, made without kraft
``java_peers`` compiles and runs the Java peers on Kafka's released jars (``peers/``)
``quorum_processes``, ``quorum_node``, ``quorum_trace``, ``bare_writer``
               quorums as processes, one kraft node in such a quorum, recorded events of a quorum's
               nodes, and a process that only writes and syncs
``bench_*``    pytest-benchmark suites; each measured work is named by the fixture ``measured``
``report``     the speed table of one run's JSON
"""
