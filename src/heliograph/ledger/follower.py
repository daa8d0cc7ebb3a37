"""Follows the ledger topic: reads it once from its start, and folds each record into views.

One follower per flow and process. In executors one thread uses it. In the driver all jobs of a flow
share it (`FlowLedger`), in any threads; only the claim has a follower of its own
(`heliograph.claims.registry`).

What `refresh` promises: when it returns, every view contains at least all records that were in the
topic when it was called. "Ends and sequences first, ledger second" therefore holds for each caller,
whoever else reads at the same time. Callers share a reading only if it began after both calls:

    reading 1   |---------|
    caller A      calls: reading 1 began before, so A waits for reading 2
    caller B           calls: waits for reading 2 as well
    reading 2             |------|   serves A and B
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import NamedTuple

from heliograph.ledger.topic_log import Pair, TopicLog, batches_of
from heliograph.wire.cluster import ClusterClient

__all__ = ["LedgerFollower", "Reached", "View"]

#: The broker's cleaner needs longer than this to remove what was there when reading began.
_QUICK_SECONDS = 1.0


class View:
    """Something that is computed from the topic's records. Called with `folding` held."""

    def forget(self) -> None:
        """The topic has lost records that were read: all that is left is going to be read again."""
        raise NotImplementedError

    def take(self, offset: int, key: bytes, value: bytes | None) -> None:
        """The next record; without a value, a tombstone."""
        raise NotImplementedError

    def publish(self) -> None:
        """A reading has come to the topic's end: other threads may see what was taken in."""


class Reached(NamedTuple):
    """How far the views are: before ``position``, of a topic that lost records so many times."""

    position: int
    losses: int


class LedgerFollower:
    """Reads a ledger topic for its views, and appends to it. Thread-safe.

    Attributes:
        log: the topic.
        losses: how often the topic turned out to have lost what was read from it.
        followed_since: since when nothing was missed, by the monotonic clock; infinite before the
            topic was read to its end.
        reached: as of the last reading that came to the topic's end.
        folding: held while records are folded into views and while these publish.
    """

    def __init__(self, client: ClusterClient, topic: str) -> None:
        self.log = TopicLog(client, topic)
        self.losses = 0
        self.followed_since = float("inf")
        self.reached = Reached(0, 0)
        self.folding = threading.RLock()
        self._views: list[View] = []
        self._position = 0
        #: Guards what follows: the numbers of the last reading that began, ended and succeeded.
        self._turn = threading.Condition()
        self._reading = False
        self._begun = self._ended = self._succeeded = 0
        self._failure: Exception | None = None

    def attach(self, view: View) -> None:
        """Fold records into one more view; only before the first reading."""
        if self._begun:
            raise RuntimeError(f"{self.log} is being read already: a view would miss its start")
        self._views.append(view)

    # -- reading ------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Read on to the topic's end as it is now, or wait for a reading that begins later.

        Raises the error of the reading that was waited for.
        """
        with self._turn:
            wanted = self._begun + 1
            while self._succeeded < wanted:
                if self._ended >= wanted and self._failure is not None:
                    raise self._failure
                if not self._reading:
                    break
                self._turn.wait()
            else:
                return
            self._reading = True
            self._begun += 1
        failure: BaseException | None = None
        try:
            self._read_on()
        except BaseException as error:
            failure = error
            raise
        finally:
            with self._turn:
                self._reading = False
                if failure is None:
                    self._succeeded = self._ended = self._begun
                elif isinstance(failure, Exception):
                    self._ended, self._failure = self._begun, failure
                self._turn.notify_all()

    def _read_on(self) -> None:
        """Read to the topic's end as it is now.

        If that took long, to the end as it is then: the broker's cleaner may have removed records
        that we had not come to, in favour of packed ones behind the end that we knew.
        """
        while True:
            began, start = time.monotonic(), self._position
            if not self.log.find_end(self._position):
                self._lose()
            for records in self.log.read(self._position):
                with self.folding:
                    for record in records:
                        if record.offset >= self._position:
                            self._position = record.offset + 1
                            if record.key is not None:
                                self._fold(record.offset, record.key, record.value)
            if self._position == start or time.monotonic() - began < _QUICK_SECONDS:
                break
        self.followed_since = min(self.followed_since, time.monotonic())
        with self.folding:
            for view in self._views:
                view.publish()
            self.reached = Reached(self._position, self.losses)

    def _fold(self, offset: int, key: bytes, value: bytes | None) -> None:
        for view in self._views:
            view.take(offset, key, value)

    def _lose(self) -> None:
        with self.folding:
            self.losses += 1
            self._position = 0
            self.followed_since = float("inf")
            for view in self._views:
                view.forget()

    # -- writing ------------------------------------------------------------------------------

    def append(self, pairs: Iterable[Pair]) -> None:
        """Append records durably, at least once, in their order."""
        for batch in batches_of(pairs):
            self.log.append(batch)

    def append_once(self, pairs: Iterable[Pair]) -> None:
        """Append records durably, exactly once: under a producer id, new for every call."""
        producer_id, sequence = -1, 0
        for batch in batches_of(pairs):
            if producer_id < 0:
                producer_id = self.log.allocate_producer_id()
            self.log.append(batch, producer_id, sequence)
            sequence += len(batch)
