"""The copy loop: one thread, non-blocking sockets, from source brokers to target brokers.

Runs in executors, once per lease. Every disturbance of a partition ends in the same place: forget
what is queued, `resume` from the target's truth, go on.
"""

from __future__ import annotations

import select
import time

from heliograph.copy import links
from heliograph.copy.clocks import out_of_time
from heliograph.copy.desk import Desk
from heliograph.copy.partition import PartitionCopy
from heliograph.copy.reading import SourceLink, SourceSide
from heliograph.copy.resume import Resumer
from heliograph.copy.syncs import OffsetSyncWriter
from heliograph.copy.target_surprises import TargetSurprises
from heliograph.copy.telling import Teller
from heliograph.copy.writing import TargetLink, TargetSide
from heliograph.model import Lease, Receipt
from heliograph.wire.connection import Connection
from heliograph.wire.errors import WireError

#: The loop looks at its timers at least this often.
_TICK_SECONDS = 0.2
#: After the deadline, answers to what was sent are still counted.
_LAST_ANSWERS_SECONDS = 2.0
Watched = dict[int, tuple[Connection, SourceLink | TargetLink | None]]
_READABLE, _BOTH = select.POLLIN, select.POLLIN | select.POLLOUT


class CopyLoop:
    """Copies the partitions of one lease until its deadline, or until all are done."""

    def __init__(self, lease: Lease, *, again: bool = False) -> None:
        """``again``: another process held this very lease and may just have been killed."""
        context = lease.context
        source, target = links.source(context), links.target(context)
        self._lease = lease
        self._desk = Desk(lease, links.ledger(context), again=again)
        ledger = self._desk.ledger
        happened = self._desk.happened
        surprises = TargetSurprises(context, target, ledger, happened)
        self._resumer = Resumer(context, source, target, ledger, happened, surprises)
        self._syncs = OffsetSyncWriter(context, source, target)
        self._target = TargetSide(self._desk, target, self._syncs, surprises, self._drained)
        self._source = SourceSide(self._desk, source, self._resumer, self._target)
        self._teller = Teller(self._desk)
        self._poll = select.poll()
        self._state: list[tuple[Connection, bool]] = []
        self._watched: Watched = {}
        self._bounded = all(p.until is not None for p in lease.partitions)

    def run(self) -> list[Receipt]:
        """Hold the lease; never raises for what happens to partitions."""
        wrong = out_of_time(self._lease, time.time())
        if wrong is not None:
            late = time.time() > self._lease.deadline
            for p in self._desk.parts.values():
                if late:
                    # A Spark that is busy is more likely; if it lasts, the driver will see.
                    self._desk.disturb(p, str(wrong))
                else:
                    self._desk.fail(p, wrong)
            return self._teller.receipts()
        self._warm_up()
        time.sleep(max(0.0, self._lease.starts_at - time.time()))
        try:
            while self._unfinished():
                self._revive()
                self._source.fetch()
                self._wait(self._lease.deadline)
                self._target.pump()
                self._syncs.pump(time.monotonic())
                self._teller.pump()
            self._await_answers()
            self._source.settle()
        finally:
            self._source.release()
            self._target.release()
        return self._teller.receipts()

    def _warm_up(self) -> None:
        """Connect and read the ledger before the lease starts, so that taking over is quick."""
        try:
            self._resumer.warm_up(list(self._desk.parts.values()))
        except WireError:
            return  # resume will meet the same error and keep it

    def _unfinished(self) -> bool:
        if time.time() >= self._lease.deadline:
            return False
        parts = self._desk.parts.values()
        return not self._bounded or any(not (p.done or p.failed) for p in parts)

    def _revive(self) -> None:
        """Resume partitions that are new or were disturbed."""
        due = self._desk.due(time.time()) if self._desk.unsettled else []
        if not due:
            return
        for p in due:
            self._desk.forget_queue(p)
            p.failed = None
        try:
            self._resumer.resume(due)
            self._desk.leave_behind(due)
            source_ids, target_ids = self._desk.topic_ids()
        except WireError as error:
            for p in due:
                self._desk.disturb(p, str(error))
        for p in due:
            if p.active:
                try:
                    self._target.attach(p, target_ids)
                    self._source.attach(p, source_ids)
                except WireError as error:
                    self._desk.disturb(p, str(error))
        for p in due:
            if p.active:
                self._desk.unsettled.discard(p.source)
            elif p.failed is not None:
                self._desk.fail(p, p.failed)
            elif p.retry_at > time.time():
                self._desk.postpone(p, p.retry_at, p.broken)
            else:
                self._desk.disturb(p, p.broken)

    def _drained(self, p: PartitionCopy) -> None:
        self._source.want_more(p)

    def _wait(self, until: float, *, reading: bool = True) -> None:
        """Sleep until a broker says something or a timer is due, then take it in."""
        watched = self._watch(reading)
        # TLS may hold decrypted bytes that the kernel knows nothing of.
        buffered = [link for connection, link in watched.values() if connection.has_buffered_input]
        timeout = 0 if buffered else self._timeout_ms(until)
        self._target.gather()
        ready = [watched[descriptor][1] for descriptor, _ in self._poll.poll(timeout)]
        if not ready:
            # There may be answers, if fewer than were to be gathered.
            ready = [link for link in self._target.links.values() if link.busy]
        for link in ready + [link for link in buffered if link not in ready]:
            if isinstance(link, TargetLink):
                self._target.react(link)
            elif isinstance(link, SourceLink):
                self._source.react(link)

    def _watch(self, reading: bool) -> Watched:
        """Tell the kernel what to watch, as far as that changed; returns it by descriptor."""
        links: list[SourceLink | TargetLink] = [*self._target.links.values()]
        if reading:
            links += self._source.links.values()
        pairs: list[tuple[Connection, SourceLink | TargetLink | None]]
        pairs = [(link.connection, link) for link in links]
        if self._syncs.connection is not None:
            pairs.append((self._syncs.connection, None))
        state = [(c, c.wants_write) for c, _ in pairs if not c.closed]
        if state != self._state:
            # A descriptor may have been closed and given to a new connection: register anew.
            self._poll = select.poll()
            for connection, wants_write in state:
                self._poll.register(connection.fileno(), _BOTH if wants_write else _READABLE)
            self._watched = {c.fileno(): (c, link) for c, link in pairs if not c.closed}
            self._state = state
        return self._watched

    def _timeout_ms(self, until: float) -> float:
        now = time.time()
        return max(0.0, (min(until, now + _TICK_SECONDS, self._desk.next_retry()) - now) * 1000)

    def _await_answers(self) -> None:
        deadline = time.time() + _LAST_ANSWERS_SECONDS
        while self._target.owed and time.time() < deadline:
            self._wait(deadline, reading=False)
        self._syncs.finish()
