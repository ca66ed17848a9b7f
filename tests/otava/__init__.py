"""Regression analysis against the program whose method it is: Apache Otava.

``suites``     benchmarks and their histories, and pytest-benchmark's JSON of them
``generated``  histories made up: steps, drifts, noise of several kinds, outliers, missing values
``published``  the series that Otava's own source carries, fetched at test time
``program``    the ``otava`` program, run on CSV
``run``        both on the same histories, at equal settings: no change point may differ
"""
