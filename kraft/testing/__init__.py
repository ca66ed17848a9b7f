"""A quorum of controllers for tests: the pytest fixtures ``kraft_cluster`` and its factory.

``plugin`` has the fixtures, which pytest finds by the entry point ``pytest11``; ``cluster`` has
``QuorumForTests``, the processes behind them.
"""
