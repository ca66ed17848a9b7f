"""A running quorum's metadata as a library object that stays current: ``kraft.follow``.

``metadata`` has `follow` and ``LiveMetadata``; ``fetching`` is the thread that fetches, over
``kraft.metadata.quorum_observer``; ``stable_batches`` holds back open metadata transactions;
``delta`` is what changed between two polls.
"""
