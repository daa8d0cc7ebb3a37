"""``run --once``: how far each partition of a flow is to be copied, and what is still missing.

Runs in the driver.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from heliograph.errors import HeliographError
from heliograph.model import Receipt, TopicPartition
from heliograph.service.flow import FlowRuntime
from heliograph.wire.errors import WireError

__all__ = ["Goals", "incomplete"]

log = logging.getLogger(__name__)

#: Rounds in a row that may pass without any progress.
_PATIENCE_ROUNDS = 3
#: How long partitions that were just created are waited for, before others are begun.
_CREATED_SECONDS = 10.0
_PAUSE_SECONDS = 1.0
_POLL_SECONDS = 0.2


@contextmanager
def incomplete(what: str) -> Iterator[None]:
    """What fails in here is left undone at the end: a HeliographError that names it."""
    try:
        yield
    except (WireError, ValueError) as error:
        raise HeliographError("once.incomplete", f"{what}: {error}") from error


class Goals:
    """The goals of one flow: source offsets to be reached. Used by the thread of its rounds.

    Attributes:
        open: partitions that have not reached theirs.
        missing: why, for each of them, as far as it is known.
    """

    def __init__(self, goals: Mapping[TopicPartition, int], stopped: threading.Event) -> None:
        self._goals = dict(goals)
        self._stopped = stopped
        self._reached: dict[TopicPartition, int] = {}
        self._moved = True
        self._idle_rounds = 0
        self._lock = threading.Lock()
        self.missing: dict[TopicPartition, str] = {}

    @property
    def open(self) -> set[TopicPartition]:
        """Partitions that have not reached their goals."""
        with self._lock:
            return set(self._goals)

    def until(self, partition: TopicPartition) -> int:
        """The goal of a partition that has not reached it."""
        with self._lock:
            return self._goals.get(partition, 0)

    def receive(self, receipts: Sequence[Receipt]) -> None:
        """Take note of how far a round came."""
        with self._lock:
            for r in receipts:
                p = TopicPartition(r.topic, r.partition)
                if r.records or r.source_position > self._reached.get(p, 0):
                    self._moved = True
                self._reached[p] = r.source_position
                goal = self._goals.get(p)
                if goal is None:
                    continue
                if r.source_position >= goal:
                    del self._goals[p]
                    self.missing.pop(p, None)
                else:
                    at = f"it stands at source offset {r.source_position}, the goal is {goal}"
                    self.missing[p] = r.error or at

    def require(self, flow: str) -> None:
        """Raise a HeliographError that names each partition that was not copied so far, and why."""
        lines = [
            f"{flow} {p}: {self.missing.get(p, 'it was not copied')}" for p in sorted(self.open)
        ]
        if lines:
            text = "not everything could be mirrored:\n  " + "\n  ".join(lines)
            raise HeliographError("once.incomplete", text)

    def may_go_on(self, runtime: FlowRuntime) -> bool:
        """Whether another round is worth it; waits for what was created a moment ago.

        False when all goals are reached, or when nothing has moved for some rounds: `missing` then
        says what is not copied, and why.
        """
        if not self.open:
            return False
        self._idle_rounds = 0 if self._moved else self._idle_rounds + 1
        if self._idle_rounds >= _PATIENCE_ROUNDS:
            return False
        if not self._moved:
            self._stopped.wait(_PAUSE_SECONDS)
            self._refresh(runtime)
        self._moved = False
        self._await_created(runtime)
        self.missing |= runtime.not_leasable(self.open)
        return not self._stopped.is_set()

    def _refresh(self, runtime: FlowRuntime) -> None:
        if runtime.not_leasable(self.open):
            try:
                runtime.refresh_topics()
            except WireError as error:
                log.warning("refreshing the topics of %s: %s", runtime.name, error)

    def _await_created(self, runtime: FlowRuntime) -> None:
        """Wait for what is expected in a moment; a scheduled job looks for it."""
        deadline = time.monotonic() + _CREATED_SECONDS
        while time.monotonic() < deadline and not self._stopped.is_set():
            if not (runtime.not_leasable(self.open) and runtime.unsettled):
                return
            self._stopped.wait(_POLL_SECONDS)
