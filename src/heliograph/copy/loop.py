"""The copy loop: one thread, non-blocking sockets, from source brokers to target brokers.

Runs in executors, once per lease. Every disturbance of a partition ends in the same place: forget
what is queued, `resume` from the target's truth, go on. Whatever has to wait for a broker runs in
the background (`copy/background.py`), so that only the partitions that need it wait with it.
"""

from __future__ import annotations

import select
import time
from collections.abc import Mapping, Sequence, Set

from heliograph.copy import links
from heliograph.copy.background import Background
from heliograph.copy.clocks import out_of_time
from heliograph.copy.known_positions import KnownPositions
from heliograph.copy.lease_report import LeaseReporter
from heliograph.copy.lease_state import LeaseState
from heliograph.copy.partition import MustWait, Outcome, PartitionCopy, Started
from heliograph.copy.reading import SourceLink, SourceSide
from heliograph.copy.resume import Resumer
from heliograph.copy.syncs import OffsetSyncWriter
from heliograph.copy.target_divergence import TargetDivergence
from heliograph.copy.target_link import TargetLink
from heliograph.copy.writing import TargetSide
from heliograph.errors import PartitionError
from heliograph.model import Lease, Receipt, TopicPartition
from heliograph.wire.connection import Connection
from heliograph.wire.errors import WireError

#: The loop looks at its timers at least this often.
_TICK_SECONDS = 0.2
#: After the deadline, answers to what was sent are still counted.
_LAST_ANSWERS_SECONDS = 2.0
#: Then, what the next lease would have to find out is written down.
_LAST_WRITES_SECONDS = 2.0
#: How often whoever waits for the start of a lease hears whether it is to end.
_LISTEN_SECONDS = 0.1
Watched = dict[int, tuple[Connection, SourceLink | TargetLink | None]]
_READABLE, _BOTH = select.POLLIN, select.POLLIN | select.POLLOUT


