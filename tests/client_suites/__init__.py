"""The integration tests of kafka-python with a broker of kraft in place of Apache Kafka's.

`suites.toml` lists the test files, and the tests that do not apply. `run` runs them, each file in
a pytest process of its own, with `broker_fixtures` in place of the fixtures that start Kafka.
"""
