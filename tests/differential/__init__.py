"""Kafka's control managers and this package's controller, given the same, must write the same.

``make differential CASES=... SEED=...`` runs it; see ``docs/differential.md``.

A *sequence* is a setup (settings, and the records of a cluster) and operations. An operation is a
JSON object that both sides understand: ``{"op": name, ...arguments}``. This side decides with the
functions of ``kraft.controller`` and applies the records to its own ``Cluster``;
``java/Managers.java`` gives the same to Kafka's managers. What is compared for each operation: the
error code of the whole request, the records byte by byte, atomic or not, and an answer (error codes
of the parts, mostly).

How to add an operation:

1. Java: a lambda in the ``java/*Operations.java`` of the manager (a new one is named in
   ``Managers.java``). It reads its arguments (requests as Kafka's own JSON, through
   ``<Message>JsonConverter``), calls the manager and gives ``answered(result, answer as JSON)``.
   Random bytes that Kafka draws (``Uuid.randomUuid``) are those of the argument ``random``, which
   is what this side's ``Outcome.random`` says.
2. Python: a subclass of ``Operation`` in the module of the duty here, and in its ``OPERATIONS``
   (a new module is named in ``registry.py``). ``arguments`` draws plausible and implausible
   arguments from a ``World``, ``decide`` calls the function of ``kraft.controller``,
   ``understood`` brings Kafka's answer into the form of ours.
3. ``python -m tests.differential.run --only NAME`` runs sequences in which it is frequent.
"""
