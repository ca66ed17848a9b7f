"""Apache Kafka's own integration tests, run with the controller in a process of its own.

``suites.toml`` lists the classes of Kafka's published test jars and the tests that cannot apply;
``java`` holds the class that Kafka's test kits start in place of their controller. The process is
kraft, or Kafka's own controller as the control.
"""
