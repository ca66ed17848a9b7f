"""Kafka's `.properties` as a configuration that holds."""
