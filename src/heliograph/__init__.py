"""Heliograph mirrors Apache Kafka clusters: MirrorMaker 2's contract, exactly once, on Spark."""

__version__ = "0.1.0"
