"""The controller: requests -> decisions, as Kafka's QuorumController makes them.

A deciding function takes a ``ClusterMetadata`` and a request, and returns a ``Decision``: the
records, encoded as batches, and the response. A decision changes nothing; the records change the
cluster when they are applied. Pure: no socket, file, thread, clock or random source; ids, offsets
and the placer are arguments.

``topics``, ``brokers``, ``configs``, ``security`` and ``features`` decide; ``runtime`` runs the
decisions in order and holds their responses until the records are committed.
"""
