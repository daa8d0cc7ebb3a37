"""Java for Spark and for real Kafka: finding it, its class archives, and what Ivy fetches."""
