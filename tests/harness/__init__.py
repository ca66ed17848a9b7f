"""Helpers that several folders of tests and benchmarks share: processes, controllers, records.

A test module imports from here, from `tests.reference`, from `tests.data` or from its own folder;
`tests/unit/test_test_imports.py` checks this.
"""
