"""Apache Kafka's own integration tests, run with the controller in a separate process.

``suites.toml`` lists the classes of Kafka's published test jars and the tests that do not apply.
``java`` contains the class that Kafka's test kits start instead of their controller. The separate
process is kraft, or Kafka's own controller for comparison.
"""
