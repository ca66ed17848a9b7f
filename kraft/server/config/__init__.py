"""Node configuration: read and check Kafka's `.properties` files."""
