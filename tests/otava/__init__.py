"""Regression analysis compared with the ``otava`` program, whose method it uses.

``suites``     benchmarks and their histories, and pytest-benchmark's JSON of them
``generated``  generated histories: steps, drifts, noise of several kinds, outliers, missing values
``published``  the series in Otava's own source distribution, fetched at test time
``program``    the ``otava`` program, run on CSV
``run``        both on the same histories, at equal settings: all change points must be equal
"""
