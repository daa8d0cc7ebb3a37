"""Replication policies: how a topic of the source is named on the target, and read back.

They behave as MM2's DefaultReplicationPolicy and IdentityReplicationPolicy of 4.4.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

__all__ = [
    "DefaultReplicationPolicy",
    "IdentityReplicationPolicy",
    "ReplicationPolicy",
    "is_own_topic",
    "ledger_source",
    "ledger_topic",
    "quarantine_topic",
]

_HEARTBEATS = "heartbeats"
_DOT = "."


@runtime_checkable
class ReplicationPolicy(Protocol):
    """Names of remote and internal topics. Pure: the same question has the same answer.

    An own policy subclasses it and writes the first three methods; the others have MM2's defaults.
    """

    __slots__ = ()

    @abstractmethod
    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        """Name on the target of ``topic`` of the source."""

    @abstractmethod
    def topic_source(self, topic: str) -> str | None:
        """Alias of the cluster that a remote topic came from; None if it is not remote."""

    @abstractmethod
    def upstream_topic(self, topic: str) -> str | None:
        """Name on the cluster it came from, one hop back; None if it is not remote."""

    def original_topic(self, topic: str) -> str:
        """Name on the cluster where it began, all hops back."""
        # A loop, not MM2's recursion: a name of 249 separators would be 249 frames deep.
        while True:
            upstream = self.upstream_topic(topic)
            if upstream is None or upstream == topic:
                return topic
            topic = upstream

    def heartbeats_topic(self) -> str:
        """Name of the topic that heartbeats are written to."""
        return _HEARTBEATS

    def offset_syncs_topic(self, other_alias: str) -> str:
        """Name of the offset-syncs topic; ``other_alias`` is the cluster that does not hold it."""
        return f"mm2-offset-syncs.{other_alias}.internal"

    def checkpoints_topic(self, alias: str) -> str:
        """Name, on the target, of the checkpoints topic of source ``alias``."""
        return f"{alias}.checkpoints.internal"

    def is_heartbeats_topic(self, topic: str) -> bool:
        """Whether ``topic`` is a heartbeats topic, local or remote."""
        return self.original_topic(topic) == self.heartbeats_topic()

    def is_checkpoints_topic(self, topic: str) -> bool:
        """Whether ``topic`` is named like a checkpoints topic."""
        return topic.endswith(".checkpoints.internal")

    def is_mm2_internal_topic(self, topic: str) -> bool:
        """Whether ``topic`` is internal to MM2 or Heliograph."""
        return (
            (topic.startswith("mm2") and topic.endswith(".internal"))
            or self.is_checkpoints_topic(topic)
            or is_own_topic(topic)
        )

    def is_internal_topic(self, topic: str) -> bool:
        """Whether ``topic`` is internal to MM2, Heliograph or Kafka, hence never mirrored."""
        return topic.startswith(("__", _DOT)) or self.is_mm2_internal_topic(topic)


@dataclass(frozen=True, slots=True)
class DefaultReplicationPolicy(ReplicationPolicy):
    """Remote topics are ``<alias><separator><topic>``.

    Any name that contains the separator therefore looks remote, as in MM2.

    Attributes:
        separator: not empty.
        internal_separator_enabled: whether internal topics use it too (KIP-949), else dots.
    """

    separator: str = _DOT
    internal_separator_enabled: bool = True

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        """See ReplicationPolicy."""
        return source_alias + self.separator + topic

    def topic_source(self, topic: str) -> str | None:
        """See ReplicationPolicy."""
        source, found, rest = topic.partition(self.separator)
        # Java's split drops trailing empty parts: "a." and "a.." have one part, so are not remote.
        while rest.startswith(self.separator):
            rest = rest[len(self.separator) :]
        return source if found and rest else None

    def upstream_topic(self, topic: str) -> str | None:
        """See ReplicationPolicy."""
        source = self.topic_source(topic)
        return None if source is None else topic[len(source) + len(self.separator) :]

    def offset_syncs_topic(self, other_alias: str) -> str:
        """See ReplicationPolicy."""
        return f"mm2-offset-syncs{self._internal_separator}{other_alias}{self._internal_suffix}"

    def checkpoints_topic(self, alias: str) -> str:
        """See ReplicationPolicy."""
        return alias + self._checkpoints_suffix

    def is_checkpoints_topic(self, topic: str) -> bool:
        """See ReplicationPolicy."""
        return topic.endswith(self._checkpoints_suffix)

    def is_mm2_internal_topic(self, topic: str) -> bool:
        """See ReplicationPolicy."""
        return (
            (topic.startswith("mm2") and topic.endswith(self._internal_suffix))
            or self.is_checkpoints_topic(topic)
            or is_own_topic(topic)
        )

    @property
    def _internal_separator(self) -> str:
        return self.separator if self.internal_separator_enabled else _DOT

    @property
    def _internal_suffix(self) -> str:
        return f"{self._internal_separator}internal"

    @property
    def _checkpoints_suffix(self) -> str:
        return f"{self._internal_separator}checkpoints{self._internal_suffix}"


@dataclass(frozen=True, slots=True)
class IdentityReplicationPolicy(DefaultReplicationPolicy):
    """Remote topics keep their names; only heartbeats are named as by the default policy.

    Attributes:
        source_alias: the flow's source, given as the origin of every topic; None if unknown.
    """

    source_alias: str | None = None

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        """See ReplicationPolicy."""
        if self._looks_like_heartbeat(topic):
            return DefaultReplicationPolicy.format_remote_topic(self, source_alias, topic)
        return topic

    def topic_source(self, topic: str) -> str | None:
        """See ReplicationPolicy. The name does not tell, so it is the flow's source for all."""
        if self._looks_like_heartbeat(topic):
            return DefaultReplicationPolicy.topic_source(self, topic)
        return self.source_alias

    def upstream_topic(self, topic: str) -> str | None:
        """See ReplicationPolicy."""
        if self._looks_like_heartbeat(topic):
            source = DefaultReplicationPolicy.topic_source(self, topic)
            return None if source is None else topic[len(source) + len(self.separator) :]
        return topic

    @staticmethod
    def _looks_like_heartbeat(topic: str) -> bool:
        return topic.endswith(_HEARTBEATS)


def ledger_topic(source_alias: str) -> str:
    """Name, on the target, of the flow's ledger. Dots whatever the separator, as Connect's own."""
    return f"mm2-ledger.{source_alias}.internal"


def ledger_source(topic: str) -> str | None:
    """The source alias that a topic is the ledger of; None if it is no ledger."""
    alias = topic.removeprefix("mm2-ledger.").removesuffix(".internal")
    return alias if alias and ledger_topic(alias) == topic else None


def quarantine_topic(source_alias: str) -> str:
    """Name, on the target, of the topic for records that it did not take."""
    return f"mm2-quarantine.{source_alias}.internal"


def is_own_topic(topic: str) -> bool:
    """Whether ``topic`` is named like a ledger or a quarantine."""
    return topic.startswith(("mm2-ledger.", "mm2-quarantine.")) and topic.endswith(".internal")
