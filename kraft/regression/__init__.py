"""Regression analysis of benchmark results: is it slower, since which commit, and is it noise?

Owns everything about benchmark histories that needs no cluster: reading what pytest-benchmark
wrote, the schema of the store, the statistics, the reports. Pure: numpy and pyarrow in, values out;
``kraft.spark`` runs the same functions on groups of a large store, and ``kraft regress compare``
runs them on two files without it.

``points``         one row a run and benchmark: the schema of the store, and a series out of it
``results``        pytest-benchmark's JSON -> points
``settings``       what is asked of an analysis, with its defaults
``findings``       what an analysis finds: change points, comparisons, scaling laws
``change_points``  where a history changed (E-divisive)
``history``        one series analysed from end to end
``bootstrap``      how certain a ratio is
``multiplicity``   many tests at once
``comparison``     a candidate against its baseline
``scaling``        how time grows with size, and whether that changed
``terminal``, ``html``, ``markdown``, ``document``  findings as a table, a page, a comment, JSON
``wording``, ``plots``  how all of these say things; the numbers of the page's plots
"""
