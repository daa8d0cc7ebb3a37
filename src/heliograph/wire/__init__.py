"""Kafka on the wire: connections, metadata, fetch, produce, admin. Only importer of kafka-python."""
