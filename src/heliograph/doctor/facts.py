"""What is known of a file, this machine, the clusters and the flows. Pure values.

What could not be found out is `Missing`, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from heliograph.claims.log import Claim
from heliograph.config import FlowConfig
from heliograph.config.problems import Problem
from heliograph.control.topics.preview import TopicPreview
from heliograph.control.topics.refresh import Comparison
from heliograph.doctor.findings import Missing
from heliograph.ledger.codec import Signature
from heliograph.model import ClientSettings, TopicPartition
from heliograph.wire.configs import TopicConfigs
from heliograph.wire.inspection import Clock

__all__ = [
    "Behind",
    "BrokerFacts",
    "Certificate",
    "ClusterFacts",
    "FileFacts",
    "FlowFacts",
    "FolderFacts",
    "Identity",
    "InternalTopic",
    "LedgerFacts",
    "MachineFacts",
    "MirrorsFacts",
    "Reached",
    "RightsFacts",
    "Sample",
    "SourceLogs",
    "TopicsFacts",
]


_NOT_ASKED = Missing("its brokers are not known")


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What is wrong with the file; ``flows`` counts those that mirror."""

    errors: Sequence[Problem] = ()
    warnings: Sequence[Problem] = ()
    flows: int = 0


@dataclass(frozen=True, slots=True)
class FolderFacts:
    """A folder that Heliograph writes to.

    Attributes:
        free_bytes: on its disk.
        writable: by this user.
        others_write: whether other users may write to it.
    """

    path: str
    free_bytes: int
    writable: bool
    others_write: bool = False


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """This machine, as far as a mirror depends on it.

    Attributes:
        java: the program and its version, or why there is none.
        memory_bytes: of the machine or container; ``available_bytes`` of them are free.
        descriptors: how many files and sockets a process may have open; -1: no limit.
        connections: how many connections to brokers one process of the mirror may have open.
        buffer_bytes: what a lease may hold in memory; a lease runs on each of ``cores``.
        listen: the address of --listen and why it cannot be used, if it cannot; None: not asked.
    """

    python: tuple[int, int]
    java: str | Missing
    memory_bytes: int
    available_bytes: int
    cores: int
    descriptors: int
    buffer_bytes: int
    cache: FolderFacts
    temporary: FolderFacts
    listen: tuple[str, str] | None = None
    connections: int = 0


@dataclass(frozen=True, slots=True)
class Certificate:
    """Whose it is, and for how many seconds from now it is valid; negative: it has expired."""

    subject: str
    seconds_left: float


@dataclass(frozen=True, slots=True)
class Reached:
    """A broker that answered.

    Attributes:
        round_trip: seconds from a small request to its answer.
        release: the oldest release of Kafka that offers what it offers.
        certificate: of the broker, with TLS.
        features: that the cluster has turned on, with their levels.
    """

    round_trip: float
    release: tuple[int, ...]
    certificate: Certificate | None = None
    features: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """A broker at the address that it advertises to us.

    Attributes:
        addresses: those that its name has.
        others: its other advertised listeners, for other clients: each as it is configured, and why
            it cannot be connected to from here; empty if it can.
    """

    node: int
    host: str
    port: int
    addresses: tuple[str, ...] | Missing
    reached: Reached | Missing
    others: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Identity:
    """Which cluster it is, its brokers, and how many replicas of partitions they have."""

    cluster_id: str
    brokers: Mapping[int, tuple[str, int]]
    replicas: int


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """A cluster of the file.

    Attributes:
        bootstrap: each bootstrap server, and why it cannot be used; empty if it can.
        logins: each kind of client (admin, consumer ...), and why it is not let in.
        settings: of a broker, by name.
        clock: of the active controller; None where the cluster does not tell.
        certificate: that our client shows; None if it has none, or in a JKS store.
    """

    alias: str
    client: ClientSettings
    bootstrap: Mapping[str, str]
    identity: Identity | Missing
    logins: Mapping[str, str] = field(default_factory=dict)
    brokers: Sequence[BrokerFacts] = ()
    settings: Mapping[str, str] | Missing = _NOT_ASKED
    clock: Clock | Missing | None = _NOT_ASKED
    certificate: Certificate | Missing | None = None


