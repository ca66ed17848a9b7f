"""The package as users install it: source distribution, wheel, and release checks.

``run``      build both, check their contents, install the wheel in an empty environment, run
             ``smoke`` there
``smoke``    checks that must pass in an environment without a checkout, Numba, Spark and Java
``release``  whether this commit can be released
"""
