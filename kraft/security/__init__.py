"""Who a peer is and what it may do: principals, SASL, and the authorizer.

``principals`` holds Kafka's principals and super users, ``ssl_principals`` maps certificates to
principals, ``sasl`` authenticates connections, ``authorizer`` decides by ACLs. Pure: no socket,
file, thread, clock or random source; time and randomness are arguments. ``kraft.network`` and
``kraft.server`` call it; it reads ACLs, SCRAM credentials and tokens from ``kraft.image``.
"""
