"""What brokers tell about themselves: release, settings, the controller's clock. Runs in commands.

Nothing here changes a cluster.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version

from kafka.protocol.admin import DescribeConfigsRequest, DescribeQuorumRequest
from kafka.protocol.broker_version_data import infer_broker_version_from_api_versions
from kafka.protocol.metadata import ApiVersionsRequest

from heliograph.wire.cluster import ClusterClient
from heliograph.wire.connection import Connection
from heliograph.wire.errors import check
from heliograph.wire.rights import denied, missing_right

__all__ = ["Clock", "broker_settings", "controller_clock", "features", "release", "round_trip"]

_BROKER_RESOURCE = 4
_METADATA_TOPIC = "__cluster_metadata"
#: The first DescribeQuorum version that tells times (KIP-836).
_QUORUM_WITH_TIMES = 1
_API_VERSIONS, _ASKED_AT = 18, 0
#: The first ApiVersions version that tells features (KIP-584).
_WITH_FEATURES = 3


@dataclass(frozen=True, slots=True)
class Clock:
    """How far a clock is ahead of this machine's, in seconds, and how wrong that may be."""

    ahead: float
    uncertainty: float


def release(versions: Mapping[int, tuple[int, int]]) -> tuple[int, ...]:
    """The oldest release of Kafka that offers these versions of APIs, e.g. (4, 3)."""
    found: tuple[int, ...] = infer_broker_version_from_api_versions(dict(versions))
    return found


def features(connection: Connection, timeout: float) -> dict[str, int]:
    """The features that a cluster has turned on, with their levels; none before Kafka 2.7."""
    request = ApiVersionsRequest(
        client_software_name="heliograph", client_software_version=version("heliograph")
    )
    _, newest = connection.versions.get(request.API_KEY, (0, 0))
    if newest < _WITH_FEATURES:
        return {}
    response = connection.request(request, timeout, version=_WITH_FEATURES)
    check(response.error_code, f"asking {connection.address} for its features")
    return {f.name: f.max_version_level for f in response.finalized_features or ()}


def round_trip(connection: Connection, timeout: float, times: int = 5) -> float:
    """The quickest of so many small requests over a connection, in seconds: the others waited."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        connection.send(_API_VERSIONS, _ASKED_AT, False, [])
        connection.wait(timeout)
        took.append(time.perf_counter() - began)
    return min(took)


def broker_settings(client: ClusterClient, node: int, names: Sequence[str]) -> dict[str, str]:
    """Settings of a broker as they hold now; those that it does not know are absent."""
    request = DescribeConfigsRequest
    message = request(
        resources=[
            request.DescribeConfigsResource(
                resource_type=_BROKER_RESOURCE,
                resource_name=str(node),
                configuration_keys=list(names),
            )
        ],
        include_synonyms=False,
        include_documentation=False,
    )
    (result,) = client.request(message, node).results
    right = None
    if denied(result.error_code):
        right = missing_right(client.settings, "DescribeConfigs", "cluster")
    what = f"reading the settings of broker {node} of cluster {client.alias}"
    check(result.error_code, what, right or result.error_message)
    return {c.name: c.value for c in result.configs if c.value is not None}


def controller_clock(client: ClusterClient) -> Clock | None:
    """The clock of the active controller; None where the cluster does not tell it.

    KRaft's leader says when it was last in touch with each voter, and of itself: now. Clusters with
    ZooKeeper, and before 3.3, do not tell.
    """
    request = DescribeQuorumRequest
    if not client.supports(-1, request.API_KEY, _QUORUM_WITH_TIMES):
        return None
    kind = request.TopicData
    message = request(
        topics=[
            kind(
                topic_name=_METADATA_TOPIC, partitions=[kind.PartitionData(partition_index=0)]
            )
        ]
    )  # fmt: skip
    client.supports(-1, request.API_KEY, 0)  # the connection is there before the time is taken
    began = time.time()
    response = client.request(message)
    ended = time.time()
    right = None
    if denied(response.error_code):
        right = missing_right(client.settings, "Describe", "cluster")
    check(response.error_code, f"asking for the quorum of cluster {client.alias}", right)
    (partition,) = response.topics[0].partitions
    check(partition.error_code, f"asking for the quorum of cluster {client.alias}")
    for voter in partition.current_voters:
        if voter.replica_id == partition.leader_id and voter.last_fetch_timestamp > 0:
            middle, width = (began + ended) / 2, (ended - began) / 2
            return Clock(voter.last_fetch_timestamp / 1000 - middle, width + 0.001)
    return None
