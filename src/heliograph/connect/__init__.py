"""Kafka Connect: connectors, their storage topics, workers that share them. In the driver."""
