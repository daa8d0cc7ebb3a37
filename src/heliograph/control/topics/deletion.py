"""Source topics that were deleted: what becomes of their remote topics. Runs in the driver.

``heliograph.on.topic.deleted`` says it: keep them, or delete them too. Nothing is deleted on a
suspicion. A source topic counts as deleted if the source cluster, whose id must be the one that
the ledger is about, says twice in a row that

- no topic has the id under which the ledger has it as mirrored into this very target topic,
- no topic has its name (one that was created again is the data path's matter),
- other topics that were mirrored are still there (a source that lost all of them is no cluster
  where somebody deleted a topic, but one that was lost and set up again).

What filters exclude now, what we may not see, and what cannot be asked for is never deleted. Nor
is a remote topic that holds records of others (see `foreign_records`).
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from heliograph.config import FlowConfig
from heliograph.control.topics.config_rules import CONFIGS
from heliograph.control.topics.foreign_records import Extent, extent_of, foreign_records_in
from heliograph.control.topics.refresh import TopicPlan
from heliograph.errors import HeliographError
from heliograph.ledger.codec import Place
from heliograph.ledger.flow_ledger import FlowLedger
from heliograph.ledger.memory import topic_subject
from heliograph.ledger.mirrored import mirrored_topics
from heliograph.model import PartitionEvent, TopicPartition
from heliograph.policy import TopicSelection
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import BrokerError, WireError
from heliograph.wire.metadata import NO_ID, Metadata, TopicInfo
from heliograph.wire.rights import denied, missing_right

log = logging.getLogger(__name__)

#: What `SyncedMemory` calls the remote topics whose fate was told.
DELETED = "deleted"

#: Enough to see that the source is still the cluster that it was.
_WITNESSES = 20
#: A topic that should be deleted and cannot be is looked at again after this long.
_AGAIN_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    """A source topic that is gone, and its remote topic.

    Attributes:
        doubt: why the source's word is not enough to delete anything; empty if it is.
    """

    topic: str
    remote: str
    remote_id: uuid.UUID
    source_ids: frozenset[uuid.UUID]
    doubt: str = ""


@dataclass(frozen=True, slots=True)
class Fate:
    """What is to become, or became, of a remote topic.

    Attributes:
        reason: why it is somebody's concern.
        text: the whole story, for people.
        size: how much it holds.
        deletes: whether it is deleted.
        why: what keeps it although it should be deleted.
        at: when this was decided; monotonic.
    """

    reason: str
    text: str
    size: str
    deletes: bool = False
    why: str = ""
    at: float = 0.0


class DeletionWatch:
    """Looks for deleted topics of one flow; `watch` is called by one job."""

    def __init__(
        self,
        config: FlowConfig,
        source: ClusterClient,
        target: ClusterClient,
        ledger: FlowLedger,
        topics: Callable[[], TopicPlan],
        happened: Callable[[Sequence[PartitionEvent]], object] | None = None,
    ) -> None:
        """``happened`` is told of deleted topics; without it, the log is."""
        self._happened = happened or _warn
        self._flow = config.flow
        self._policy = config.on_topic_deleted
        self._timeout_ms = config.admin_timeout_ms
        self._source = source
        self._target = target
        self._topics = topics
        self._selection = TopicSelection(config)
        self._ledger = ledger.store
        self._memory = ledger.memory
        self._seen: set[DeletedTopic] = set()
        self._fates: dict[DeletedTopic, Fate] = {}
        self._details: dict[str, str] = {}

    def details(self) -> Mapping[str, str]:
        """What became of the remote topics of deleted topics, by the name on the source."""
        return self._details

    def watch(self) -> None:
        """Look once; what is seen for the second time in a row is dealt with."""
        found = set(self.look())
        again, self._seen = found & self._seen, found
        self._fates = {gone: fate for gone, fate in self._fates.items() if gone in again}
        details = {}
        for gone in sorted(again, key=lambda g: g.topic):
            known = self._fates.get(gone)
            due = known is None or (known.why and time.monotonic() - known.at > _AGAIN_SECONDS)
            try:
                fate = self._fates[gone] = self._carry_out(gone) if due else self._fates[gone]
                details[gone.topic] = fate.text
            except WireError as error:
                # The next run tries again; the other topics do not wait for this one.
                details[gone.topic] = str(error)
        self._details = details

    # -- looking ------------------------------------------------------------------------------

    def look(self) -> list[DeletedTopic]:
        """Mirrored topics that the source does not have any more, and whose copies are there."""
        plan = self._topics()
        self._ledger.refresh()
        if plan.source is None or self._ledger.signature is None:
            return []
        mirrored = mirrored_topics(self._ledger)
        missing: dict[tuple[str, uuid.UUID], set[uuid.UUID]] = {}
        for m in mirrored:
            if m.topic not in plan.source.topics and self._selection.includes(m.topic):
                missing.setdefault((m.topic, m.target_id), set()).add(m.source_id)
        copies = self._copies(missing)
        if not copies:
            return []
        self._require_source(self._ledger.signature.source_cluster)
        here = {t.topic_id for t in plan.source.topics.values()} - {NO_ID}
        others = {m.source_id for m in mirrored if m.source_id in here}
        witnesses = set(islice(others, _WITNESSES))
        asked = {i for key in copies for i in missing[key]}
        absent = admin.absent_topics(self._source, {topic for topic, _ in copies})
        unknown = admin.unknown_topic_ids(self._source, asked | witnesses)
        doubt = self._doubt(witnesses - unknown)
        tells = admin.tells_topic_ids(self._source)
        return [
            DeletedTopic(topic, remote.name, remote.topic_id, frozenset(ids), doubt)
            for (topic, target_id), remote in copies.items()
            if topic in absent and ((ids := missing[topic, target_id]) <= unknown or not tells)
        ]

    def _copies(
        self, keys: Iterable[tuple[str, uuid.UUID]]
    ) -> dict[tuple[str, uuid.UUID], TopicInfo]:
        """The target topics that topics were mirrored into, where they are still there."""
        policy, source = self._selection.policy, self._flow.source
        names = {key: policy.format_remote_topic(source, key[0]) for key in keys}
        if not names:
            return {}
        topics = self._target.metadata(sorted(set(names.values()))).topics
        return {
            key: topics[name] for key, name in names.items()
            if name in topics and topics[name].topic_id == key[1]
        }  # fmt: skip

    def _require_source(self, cluster_id: str) -> None:
        found = self._source.cluster_id()
        if found != cluster_id:
            raise HeliographError(
                "source.other-cluster",
                f"cluster {self._flow.source} is now {found}, but {cluster_id} was mirrored:"
                " what was deleted there cannot be told",
                f"check {self._flow.source}.bootstrap.servers",
            )

    def _doubt(self, witnesses: set[uuid.UUID]) -> str:
        source = self._flow.source
        if not admin.tells_topic_ids(self._source):
            return f"brokers of cluster {source} cannot tell that a topic id is gone (before 3.1)"
        if not witnesses:
            return f"cluster {source} has no mirrored topic left: it may have lost its topics"
        return ""

    # -- keeping and deleting -----------------------------------------------------------------

    def fate(self, gone: DeletedTopic) -> Fate:
        """What the policy means for a remote topic now; changes nothing."""
        metadata = self._target.metadata([gone.remote])
        extent = extent_of(self._target, metadata, gone.remote)
        count = sum(end - start for start, end in extent.values())
        size = f"{count} offset(s) in {len(extent)} partition(s)"
        policy = f"(heliograph.on.topic.deleted={self._policy})"
        event = f"source topic {gone.topic} {'is gone' if gone.doubt else 'was deleted'}"
        event += f" on {self._flow.source}"
        where = f"{gone.remote} on {self._flow.target}"
        reason = f"{event} {policy}"
        if self._policy == "keep":
            return Fate(reason, f"{event}; {where} is kept, with {size} {policy}", size)
        why = gone.doubt or self._stranger(gone, metadata, extent)
        if why:
            text = f"{event}; {where} is kept all the same, with {size} {policy}: {why}"
            return Fate(reason, text, size, why=why)
        return Fate(reason, f"{event}; {where} is deleted, with {size} {policy}", size, True)

    def _stranger(self, gone: DeletedTopic, metadata: Metadata, extent: Extent) -> str:
        ledger = self._ledger
        ledger.refresh()
        places: dict[TopicPartition, Place] = {}
        for partition in extent:
            generations = [
                place
                for source_id in gone.source_ids
                for place in [Place(gone.topic, partition.partition, source_id, gone.remote_id)]
                if ledger.at(place).runs
            ]
            if generations:
                places[partition] = max(generations, key=lambda p: ledger.at(p).runs[-1].target)
        return foreign_records_in(self._target, metadata, extent, ledger, places)

    def _carry_out(self, gone: DeletedTopic) -> Fate:
        fate = replace(self.fate(gone), at=time.monotonic())
        if fate.deletes:
            topics = {gone.remote_id: gone.remote}
            failed = admin.delete_topics(self._target, topics, self._timeout_ms)
            if failed:
                why = self._explain(gone, failed[gone.remote_id])
                text = f"{fate.text}, but that failed: {why}"
                fate = replace(fate, text=text, deletes=False, why=why)
        self._tell(gone, fate)
        return fate

    def _explain(self, gone: DeletedTopic, error: BrokerError) -> str:
        if denied(error.code):
            return missing_right(self._target.settings, "Delete", "topic", gone.remote)
        return str(error)

    def _tell(self, gone: DeletedTopic, fate: Fate) -> None:
        """An event, once for each fate of each topic, also across restarts."""
        self._memory.refresh()
        subject = topic_subject(gone.remote, gone.remote_id)
        partition = TopicPartition(gone.topic, 0)
        event = PartitionEvent(
            str(self._flow), partition, "source.deleted", fate.text, at=time.time()
        )
        if fate.deletes:
            self._happened([event])
            self._memory.remember(DELETED, {subject: None})
            self._memory.remember(CONFIGS, {subject: None})
            return
        told = {"policy": self._policy, "why": fate.why}
        if self._memory.recall(DELETED).get(subject) != told:
            self._happened([event])
            self._memory.remember(DELETED, {subject: told})


def _warn(events: Sequence[PartitionEvent]) -> None:
    for event in events:
        log.warning("%s: %s", event.flow, event.text)
