"""Whether MM2 is at work on a flow's partitions right now. Runs in the driver.

Its workers are members of a Connect group on the target; which partitions its tasks have is in its
configs topic. MM2 may well be running for other topics, or only to write heartbeats.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection

from heliograph.config import FlowConfig
from heliograph.mm2.connect_offsets import LatestRecords, assigned_partitions
from heliograph.model import TopicPartition
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import BrokerError, WireError, is_retriable
from heliograph.wire.groups import GroupClient
from heliograph.wire.rights import denied, missing_right

__all__ = ["MM2Worker"]

log = logging.getLogger(__name__)

_WITHOUT_MEMBERS = frozenset({"Empty", "Dead"})
#: A worker that was killed stays a member until its session times out: Connect's default is 10 s.
_SESSION_SECONDS = 12.0
_PAUSE_SECONDS = 0.25
_PATIENCE_SECONDS = 10.0


class MM2Worker:
    """MM2's Connect group for one flow, which messages call ``name``. One thread at a time."""

    def __init__(self, config: FlowConfig, name: str, target: ClusterClient) -> None:
        self._flow = config.flow
        self._name = name
        self._group = config.mm2_group
        self._target = target
        self._groups = GroupClient(target)
        self._configs = LatestRecords(target, config.mm2_configs_topic)
        self._told = False

    def at_work(self, partitions: Collection[TopicPartition]) -> str:
        """Why MM2 must be stopped before these partitions can be mirrored; empty if it is not up.

        Waits for as long as a worker that was killed still seems to be there.
        """
        deadline = time.monotonic() + _SESSION_SECONDS
        waiting = False
        while running := self.seen(partitions):
            if time.monotonic() > deadline:
                return running
            if not waiting:
                waiting = True
                log.info(
                    "%s: MM2's group %s on %s has members; waiting %.0f s in case it was killed",
                    self._name, self._group, self._flow.target, _SESSION_SECONDS,
                )  # fmt: skip
            time.sleep(_PAUSE_SECONDS)
        return ""

    def seen(self, partitions: Collection[TopicPartition]) -> str:
        """The same as far as it is seen at this moment, without waiting."""
        state = self._state()
        mirrored = self._mirrored(partitions) if state else []
        if not mirrored:
            return ""
        shown = ", ".join(map(str, mirrored[:3]))
        more = f" and {len(mirrored) - 3} more" if mirrored[3:] else ""
        return (
            f"MM2 still mirrors {self._name}: its group {self._group} on"
            f" {self._flow.target} has members (it is {state}), and its tasks have"
            f" {shown}{more}"
        )

    def _state(self) -> str:
        """The state of a group with members; empty if there are none, or if we may not know."""

        def call() -> str:
            answers = self._groups.states([self._group])
            error = answers.errors.get(self._group)
            if error is not None:
                raise error
            return answers.found[self._group]

        try:
            state = self._target.retry(call, _PATIENCE_SECONDS)
        except BrokerError as error:
            if not denied(error.code):
                raise
            self._tell_unseen()
            return ""
        return "" if state in _WITHOUT_MEMBERS else state

    def _tell_unseen(self) -> None:
        if not self._told:
            self._told = True
            right = missing_right(self._target.settings, "Describe", "group", self._group)
            log.warning("%s: cannot see whether MM2 is still running: %s", self._name, right)

    def _mirrored(self, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        """Those that MM2's tasks have, as far as its configs topic tells; all if it does not."""
        try:
            known = self._configs.refresh()
        except WireError as error:
            if is_retriable(error):
                raise
            known = False
        if not known:
            return sorted(partitions)
        tasks = assigned_partitions((key, value) for key, (value, _) in self._configs.all.items())
        return sorted(tasks & set(partitions))
