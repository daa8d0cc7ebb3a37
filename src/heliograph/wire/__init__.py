"""Kafka on the wire: connections, metadata, fetch, produce, admin. Alone imports kafka-python."""
