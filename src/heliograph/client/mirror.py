"""MM2's MirrorClient: what a cluster's topics tell about the clusters that are mirrored to it.

Runs in other people's programs and in commands. Waits for answers; not thread-safe. Asks one
cluster only, the target: the sources may be gone.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Self, overload

from heliograph.batch.records import Record, decode
from heliograph.client.config import MirrorClientConfig
from heliograph.config.key import BoundedPattern
from heliograph.errors import HeliographError
from heliograph.mm2.formats import Checkpoint, decode_checkpoint_key
from heliograph.model import ClientSettings, TopicPartition
from heliograph.policy import ReplicationPolicy
from heliograph.wire import admin, log
from heliograph.wire.cluster import REQUEST_TIMEOUT_SECONDS, ClusterClient
from heliograph.wire.errors import BrokerError, WireError
from heliograph.wire.rights import denied, missing_right

__all__ = ["DEFAULT_TIMEOUT_SECONDS", "MirrorClient", "MirrorClientError", "OffsetAndMetadata"]

#: How long reading the checkpoints of a mirror may take if the caller does not say.
DEFAULT_TIMEOUT_SECONDS = 30.0
_PATIENCE_SECONDS = 5.0


class MirrorClientError(HeliographError):
    """The cluster does not answer, refuses, or has not what was asked for."""

    exit_code = 3


class NotMirrored(MirrorClientError):
    """The cluster answers, and has not what was asked for."""

    exit_code = 1


class OffsetAndMetadata(NamedTuple):
    """A committed position, as consumers commit it: the next offset to read."""

    offset: int
    metadata: str


Offsets = dict[TopicPartition, OffsetAndMetadata]


class MirrorClient:
    """Answers for one cluster; use it as a context manager, or close it.

    Args:
        properties: bootstrap.servers and security keys of the cluster, without an alias;
            ``admin.x`` and ``consumer.x`` win over ``x``. ``replication.policy.*`` as the mirror
            has it, and with IdentityReplicationPolicy ``source.cluster.alias``.
        origin: where they are from, for messages.

    Raises:
        ConfigErrors: everything that is wrong with ``properties``.
        MirrorClientError: by its methods, if the cluster does not answer or refuses.
    """

    def __init__(self, properties: Mapping[str, str], *, origin: str = "properties") -> None:
        config = MirrorClientConfig.of(properties, origin)
        self._policy = config.policy
        self._admin = ClusterClient(config.admin, "mirror-client|admin")
        self._consumer = ClusterClient(config.consumer, "mirror-client|consumer")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._admin.close()
        self._consumer.close()

    @property
    def replication_policy(self) -> ReplicationPolicy:
        """What tells remote topics from others."""
        return self._policy

    # -- topics -------------------------------------------------------------------------------

    def replication_hops(self, upstream_alias: str) -> int:
        """The least number of mirrors between cluster ``upstream_alias`` and this one.

        1 if it is mirrored directly; -1 if its heartbeats do not arrive here at all.
        """
        _require_text("upstream_alias", upstream_alias)
        found = (self._hops(topic, upstream_alias) for topic in self.heartbeat_topics())
        return min((hops for hops in found if hops is not None), default=-1)

    def upstream_clusters(self) -> set[str]:
        """Aliases of all clusters whose heartbeats arrive here, over any number of hops."""
        return {alias for topic in self.heartbeat_topics() for alias in self._sources(topic)}

    def heartbeat_topics(self) -> set[str]:
        """Heartbeats topics of this cluster: its own and mirrored ones."""
        return {t for t in self._topics() if self._policy.is_heartbeats_topic(t)}

    def checkpoint_topics(self) -> set[str]:
        """Checkpoints topics of this cluster, one for each source that is mirrored to it."""
        return {t for t in self._topics() if self._policy.is_checkpoints_topic(t)}

    def remote_topics(self, source: str | None = None) -> set[str]:
        """Topics that are mirrored to this cluster, internal ones excepted.

        Args:
            source: only those that come directly from this cluster.
        """
        found = {
            topic: self._policy.topic_source(topic)
            for topic in self._topics()
            if not self._policy.is_internal_topic(topic)
        }
        return {
            topic for topic, alias in found.items() if alias is not None and source in (None, alias)
        }

    def _topics(self) -> list[str]:
        def call() -> list[str]:
            topics = self._admin.metadata().topics
            return [name for name, topic in topics.items() if not topic.internal]

        try:
            return self._admin.retry(call, _PATIENCE_SECONDS)
        except WireError as error:
            raise MirrorClientError("client.unreachable", str(error)) from error

    def _hops(self, topic: str, alias: str) -> int | None:
        sources = enumerate(self._sources(topic), start=1)
        return next((hops for hops, source in sources if source == alias), None)

    def _sources(self, topic: str) -> Iterator[str]:
        """The clusters that a remote topic has come through, nearest first.

        Ends at the first one that comes again: a policy may not be able to tell them.
        """
        seen: set[str] = set()
        upstream: str | None = topic
        while upstream is not None:
            source = self._policy.topic_source(upstream)
            if source is None or source in seen:
                return
            yield source
            seen.add(source)
            upstream = self._policy.upstream_topic(upstream)

    # -- consumer groups ----------------------------------------------------------------------

    @overload
    def remote_consumer_offsets(
        self, group: str, remote_alias: str, timeout: float = DEFAULT_TIMEOUT_SECONDS
    ) -> Offsets: ...

    @overload
    def remote_consumer_offsets(
        self,
        group: re.Pattern[str] | BoundedPattern,
        remote_alias: str,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> dict[str, Offsets]: ...

    def remote_consumer_offsets(
        self,
        group: str | re.Pattern[str] | BoundedPattern,
        remote_alias: str,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> Offsets | dict[str, Offsets]:
        """Where consumer groups of a remote cluster go on, on this one: their last checkpoints.

        Args:
            group: the id of a group, or a compiled expression that has to match whole ids.
            remote_alias: the cluster that the groups consume on.
            timeout: most seconds for reading the checkpoints topic.

        Returns:
            Offsets by partition of this cluster, empty for a group without checkpoints; with an
            expression, those of every group that it matches.

        Raises:
            TypeError, ValueError: an argument is none of the above.
            MirrorClientError: there are no checkpoints of that cluster, or they could not be read
                in time. Java's MirrorClient returns what it has read by then; what is missing of
                it would look as if it had never been committed.
        """
        if not isinstance(group, str | re.Pattern | BoundedPattern):
            raise TypeError(f"group must be a group id or a compiled expression, not {group!r}")
        _require_text("remote_alias", remote_alias)
        if not isinstance(timeout, int | float) or isinstance(timeout, bool):
            raise TypeError(f"timeout must be a number of seconds, not {timeout!r}")
        if timeout <= 0:
            raise ValueError(f"timeout must be more than 0 seconds, not {timeout}")
        known = self._checkpoints(remote_alias, timeout)
        found: dict[str, Offsets] = {}
        for (name, topic, partition), checkpoint in known.items():
            if name == group if isinstance(group, str) else group.fullmatch(name):
                position = OffsetAndMetadata(checkpoint.downstream, checkpoint.metadata)
                found.setdefault(name, {})[TopicPartition(topic, partition)] = position
        return found.get(group, {}) if isinstance(group, str) else found

    def _checkpoints(
        self, remote_alias: str, timeout: float
    ) -> dict[tuple[str, str, int], Checkpoint]:
        deadline = time.monotonic() + timeout
        partition = TopicPartition(self._policy.checkpoints_topic(remote_alias), 0)
        known: dict[tuple[str, str, int], Checkpoint] = {}
        read = 0
        self._consumer.request_timeout = min(timeout, REQUEST_TIMEOUT_SECONDS)
        try:
            start = self._start_of(partition, min(timeout, _PATIENCE_SECONDS))
            for chunk in log.read_to_end(self._consumer, partition, start, timeout):
                if time.monotonic() > deadline:
                    break
                for record in decode(chunk):
                    read += 1
                    _take(record, known)
            else:
                return known
        except BrokerError as error:
            raise _refused(error, self._consumer.settings, partition.topic) from error
        except WireError as error:
            raise MirrorClientError("client.unreachable", str(error)) from error
        raise MirrorClientError(
            "client.timeout",
            f"only {read} records of {partition.topic} could be read in {timeout:g} s",
            "give it more time",
        )

    def _start_of(self, partition: TopicPartition, patience: float) -> int:
        """Where the checkpoints begin."""
        client, topic = self._consumer, partition.topic

        def call() -> int:
            metadata = client.metadata([topic])
            if topic not in metadata.topics:
                others = ", ".join(sorted(self.checkpoint_topics())) or "none at all"
                raise NotMirrored(
                    "client.no-checkpoints",
                    f"cluster {client.alias} has no topic {topic}, or hides it from us; it has"
                    f" {others}",
                    "name the source by its alias in the mirror's file, which must not disable"
                    " emit.checkpoints.enabled",
                )
            starts = admin.list_offsets(client, metadata, [partition], admin.EARLIEST)
            # A partition without a leader has no start; reading it waits for one.
            return starts.get(partition, 0)

        return client.retry(call, patience)


def _take(record: Record, known: dict[tuple[str, str, int], Checkpoint]) -> None:
    """One record of a checkpoints topic; what is none is passed over, as by MM2."""
    key = record.key or b""
    try:
        where = decode_checkpoint_key(key)
        if record.value:
            known[where] = Checkpoint.decode(key, record.value)
        else:
            known.pop(where, None)
    except ValueError:
        return


def _refused(error: BrokerError, settings: ClientSettings, topic: str) -> MirrorClientError:
    if denied(error.code):
        return MirrorClientError("client.denied", missing_right(settings, "Read", "topic", topic))
    return MirrorClientError("client.refused", str(error))


def _require_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be the alias of a cluster, not {value!r}")
    if not value:
        raise ValueError(f"{name} must be the alias of a cluster, not empty")
