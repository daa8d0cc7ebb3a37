"""Events for sources that are not what they were, and how copying goes on. Runs in executors.

Three things can have happened to a source partition that was mirrored before; each has a policy of
its own in the flow's context:

- its topic was deleted and created again (``on_recreation``), told by topic id;
- it lost records that are on the target (``on_truncation``), told by leader epochs, at resume;
- it deleted records that are not on the target yet (``on_data_loss``), told by its log start.

``fail`` and ``restart-topic`` both end in a PartitionError: it is the driver that restarts a topic
(control.topics.restart), when a report has the error's code.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from heliograph.copy.leader_epochs import Divergence, divergence
from heliograph.copy.links import Cluster
from heliograph.copy.partition import MustWait, PartitionCopy
from heliograph.errors import PartitionError
from heliograph.ledger.codec import Cut, Epoch
from heliograph.ledger.epochs import UNKNOWN_EPOCH, EpochMark
from heliograph.ledger.runs import PartitionLedger, Run
from heliograph.ledger.store import LedgerStore
from heliograph.model import CONTINUE, RESTART_TOPIC, FlowContext, TopicPartition
from heliograph.wire.epochs import EpochEnd, epoch_ends
from heliograph.wire.errors import NONE, WireError, error_name, is_retriable
from heliograph.wire.metadata import Metadata

#: A broker that has just started may not know a topic yet.
_ABSENT_SECONDS = 1.0


class AddEvent(Protocol):
    """Keeps an event: its partition, code, text, offsets, and the setting by which it goes on."""

    def __call__(
        self, p: PartitionCopy, code: str, text: str, first: int, until: int, policy: str = ""
    ) -> None:
        """Offsets are [first, until), -1 if there are none."""


class SourceDivergence:
    """Looks at the source's logs for one lease."""

    def __init__(
        self, context: FlowContext, source: Cluster, ledger: LedgerStore, add_event: AddEvent
    ) -> None:
        self._context = context
        self._client = source.client
        self._silent = source.silent
        self._ledger = ledger
        self._add_event = add_event
        self._absent: dict[TopicPartition, float] = {}
        self._ends: dict[TopicPartition, tuple[int, EpochEnd]] = {}
        self._unanswered: dict[TopicPartition, str] = {}
        self._metadata: Metadata | None = None

    # -- topics -------------------------------------------------------------------------------

    def absent(self, p: PartitionCopy, source: Metadata) -> str:
        """Why the source has no leader for a partition; adds one event if the partition is gone."""
        alias = self._context.flow.source
        topic = source.topics.get(p.source.topic)
        if topic is None:
            return (
                f"source topic {p.source.topic} is not on {alias}: deleted, or not known there yet"
            )
        count = len(topic.partitions)
        if p.source.partition in topic.partitions:
            self._absent.pop(p.source, None)
            return f"no leader for {p.source} on the source"
        since = self._absent.setdefault(p.source, time.time())
        text = (
            f"{p.source} is no longer on {alias}: the topic was created again with {count}"
            f" partition(s); {self._left_behind(str(p.target))}"
        )
        if time.time() - since >= _ABSENT_SECONDS:
            self._absent[p.source] = float("inf")  # told
            self._add_event(p, "source.shrunk", text, -1, -1)
        return text

    def _left_behind(self, partitions: str) -> str:
        """What becomes of copies of partitions that the source does not have any more."""
        if self._context.on_recreation == RESTART_TOPIC:
            return f"{partitions} on {self._context.flow.target}: deleted with its topic"
        return f"{partitions} on {self._context.flow.target}: what was mirrored is kept"

    def recreated(self, p: PartitionCopy, source: Metadata, target: Metadata) -> None:
        """The place is new; raises PartitionError if its topic was mirrored before, by policy."""
        assert p.place is not None  # noqa: S101 - set by locate
        earlier = self._ledger.other_sources(p.place)
        if not earlier or p.paired:
            # The new topic was filled from the target: it is no other one.
            return
        flow, topic = self._context.flow, p.source.topic
        text = (
            f"source topic {topic} was deleted and created again (topic id"
            f" {p.place.source_id}, mirrored so far: {earlier[-1].source_id});"
            f" {p.target.topic} on {flow.target} holds the old topic's records"
        )
        now, before = (len(m.topics[t].partitions)
                       for m, t in ((source, topic), (target, p.target.topic)))  # fmt: skip
        if now < before:
            gone = f"{p.target.topic}-{now}" + (f" to -{before - 1}" if before - now > 1 else "")
            text += f". It has {now} partition(s) now; {self._left_behind(gone)}"
        self._decide(
            p, "source.recreated", text, self._context.on_recreation, "heliograph.on.recreation",
            "the new topic's records are appended to the old ones",
            f"delete {p.target.topic} to mirror the new topic from its start, or set"
            " heliograph.on.recreation=restart-topic to have that done, or =continue to append the"
            " new topic's records to the old ones",
        )  # fmt: skip

    # -- retention ----------------------------------------------------------------------------

    def overrun(self, p: PartitionCopy, position: int, start: int) -> None:
        """The log begins behind the position. Raises PartitionError unless that is to be passed."""
        lost = start - position
        self._decide(
            p, "source.data-loss",
            f"{self._context.flow.source} deleted {lost:,} offset(s) of {p.source} before they were"
            f" mirrored: [{position}, {start}) (retention, or somebody's DeleteRecords)",
            self._context.on_data_loss, "heliograph.on.data.loss",
            f"copying goes on at {start}, and positions in between are translated to it",
            "set heliograph.on.data.loss=continue to go on behind the gap, or =restart-topic to"
            " mirror what is left into a new remote topic; and if it was retention, give the source"
            " more",
            position, start,
        )  # fmt: skip

    # -- truncation ---------------------------------------------------------------------------

    def look(self, partitions: Sequence[PartitionCopy], source: Metadata) -> None:
        """Ask leaders where the newest mirrored epochs end, all at once, where that can matter.

        Not where a leader still has the epoch of the newest record: within one, nothing is lost.
        """
        self._metadata, self._ends, self._unanswered = source, {}, {}
        asked: dict[int, dict[TopicPartition, int]] = {}
        for p in partitions:
            if p.place is not None and (marks := self._ledger.at(p.place).epochs.marks):
                epoch = marks[-1].epoch
                if epoch not in {UNKNOWN_EPOCH, p.source_epoch}:
                    asked.setdefault(p.source_leader, {})[p.source] = epoch
        for node, epochs in asked.items():
            try:
                self._silent.refuse(node)
                with self._silent.noticed(node):
                    found = epoch_ends(self._client, source, epochs)
            except WireError as error:
                # One broker's partitions wait; the others' go on.
                self._unanswered |= dict.fromkeys(epochs, str(error))
            else:
                self._ends |= {name: (epochs[name], end) for name, end in found.items()}

    def require_intact(
        self, p: PartitionCopy, ledger: PartitionLedger, sequence: int, end: int
    ) -> None:
        """Make sure that the source still has what was mirrored and read before ``sequence``.

        If not, it is decided what becomes of that: the ledger gets to know where the source goes
        on, if copying may. ``end`` is the target's.

        Raises:
            MustWait: it cannot be known yet.
            PartitionError: mirrored records are lost, and the policy is not to go on.
        """
        try:
            found = self._divergence(p, ledger, sequence)
        except WireError as error:
            raise MustWait(str(error)) from error
        if found is None:
            return
        if found.lost:
            self._decide_truncated(p, found)
        # Whoever copied before this lease may still write what it had read.
        p.require_predecessor_ended()
        assert p.place is not None  # noqa: S101 - set by locate
        leader = p.source_epoch
        mark = EpochMark(sequence, found.epoch, anew=True, source=found.offset, leader=leader)
        cut = Cut(p.place, Run(sequence, found.offset, end), leader=leader)
        self._ledger.cut(cut, Epoch(p.place, mark))

    def _divergence(
        self, p: PartitionCopy, ledger: PartitionLedger, sequence: int
    ) -> Divergence | None:
        ends_at, p.truncated_at = p.truncated_at, None
        if ends_at is not None and ends_at < ledger.source_of(sequence):
            self._date(p, ledger, sequence)
            return self._by_epochs(p, ledger, sequence) or Divergence.at(
                ledger, sequence, ends_at, UNKNOWN_EPOCH
            )
        return self._by_epochs(p, ledger, sequence)

    def _date(self, p: PartitionCopy, ledger: PartitionLedger, sequence: int) -> None:
        """Give mirrored records of an unknown epoch one, in a log that is too short for them.

        What the log had before its leader was elected is taken for what was mirrored; the rest is
        of an epoch that it does not have. So the loss will still be known when the log has grown
        again to where the rest was.
        """
        assert p.place is not None  # noqa: S101 - set by locate
        assert self._metadata is not None  # noqa: S101 - `look` comes first
        before = p.source_epoch - 1
        if before < 0 or ledger.epochs.at(sequence) != UNKNOWN_EPOCH:
            return
        end = epoch_ends(self._client, self._metadata, {p.source: before}).get(p.source)
        if end is None or end.error != NONE or end.epoch < 0:
            return
        marks = [EpochMark(ledger.runs[0].sequence, end.epoch)]
        if end.epoch < before:
            first = ledger.sequence_of(end.offset)
            marks.append(EpochMark(first, before, source=end.offset))
        self._ledger.write([], [Epoch(p.place, mark) for mark in marks])

    def _by_epochs(
        self, p: PartitionCopy, ledger: PartitionLedger, sequence: int
    ) -> Divergence | None:
        if p.source in self._unanswered:
            raise MustWait(self._unanswered[p.source])

        def ask(epoch: int) -> EpochEnd | None:
            known = self._ends.get(p.source)
            if known is not None and known[0] == epoch:
                return known[1]
            assert self._metadata is not None  # noqa: S101 - `look` comes first
            return epoch_ends(self._client, self._metadata, {p.source: epoch}).get(p.source)

        asking = divergence(ledger, sequence, p.source_epoch)
        try:
            epoch = next(asking)
            while True:
                answer = ask(epoch)
                if answer is None or (answer.error != NONE and not is_retriable(answer.error)):
                    return None
                if answer.error != NONE:
                    raise MustWait(f"the epochs of {p.source}: {error_name(answer.error)}")
                epoch = asking.send(answer)
        except StopIteration as stop:
            found: Divergence | str | None = stop.value
        if isinstance(found, str):
            raise MustWait(f"{p.source} on {self._context.flow.source}: {found}")
        if found is not None and not self._same(p):
            raise MustWait(f"{p.source} has changed while we looked at it")
        return found

    def _same(self, p: PartitionCopy) -> bool:
        """Whether topic and leader are still those that were asked: epochs are asked by name."""
        now = self._client.metadata([p.source.topic])
        topic = now.topics.get(p.source.topic)
        return (
            p.place is not None
            and topic is not None
            and topic.topic_id == p.place.source_id
            and now.leader_epoch(*p.source) == p.source_epoch
        )

    def _decide_truncated(self, p: PartitionCopy, found: Divergence) -> None:
        flow = self._context.flow
        self._decide(
            p, "source.truncated",
            f"{p.source} on {flow.source} lost {found.lost:,} record(s) that were mirrored, at"
            f" offsets [{found.offset}, {found.until}): its log went on from {found.offset} without"
            f" them (an unclean leader election?); {p.target} on {flow.target} still has them, at"
            f" offsets [{found.target}, {found.target_until})",
            self._context.on_truncation, "heliograph.on.truncation",
            f"{p.target} keeps them, and what the source has written since follows them: offsets"
            " are not the source's any more, but are translated exactly",
            f"{p.target} has the only copy: save it if it matters. Then delete {p.target.topic} to"
            " mirror what the source has now, or set heliograph.on.truncation=restart-topic to have"
            " that done, or =continue to keep these records and to append the source's new ones",
            found.offset, found.until,
        )  # fmt: skip

    # -- policies -----------------------------------------------------------------------------

    def _decide(
        self,
        p: PartitionCopy,
        code: str,
        text: str,
        policy: str,
        key: str,
        consequence: str,
        hint: str,
        first: int = -1,
        until: int = -1,
    ) -> None:
        """Add an event, once, and raise PartitionError unless the policy is to continue."""
        if policy == CONTINUE:
            setting = f"{key}={policy}"
            self._add_event(p, code, f"{text}; {consequence} ({setting})", first, until, setting)
            return
        if policy == RESTART_TOPIC:
            hint = (
                f"{p.target.topic} is going to be deleted and mirrored from the start"
                f" ({key}={policy}), unless others have written to it; an event says when"
            )
        error = PartitionError(code, text, hint)
        if p.failing is None or p.failing.why != str(error):
            self._add_event(p, code, text, first, until)
        raise error
