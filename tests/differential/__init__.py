"""Compare the decisions of Kafka's control managers with those of this package on equal requests.

``make differential CASES=... SEED=...`` runs the comparison; see ``docs/differential.md``.

A *sequence* is a setup (settings, and the records of a cluster) and operations. An operation is a
JSON object that both sides understand: ``{"op": name, ...arguments}``. This side decides with the
functions of ``kraft.controller`` and applies the records to its own ``MetadataState``;
``java/Managers.java`` passes the same operation to Kafka's managers. Compared for each operation:
the error code of the whole request, the records byte by byte, whether they are atomic, and the
response (mostly the error codes of its parts).

How to add an operation:

1. Java: add a lambda to the ``java/*Operations.java`` of the manager (name a new manager in
   ``Managers.java``). It reads its arguments (requests as Kafka's own JSON, through
   ``<Message>JsonConverter``), calls the manager and returns ``answered(result, response as
   JSON)``. Where Kafka draws random bytes (``Uuid.randomUuid``), it gets those of the argument
   ``random``, which are this side's ``Outcome.random``.
2. Python: add a subclass of ``Operation`` to the module of the API here, and to its ``OPERATIONS``
   (name a new module in ``registry.py``). ``arguments`` draws valid and invalid arguments for a
   ``World``, ``decide`` calls the function of ``kraft.controller``, ``understood`` converts Kafka's
   response into the form of ours.
3. ``python -m tests.differential.run --only NAME`` runs sequences that use it often.
"""
