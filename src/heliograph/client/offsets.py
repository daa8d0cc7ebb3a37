"""Offsets of a flow's source as offsets of its target and back, from the ledger.

Needs the target only: it answers while the source is gone, which is when it is asked. Where records
could have come back from the target, because names are the same on both sides, the source is asked
for the ledger of the opposite direction, if it is there. Runs in commands and in other people's
programs.
"""

from __future__ import annotations

import uuid
from typing import Self

from heliograph.config import FlowConfig
from heliograph.errors import HeliographError
from heliograph.ledger.codec import Place
from heliograph.ledger.handovers import RestingCuts
from heliograph.ledger.reverse import ReverseFlow, loops, without_reverse
from heliograph.ledger.store import LedgerStore
from heliograph.ledger.translation import MirroredPartition, Translation, Translator
from heliograph.model import TopicPartition
from heliograph.policy import ledger_topic, policy_from
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import ConnectionFailed, WireError
from heliograph.wire.metadata import Metadata

__all__ = ["FlowOffsets", "TranslationError"]

_PATIENCE_SECONDS = 10.0
#: The source may be gone: it is asked, not waited for.
_SOURCE_SECONDS = 5.0


class TranslationError(HeliographError):
    """There is nothing to translate by: the flow, topic or partition is not mirrored."""

    exit_code = 1


class FlowOffsets:
    """Exact translation for one flow; use it as a context manager, or close it.

    Topics are named as on the source, in both directions. Raises TranslationError for topics and
    partitions that the flow has not mirrored, and WireError if the target does not answer.
    """

    def __init__(self, config: FlowConfig) -> None:
        self._flow = config.flow
        self._policy = policy_from(config)
        self._client = ClusterClient(config.target_admin, f"{config.flow}|translate")
        self._topic = ledger_topic(config.flow.source)
        self._ledger = LedgerStore(self._client, self._topic)
        self._source = ClusterClient(
            config.source_admin, f"{config.flow}|translate", request_timeout=_SOURCE_SECONDS
        )
        self._reverse: ReverseFlow | None = None
        self._translator = Translator(
            self._client, self._ledger, self._source, lambda: self._reverse,
            RestingCuts(self._ledger.follower).at,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
        self._source.close()

    def remote_topic(self, topic: str) -> str:
        """The target's name of a source topic."""
        return self._policy.format_remote_topic(self._flow.source, topic)

    def to_target(self, topic: str, partition: int, offset: int) -> Translation:
        """Where a consumer that is at ``offset`` on the source goes on, on the target."""
        return self._look(topic, partition)[-1].to_target(offset)

    def to_source(self, topic: str, partition: int, offset: int) -> Translation:
        """Where a consumer that is at ``offset`` on the target goes on, on the source."""
        generations = self._look(topic, partition)
        begun = [g for g in generations if g.ledger.runs and g.ledger.runs[0].target <= offset]
        if begun and begun[-1] is not generations[-1]:
            note = f"of a topic {topic} that was deleted on {self._flow.source} since"
            return Translation(begun[-1].to_source(offset).offset, exact=False, note=note)
        return generations[-1].to_source(offset)

    def _look(self, topic: str, partition: int) -> list[MirroredPartition]:
        """What is known of a partition, for each source topic that was mirrored into it."""
        remote = self.remote_topic(topic)
        metadata = self._client.retry(
            lambda: self._client.metadata([remote, self._topic]), _PATIENCE_SECONDS
        )
        self._require(metadata, topic, partition)
        target = TopicPartition(remote, partition)
        target_id = metadata.topics[remote].topic_id
        self._ledger.refresh()
        here, away = self._look_back(topic)
        places = self._ledger.generations(topic, partition, target_id)
        # Nothing mirrored yet: a place that nobody has written about says so.
        known = here.topics.get(topic) if here is not None else None
        source_id = known.topic_id if known is not None else uuid.UUID(int=0)
        wanted = places or [Place(topic, partition, source_id, target_id)]
        found = self._translator.look(metadata, dict.fromkeys(wanted, target), here, away)
        if len(found) < len(wanted):
            raise ConnectionFailed(f"the leader of {target} on {self._flow.target} does not answer")
        return [found[place] for place in wanted]

    def _look_back(self, topic: str) -> tuple[Metadata | None, str]:
        """The source's topics, if a flow in the opposite direction may have a part in this one.

        If so, and the source does not answer, also what follows from that.
        """
        flow = self._flow
        if not loops(self._policy, topic, flow.source, flow.target):
            return None, ""
        try:
            here = self._source.metadata()
            if self._reverse is None:
                self._reverse = ReverseFlow(self._source, self._client.cluster_id())
            self._reverse.look(here)
        except WireError as error:
            self._reverse = None
            return None, without_reverse(flow, f"does not tell it ({error})")
        return here, ""

    def _require(self, metadata: Metadata, topic: str, partition: int) -> None:
        remote, there = self.remote_topic(topic), self._flow.target
        if self._topic not in metadata.topics:
            raise TranslationError(
                "translate.no-ledger",
                f"{self._flow} was never mirrored by Heliograph: {there} has no {self._topic}",
                "start it with: heliograph run FILE",
            )
        if remote not in metadata.topics:
            raise TranslationError(
                "translate.no-topic",
                f"{there} has no topic {remote}: {topic} is not mirrored by {self._flow}",
                f"name the topic as on {self._flow.source}, without the alias",
            )
        count = len(metadata.topics[remote].partitions)
        if partition not in metadata.topics[remote].partitions:
            raise TranslationError(
                "translate.no-partition",
                f"{remote} on {there} has no partition {partition}; it has {count}",
            )
