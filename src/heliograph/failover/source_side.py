"""The source of a flow, which may be gone, half gone, or back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from heliograph.config import FlowConfig
from heliograph.model import TopicPartition
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import WireError

__all__ = ["ANSWER_SECONDS", "SourceQuestion", "SourceSeen", "see_source"]

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
        starts: where they begin, of those that were not asked for by name.
        silent: partitions of which nobody said where they end.
        cluster_id: empty if none answered.
        asked_ms: when; what it took later is not in ``ends``.
    """

    answers: bool
    why_not: str = ""
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    silent: frozenset[TopicPartition] = frozenset()
    cluster_id: str = ""
    asked_ms: int = 0

    @property
    def healthy(self) -> bool:
        """Whether everything that was asked was answered."""
        return self.answers and not self.silent


def see_source(
    config: FlowConfig,
    partitions: Collection[TopicPartition],
    selected: Callable[[str], bool] | None = None,
) -> SourceSeen:
    """Ask the source where partitions end. Takes seconds at most, whatever the source does.

    With ``selected`` also all other partitions of the topics that it chooses.
    """
    return SourceQuestion(config, partitions, selected).answer()


class SourceQuestion:
    """The question of `see_source`, put at once; its answer may be fetched later."""

    def __init__(
        self,
        config: FlowConfig,
        partitions: Collection[TopicPartition],
        selected: Callable[[str], bool] | None = None,
    ) -> None:
        self._found: list[SourceSeen] = []
        self._until = time.monotonic() + ANSWER_SECONDS
        self._thread = threading.Thread(
            target=lambda: self._found.append(_ask(config, partitions, selected)),
            name="asking the source", daemon=True,
        )  # fmt: skip
        self._thread.start()

    def answer(self) -> SourceSeen:
        """What was answered within `ANSWER_SECONDS`."""
        self._thread.join(max(self._until - time.monotonic(), 0.0))
        if self._found:
            return self._found[0]
        return SourceSeen(False, f"no answer within {ANSWER_SECONDS:.0f} s")


def _ask(
    config: FlowConfig,
    partitions: Collection[TopicPartition],
    selected: Callable[[str], bool] | None,
) -> SourceSeen:
    client = ClusterClient(
        config.source_admin, f"{config.flow}|handover-source", request_timeout=_REQUEST_SECONDS
    )
    with client:
        named = sorted({p.topic for p in partitions})
        try:
            metadata = client.metadata(named if selected is None else None)
        except WireError as error:
            return SourceSeen(False, str(error))
        others = {
            TopicPartition(name, index)
            for name, topic in metadata.topics.items()
            if selected is not None and selected(name)
            for index in topic.partitions
        } - set(partitions)  # fmt: skip
        wanted = sorted({*partitions, *others})
        asked_ms = int(time.time() * 1000)
        try:
            starts = admin.list_offsets(client, metadata, sorted(others), admin.EARLIEST)
            # What is in open transactions, or behind them, is on the source's disks, too.
            ends = admin.list_offsets(client, metadata, wanted, admin.LATEST)
        except WireError:
            starts, ends = {}, {}
        silent = frozenset(wanted) - ends.keys()
        return SourceSeen(True, "", ends, starts, silent, metadata.cluster_id, asked_ms)
