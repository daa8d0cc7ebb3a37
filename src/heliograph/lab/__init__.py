"""Real Kafka clusters on this machine, for the demo, the tests and the benchmarks."""

from heliograph.jvm.artifacts import Artifact, classpath
from heliograph.jvm.java import find_java
from heliograph.lab.broker import Broker
from heliograph.lab.cluster import DEFAULT_KAFKA_VERSION, Cluster
from heliograph.lab.lab import Lab
from heliograph.lab.mirror_maker import MirrorMaker2

__all__ = [
    "DEFAULT_KAFKA_VERSION",
    "Artifact",
    "Broker",
    "Cluster",
    "Lab",
    "MirrorMaker2",
    "classpath",
    "find_java",
]
