"""The package as users install it: source distribution, wheel, and release checks.

``run``      build both, check their contents, install the wheel in an empty environment, run
             ``smoke`` there
``smoke``    what has to work in an environment without a checkout, Numba, Spark and Java
``release``  whether this commit can be released
"""
