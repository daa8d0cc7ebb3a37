"""What other programs need of a mirror: sync, small, without Spark.

MM2's MirrorClient and RemoteClusterUtils, under their names in Python's spelling. A consumer that
moves from cluster A to its mirror B:

    from heliograph.client import translate_offsets

    offsets = translate_offsets({"bootstrap.servers": "b1:9092"}, "A", "my-group")
    for partition, position in offsets.items():
        print(partition.topic, partition.partition, position.offset)

Several questions to one cluster share a client:

    from heliograph.client import MirrorClient

    with MirrorClient({"bootstrap.servers": "b1:9092"}) as client:
        client.upstream_clusters()                                     # {"A"}
        client.replication_hops("A")                                   # 1
        client.remote_topics("A")                                      # {"A.orders", ...}
        client.remote_consumer_offsets(re.compile("shop-.*"), "A")     # by group

These read what the mirror has written to topics on B, and work on MM2's mirrors too. FlowOffsets
translates any offset exactly, from Heliograph's ledger:

    from heliograph.client import FlowOffsets
    from heliograph.config import load

    with FlowOffsets(load(Path("mm2.properties")).flows[0]) as offsets:
        offsets.to_target("orders", 0, 495).offset
"""

from heliograph.client.mirror import MirrorClient, MirrorClientError, OffsetAndMetadata
from heliograph.client.offsets import FlowOffsets, TranslationError
from heliograph.client.remote_cluster import (
    checkpoint_topics,
    heartbeat_topics,
    replication_hops,
    translate_offsets,
    upstream_clusters,
)
from heliograph.model import TopicPartition

__all__ = [
    "FlowOffsets",
    "MirrorClient",
    "MirrorClientError",
    "OffsetAndMetadata",
    "TopicPartition",
    "TranslationError",
    "checkpoint_topics",
    "heartbeat_topics",
    "replication_hops",
    "translate_offsets",
    "upstream_clusters",
]
