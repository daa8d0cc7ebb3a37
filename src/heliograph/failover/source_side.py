"""The source of a flow, which may be gone, half gone, or back."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from heliograph.config import FlowConfig
from heliograph.model import TopicPartition
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import WireError

__all__ = ["ANSWER_SECONDS", "SourceSeen", "see_source"]

#: How long a source may take to answer before it counts as one that does not.
ANSWER_SECONDS = 4.0
_REQUEST_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class SourceSeen:
    """What a source answered when it was asked once.

    Attributes:
        answers: whether any broker did.
        why_not: the error, if none did.
        ends: where partitions end, of leaders that answered.
        silent: partitions of which nobody said where they end.
        cluster_id: empty if none answered.
    """

    answers: bool
    why_not: str = ""
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    silent: frozenset[TopicPartition] = frozenset()
    cluster_id: str = ""

    @property
    def healthy(self) -> bool:
        """Whether everything that was asked was answered."""
        return self.answers and not self.silent


def see_source(config: FlowConfig, partitions: Collection[TopicPartition]) -> SourceSeen:
    """Ask the source where partitions end. Takes seconds at most, whatever the source does."""
    found: list[SourceSeen] = []
    thread = threading.Thread(
        target=lambda: found.append(_ask(config, partitions)), name="asking the source", daemon=True
    )
    thread.start()
    thread.join(ANSWER_SECONDS)
    if found:
        return found[0]
    return SourceSeen(False, f"no answer within {ANSWER_SECONDS:.0f} s")


def _ask(config: FlowConfig, partitions: Collection[TopicPartition]) -> SourceSeen:
    client = ClusterClient(
        config.source_admin, f"{config.flow}|handover-source", request_timeout=_REQUEST_SECONDS
    )
    with client:
        try:
            metadata = client.metadata(sorted({p.topic for p in partitions}))
        except WireError as error:
            return SourceSeen(False, str(error))
        committed = config.isolation_level == "read_committed"
        try:
            ends = admin.list_offsets(
                client, metadata, sorted(partitions), admin.LATEST, read_committed=committed
            )
        except WireError:
            ends = {}
        silent = frozenset(partitions) - ends.keys()
        return SourceSeen(True, "", ends, silent, metadata.cluster_id)