@dataclass(frozen=True, slots=True)
class TopicsFacts:
    """The topics of a flow on both sides, and their properties.

    Attributes:
        absent: names in ``topics`` of which the source says that there is no such topic.
        hidden: those that it does not show to us.
        coming: topics to mirror that the flow in the opposite direction will make.
    """

    compared: Comparison
    source_configs: TopicConfigs
    target_configs: TopicConfigs
    absent: frozenset[str] = frozenset()
    hidden: frozenset[str] = frozenset()
    coming: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """An internal topic of a flow. ``partitions`` is 0 if it is not there yet.

    ``key`` is the key with its replication factor, and ``wanted`` how it would be created.
    """

    alias: str
    name: str
    key: str
    replication_factor: int
    wanted: Mapping[str, str]
    partitions: int = 0
    replicas: int = 0
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RightsFacts:
    """What the brokers say that our clients may do, as codes of AclOperation.

    Clients are named as in FlowConfig: ``source_client``, ``target_admin`` ... What is not known is
    absent, and a cluster that tells nothing has an empty set.

    Attributes:
        clusters: by client.
        topics: by client, then by topic.
        groups: on the target, by group.
        selected_groups: groups of the source that the flow selects, as far as it shows them.
        hidden_groups: groups on the target that we may not describe.
        groups_known: whether the target has groups at all; None if it cannot be seen.
        authorizer: whether the source has ACLs at all; None if we may not know.
    """

    clusters: Mapping[str, frozenset[int]]
    topics: Mapping[str, Mapping[str, frozenset[int]]]
    groups: Mapping[str, frozenset[int]] = field(default_factory=dict)
    hidden_groups: frozenset[str] = frozenset()
    groups_known: bool | None = True
    authorizer: bool | None = False
    selected_groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Behind:
    """How many records of a partition are not mirrored yet, and how old the first of them is."""

    records: int
    age_seconds: float | None


@dataclass(frozen=True, slots=True)
class LedgerFacts:
    """What the target's logs and the flow's ledger say.

    Attributes:
        claims: of mirrors that stand; with whether that process has certainly ended.
        behind: of partitions that were mirrored.
        begun: partitions that were mirrored.
        unbegun: of partitions that were never mirrored and hold records: all of them wait.
        filled: partitions that were never mirrored though their target holds records.
    """

    signature: Signature | None = None
    claims: Sequence[tuple[Claim, bool]] = ()
    behind: Mapping[TopicPartition, Behind] = field(default_factory=dict)
    begun: frozenset[TopicPartition] = frozenset()
    filled: frozenset[TopicPartition] = frozenset()
    unbegun: Mapping[TopicPartition, Behind] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MirrorsFacts:
    """Signs of other mirrors.

    Attributes:
        mm2: why MM2 is taken to run, or empty.
        mm2_hidden: whether its group may be there without being shown to us.
        heartbeat_age: seconds since the last heartbeat of the flow on its target.
        known_to_mm2: partitions that MM2 has stored a position of.
    """

    mm2: str = ""
    mm2_hidden: bool = False
    heartbeat_age: float | None = None
    known_to_mm2: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class Sample:
    """What was fetched of the source, and how long that took."""

    partition: TopicPartition
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class SourceLogs:
    """The source partitions of a flow.

    Attributes:
        starts: where each log begins.
        records: how many offsets each log has.
        recent: how many of them were written in the last ``recent_seconds``.
        sizes: bytes of each log; partitions of which the brokers do not tell are absent.
    """

    starts: Mapping[TopicPartition, int]
    records: Mapping[TopicPartition, int]
    recent: Mapping[TopicPartition, int]
    recent_seconds: float
    sizes: Mapping[TopicPartition, int]

    def bytes_of(self, partition: TopicPartition, records: int) -> float | None:
        """What so many records of a partition take, by the mean of its log; None if not told."""
        size, held = self.sizes.get(partition), self.records.get(partition, 0)
        return None if size is None or not held else size * records / held

    def bytes_per_second(self, partition: TopicPartition) -> float:
        """What is written to a partition now; 0 if not told."""
        written = self.bytes_of(partition, self.recent.get(partition, 0))
        return (written or 0.0) / self.recent_seconds


@dataclass(frozen=True, slots=True)
class FlowFacts:
    """A flow that mirrors."""

    config: FlowConfig
    source: ClusterFacts
    target: ClusterFacts
    topics: TopicsFacts | Missing
    internal: Sequence[InternalTopic] | Missing
    rights: RightsFacts | Missing
    ledger: LedgerFacts | Missing
    mirrors: MirrorsFacts | Missing
    preview: TopicPreview | Missing
    sample: Sample | Missing | None
    logs: SourceLogs | Missing
