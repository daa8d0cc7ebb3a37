"""MM2's RemoteClusterUtils: one question each, with a client of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import overload

from heliograph.client.mirror import DEFAULT_TIMEOUT_SECONDS, MirrorClient, Offsets
from heliograph.config.key import BoundedPattern

__all__ = [
    "checkpoint_topics",
    "heartbeat_topics",
    "replication_hops",
    "translate_offsets",
    "upstream_clusters",
]


def replication_hops(properties: Mapping[str, str], upstream_alias: str) -> int:
    """See MirrorClient.replication_hops."""
    with MirrorClient(properties) as client:
        return client.replication_hops(upstream_alias)


def heartbeat_topics(properties: Mapping[str, str]) -> set[str]:
    """See MirrorClient.heartbeat_topics."""
    with MirrorClient(properties) as client:
        return client.heartbeat_topics()


def checkpoint_topics(properties: Mapping[str, str]) -> set[str]:
    """See MirrorClient.checkpoint_topics."""
    with MirrorClient(properties) as client:
        return client.checkpoint_topics()


def upstream_clusters(properties: Mapping[str, str]) -> set[str]:
    """See MirrorClient.upstream_clusters."""
    with MirrorClient(properties) as client:
        return client.upstream_clusters()


@overload
def translate_offsets(
    properties: Mapping[str, str],
    remote_alias: str,
    group: str,
    timeout: float = DEFAULT_TIMEOUT_SECONDS,
) -> Offsets: ...


@overload
def translate_offsets(
    properties: Mapping[str, str],
    remote_alias: str,
    group: re.Pattern[str] | BoundedPattern,
    timeout: float = DEFAULT_TIMEOUT_SECONDS,
) -> dict[str, Offsets]: ...


def translate_offsets(
    properties: Mapping[str, str],
    remote_alias: str,
    group: str | re.Pattern[str] | BoundedPattern,
    timeout: float = DEFAULT_TIMEOUT_SECONDS,
) -> Offsets | dict[str, Offsets]:
    """See MirrorClient.remote_consumer_offsets; the arguments are in RemoteClusterUtils' order."""
    with MirrorClient(properties) as client:
        return client.remote_consumer_offsets(group, remote_alias, timeout)
