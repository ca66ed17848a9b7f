"""A shell over the metadata, as kafka-metadata-shell: nodes, paths, commands.

``nodes`` makes the tree of a ``MetadataView``, one directory at a time; ``paths`` finds the nodes
of a path or glob; ``commands`` runs ``ls``, ``cat`` and the others, and writes lines. Called by
``kraft shell``.
"""