class CopyLoop:
    """Copies the partitions of one lease until its deadline, or until all are done."""

    def __init__(self, lease: Lease, *, again: bool = False) -> None:
        """``again``: another process held this very lease and may just have been killed."""
        context = lease.context
        source, target = links.source(context), links.target(context)
        self._lease = lease
        self._clusters = source, target
        self._lease_state = LeaseState(lease, links.ledger(context), again=again)
        ledger = self._lease_state.ledger
        add_event = self._lease_state.add_event
        self._background = Background()
        divergence = TargetDivergence(context, target, ledger, add_event)
        self._resumer = Resumer(context, source, target, ledger, add_event, divergence)
        self._resumer.ends_at = lease.deadline
        self._syncs = OffsetSyncWriter(context, source, target, self._background)
        self._notes = KnownPositions(context, target, self._background)
        self._target = TargetSide(
            self._lease_state, target, self._syncs, self._notes, divergence, self._background,
            self._drained,
        )  # fmt: skip
        self._source = SourceSide(self._lease_state, source, self._target, self._background)
        self._reporter = LeaseReporter(self._lease_state)
        self._poll = select.poll()
        self._poll.register(self._background.fileno(), _READABLE)
        self._registered: list[tuple[Connection, bool]] = []
        self._watched: Watched = {}
        self._losses = ledger.losses
        self._resuming = self._restoring = False
        self._bounded = all(p.until is not None for p in lease.partitions)

    def run(self) -> list[Receipt]:
        """Hold the lease; never raises for what happens to partitions."""
        wrong = out_of_time(self._lease, time.time())
        if wrong is not None:
            late = time.time() > self._lease.deadline
            for p in self._lease_state.parts.values():
                if late:
                    # A Spark that is busy is more likely; if it lasts, the driver will see.
                    self._lease_state.disturb(p, str(wrong))
                else:
                    self._lease_state.fail(p, wrong)
            self._background.close()
            return self._reporter.receipts()
        try:
            self._reporter.greet()
            self._warm_up()
            self._await_start()
            while self._unfinished():
                self._revive()
                self._source.fetch()
                self._source.go_on()
                self._wait(self._lease.deadline)
                self._target.pump()
                now = time.monotonic()
                self._syncs.pump(now)
                self._notes.pump(now)
                self._reporter.pump()
            self._await_answers()
            self._close_books()
        finally:
            self._source.release()
            self._target.release()
            self._background.close()
        return self._reporter.receipts()

    def _close_books(self) -> None:
        """Write down where the lease ends. All of it together has a moment."""
        until = time.monotonic() + _LAST_WRITES_SECONDS
        self._source.settle()
        self._target.acknowledgements.report_pushed()
        self._notes.finish(until)
        self._syncs.finish(until)
        # What is being resumed may take long, and whatever waits behind it.
        self._background.wait(until - time.monotonic(), until=lambda: self._resuming)

    def _warm_up(self) -> None:
        """Connect and read the ledger before the lease starts, so that taking over is quick."""
        parts = list(self._lease_state.parts.values())
        self._background.run(
            self._clusters[1].lane,
            lambda: self._resumer.warm_up(parts),
            _ignore,
            _ignore,  # resume will meet the same error and keep it
        )
        self._background.wait(self._lease.starts_at - time.time())

    def _await_start(self) -> None:
        """Wait until the lease starts, or is ended before."""
        self._reporter.listen()
        while not self._reporter.told_to_end and (left := self._lease.starts_at - time.time()) > 0:
            time.sleep(min(left, _LISTEN_SECONDS))
            self._reporter.listen()

    def _unfinished(self) -> bool:
        if time.time() >= self._lease.deadline or self._reporter.told_to_end:
            return False
        parts = self._lease_state.parts.values()
        return not self._bounded or any(not (p.done or p.failed) for p in parts)

    def _revive(self) -> None:
        """Resume partitions that are new or were disturbed, all that are due at once."""
        if self._losses != self._lease_state.ledger.losses:
            self._recover_ledger()
        if self._resuming or not self._lease_state.unsettled:
            return
        due = self._lease_state.due(time.time())
        if not due:
            return
        for p in due:
            self._lease_state.begin(p)
        self._resuming = True
        # Those that have a link need no other connection.
        linked = frozenset(self._source.links), frozenset(self._target.links)
        self._background.run(
            self._clusters[1].lane,
            lambda: self._resume(due, linked),
            lambda outcomes: self._resumed(due, outcomes),
            lambda error: self._resumed(due, dict.fromkeys(
                (p.source for p in due), MustWait(str(error)))),
        )  # fmt: skip

    def _resume(
        self, due: Sequence[PartitionCopy], linked: tuple[Set[int], Set[int]]
    ) -> dict[TopicPartition, Outcome]:
        """Find out where partitions go on, and connect to their leaders. Runs in the lane."""
        outcomes = self._resumer.resume(due)
        refused: dict[tuple[bool, int], str] = {}
        for p in due:
            if not isinstance(outcomes[p.source], Started):
                continue
            for side, node in enumerate((p.source_leader, p.target_leader)):
                key = bool(side), node
                if node not in linked[side] and key not in refused:
                    try:
                        cluster = self._clusters[side]
                        cluster.provide(node, cluster.client)
                        refused[key] = ""
                    except WireError as error:
                        refused[key] = str(error)
                if refused.get(key):
                    outcomes[p.source] = MustWait(refused[key])
        return outcomes

    def _resumed(
        self, due: Sequence[PartitionCopy], outcomes: Mapping[TopicPartition, Outcome]
    ) -> None:
        """Apply what became of an attempt to resume partitions."""
        self._resuming = False
        state = self._lease_state
        state.leave_behind([p for p in due if not isinstance(outcomes[p.source], MustWait)])
        source_ids, target_ids = state.topic_ids()
        self._source.know(source_ids)
        self._target.know(target_ids)
        for p in due:
            outcome = outcomes[p.source]
            if isinstance(outcome, MustWait):
                state.wait(p, outcome)
            elif isinstance(outcome, PartitionError):
                state.fail(p, outcome)
            else:
                state.start(p, outcome)
                attached = self._target.attach(p, target_ids) and self._source.attach(
                    p, source_ids, outcome.source_start
                )
                if not attached:
                    state.disturb(p, "a connection was lost while it was resumed")

    def _recover_ledger(self) -> None:
        """The ledger has lost entries that this process has read: write them again."""
        if self._restoring:
            return
        self._restoring = True
        ledger, losses = self._lease_state.ledger, self._lease_state.ledger.losses
        parts = self._lease_state.parts.values()
        places = [p.place for p in parts if p.place is not None]
        for p in parts:
            if p.active:
                self._lease_state.disturb(p, "the ledger has lost entries", pause=False)

        def restored(_: None) -> None:
            self._restoring, self._losses = False, losses

        def failed(_: WireError) -> None:
            # The next turn tries again; until then positions are found out without them.
            self._restoring = False

        self._background.run(
            self._clusters[1].lane, lambda: ledger.restore(places), restored, failed
        )

    def _drained(self, p: PartitionCopy) -> None:
        self._source.want_more(p)

    def _wait(self, until: float, *, reading: bool = True) -> None:
        """Sleep until a broker says something or a timer is due, then take it in."""
        watched = self._watch(reading)
        # TLS may hold decrypted bytes that the kernel knows nothing of.
        buffered = [link for connection, link in watched.values() if connection.has_buffered_input]
        timeout = 0 if buffered or self._source.has_work else self._timeout_ms(until)
        self._target.gather()
        polled = [descriptor for descriptor, _ in self._poll.poll(timeout)]
        ready = [watched[d][1] for d in polled if d != self._background.fileno()]
        if not ready:
            # There may be answers, if fewer than were to be gathered.
            ready = [link for link in self._target.links.values() if link.busy]
        for link in ready + [link for link in buffered if link not in ready]:
            if isinstance(link, TargetLink):
                self._target.react(link)
            elif isinstance(link, SourceLink):
                self._source.react(link)
        if self._background.fileno() in polled:
            # Last: links may be replaced in there.
            self._background.collect()

    def _watch(self, reading: bool) -> Watched:
        """Tell the kernel what to watch, as far as that changed; returns it by descriptor."""
        links: list[SourceLink | TargetLink] = [*self._target.links.values()]
        if reading:
            links += self._source.links.values()
        pairs: list[tuple[Connection, SourceLink | TargetLink | None]]
        pairs = [(link.connection, link) for link in links]
        aside = (self._syncs.connection, self._notes.connection)
        pairs += [(connection, None) for connection in aside if connection is not None]
        registered = [(c, c.wants_write) for c, _ in pairs if not c.closed]
        if registered != self._registered:
            # A descriptor may have been closed and given to a new connection: register anew.
            self._poll = select.poll()
            self._poll.register(self._background.fileno(), _READABLE)
            for connection, wants_write in registered:
                self._poll.register(connection.fileno(), _BOTH if wants_write else _READABLE)
            self._watched = {c.fileno(): (c, link) for c, link in pairs if not c.closed}
            self._registered = registered
        return self._watched

    def _timeout_ms(self, until: float) -> float:
        now = time.time()
        until = min(until, now + _TICK_SECONDS)
        if not self._resuming:
            until = min(until, self._lease_state.next_retry())
        return max(0.0, (until - now) * 1000)

    def _await_answers(self) -> None:
        """Take in the answers to what was sent, and send nothing more."""
        self._target.fall_silent()
        deadline = time.time() + _LAST_ANSWERS_SECONDS
        while self._target.owed and time.time() < deadline:
            self._wait(deadline, reading=False)


def _ignore(_: object) -> None:
    pass
