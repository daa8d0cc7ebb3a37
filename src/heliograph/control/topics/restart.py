"""Remote topics that are mirrored anew because their source is not what it was. Runs in the driver.

A partition whose source lost records, or was created again, fails with a code
(`copy.source_divergence`). Where the policy for that code is ``restart-topic``, its remote topic is
deleted, by id. The next refresh of topics creates it again, and what was never mirrored into a
topic of that id is mirrored from the start; checkpoints and group offsets follow from the ledger,
as ever.

A topic that others have written to is kept, and named (see `foreign_records`).
Nothing is deleted while another mirror has the flow.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from heliograph.config import FlowConfig
from heliograph.control.topics.config_rules import CONFIGS
from heliograph.control.topics.foreign_records import extent_of, foreign_records_in
from heliograph.control.topics.refresh import TopicPlan
from heliograph.ledger.flow_ledger import FlowLedger
from heliograph.ledger.memory import topic_subject
from heliograph.model import RESTART_TOPIC, PartitionEvent, PartitionReport, TopicPartition
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import WireError
from heliograph.wire.metadata import TopicInfo
from heliograph.wire.rights import denied, missing_right

__all__ = ["TopicRestart", "restarting_codes"]

#: What a topic that was restarted, or cannot be, is told under.
RESTARTED, KEPT = "source.restarted", "source.not-restarted"


def restarting_codes(config: FlowConfig) -> dict[str, str]:
    """The codes of failures that a topic is restarted for, with the key that says so."""
    policies = {
        "source.data-loss": ("heliograph.on.data.loss", config.on_data_loss),
        "source.truncated": ("heliograph.on.truncation", config.on_truncation),
        "source.recreated": ("heliograph.on.recreation", config.on_recreation),
    }
    return {code: key for code, (key, policy) in policies.items() if policy == RESTART_TOPIC}


class Hooks(NamedTuple):
    """What the job knows and tells through: the flow's plan, its failing partitions, its claim.

    Attributes:
        restarted: topics were deleted, and are to be created again.
    """

    plan: Callable[[], TopicPlan]
    failing: Callable[[], Mapping[TopicPartition, PartitionReport]]
    holds: Callable[[], bool]
    happened: Callable[[Sequence[PartitionEvent]], object]
    restarted: Callable[[], object]


class TopicRestart:
    """Restarts topics of one flow; `restart` is called by one job."""

    def __init__(
        self, config: FlowConfig, target: ClusterClient, ledger: FlowLedger, hooks: Hooks
    ) -> None:
        self._flow = config.flow
        self._timeout_ms = config.admin_timeout_ms
        self._codes = restarting_codes(config)
        self._target = target
        self._ledger = ledger.store
        self._memory = ledger.memory
        self._hooks = hooks
        #: When a topic was deleted: what failed before then is no reason to do it again.
        self._done: dict[str, float] = {}
        self._kept: dict[str, str] = {}

    def details(self) -> Mapping[str, str]:
        """Why topics that should be restarted are not, by their name on the source."""
        return dict(self._kept)

    def restart(self) -> None:
        """Look once for partitions that failed for a reason to restart their topics."""
        wanted: dict[str, PartitionReport] = {}
        for partition, report in self._hooks.failing().items():
            if report.code in self._codes and report.since > self._done.get(partition.topic, 0.0):
                wanted.setdefault(partition.topic, report)
        self._kept = {topic: why for topic, why in self._kept.items() if topic in wanted}
        deleted = [topic for topic, report in sorted(wanted.items()) if self._one(topic, report)]
        if deleted:
            self._hooks.restarted()

    def _one(self, topic: str, report: PartitionReport) -> bool:
        """Restart one topic; returns whether it was deleted."""
        name = self._hooks.plan().remote.get(topic)
        if name is None:
            return False
        try:
            remote = self._target.metadata([name]).topics.get(name)
            if remote is None:
                return False
            size, why = self._look(topic, remote)
            if not why and self._hooks.holds():
                topics = {remote.topic_id: remote.name}
                failed = admin.delete_topics(self._target, topics, self._timeout_ms)
                if not failed:
                    self._deleted(topic, remote, report, size)
                    return True
                error = failed[remote.topic_id]
                why = (
                    missing_right(self._target.settings, "Delete", "topic", name)
                    if denied(error.code)
                    else str(error)
                )
        except WireError as error:
            # The next run tries again; other topics do not wait for this one.
            why = str(error)
        if why and self._kept.get(topic) != why:
            self._kept[topic] = why
            text = (
                f"{name} on {self._flow.target} should be deleted and mirrored from the start"
                f" ({self._codes[report.code]}={RESTART_TOPIC}), but is kept: {why}"
            )
            self._tell(KEPT, report.partition, text)
        return False

    def _look(self, topic: str, remote: TopicInfo) -> tuple[str, str]:
        """How much a remote topic holds, and what of it is somebody else's."""
        metadata = self._target.metadata([remote.name])
        extent = extent_of(self._target, metadata, remote.name)
        ledger = self._ledger
        ledger.refresh()
        places = {
            partition: generations[-1]
            for partition in extent
            if (generations := ledger.generations(topic, partition.partition, remote.topic_id))
        }
        count = sum(end - start for start, end in extent.values())
        size = f"{count:,} offset(s) in {len(extent)} partition(s)"
        return size, foreign_records_in(self._target, metadata, extent, ledger, places)

    def _deleted(self, topic: str, remote: TopicInfo, report: PartitionReport, size: str) -> None:
        self._done[topic] = time.time()
        self._kept.pop(topic, None)
        text = (
            f"{remote.name} on {self._flow.target} was deleted, with {size}, and is mirrored from"
            f" the start ({self._codes[report.code]}={RESTART_TOPIC}), because of [{report.code}]"
            f" in {report.partition}"
        )
        self._tell(RESTARTED, report.partition, text)
        self._memory.refresh()
        self._memory.remember(CONFIGS, {topic_subject(remote.name, remote.topic_id): None})

    def _tell(self, code: str, partition: TopicPartition, text: str) -> None:
        event = PartitionEvent(str(self._flow), partition, code, text, at=time.time())
        self._hooks.happened([event])
