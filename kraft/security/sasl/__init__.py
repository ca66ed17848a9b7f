"""SASL: PLAIN and SCRAM on both sides, and the exchange of a connection, without I/O.

``connection`` is the server's state of one connection, ``plain`` and ``scram`` are the mechanisms,
``credentials`` finds the secrets of users, ``jaas`` reads the lines of ``sasl.jaas.config``.

Invariants: no repr, error or log holds a password, a key or a salt. A peer cannot distinguish an
unknown user from a wrong password: both get the same messages, in the same number.
"""
