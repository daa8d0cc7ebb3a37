"""What there is to compare of a flow, cut into ranges. Runs in the driver.

No partition that the flow mirrors is left out silently: what cannot be compared has its reason in
the report.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from heliograph.batch.header import PRODUCER_EPOCH, SEQUENCE_MODULUS, batches
from heliograph.batch.records import decode
from heliograph.config import FlowConfig
from heliograph.control.topics import Comparison, TopicRefresh
from heliograph.errors import HeliographError
from heliograph.ledger.codec import Place
from heliograph.ledger.runs import PartitionLedger, unwrap
from heliograph.ledger.store import LedgerStore
from heliograph.model import TopicPartition
from heliograph.policy import ledger_topic, quarantine_topic
from heliograph.verify.checking import MARGIN
from heliograph.verify.expected import Expected, stretches_of
from heliograph.verify.model import Gone, Range, Side, VerifyContext
from heliograph.verify.report import PartitionReport
from heliograph.wire import admin, configs, log
from heliograph.wire.admin import ProducerState
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import ConnectionFailed, WireError
from heliograph.wire.log_sizes import log_sizes
from heliograph.wire.metadata import Metadata
from heliograph.wire.rights import denied, missing_right

__all__ = ["Choice", "Plan", "Planner", "VerifyError"]

_PATIENCE_SECONDS = 10.0
#: A range is about this large: a fraction of a second for an executor.
_RANGE_BYTES = 64 << 20
#: Where a broker does not tell how large a partition is, a record is taken to be this large.
_RECORD_BYTES = 512
#: A sample is drawn from so many ranges of a partition at least, if it has the records for it.
_SAMPLED_RANGES, _SAMPLED_OFFSETS = 20, 1000
#: A mirror that does not get on for so long is not waited for any longer.
_IDLE_SECONDS, _POLL_SECONDS = 3.0, 0.2
_NOWHERE = -1


class VerifyError(HeliographError):
    """There is nothing to verify, or no way to."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What the user wants to be compared.

    Attributes:
        topics: regular expressions for names on the source; none: all that the flow mirrors.
        begin: only source offsets from here on, of one topic; ``end``: to before there.
        sample: percent of the ranges, chosen by ``seed``.
        complete: whether all that is on the source now has to be on the target.
    """

    topics: tuple[re.Pattern[str], ...] = ()
    begin: int | None = None
    end: int | None = None
    sample: float | None = None
    seed: int = 0
    complete: bool = False
    most: int = 20


@dataclass(slots=True)
class Plan:
    """The ranges to compare and the reports that their results go to, by the range's number."""

    context: VerifyContext
    ranges: list[Range]
    reports: list[PartitionReport]
    by_number: Mapping[int, PartitionReport]
    offered: int
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Sight:
    """Both logs of a partition and its ledger, as they were a moment ago."""

    ledger: PartitionLedger
    source_start: int
    source_end: int
    target_start: int
    target_end: int
    states: Sequence[ProducerState]
    earlier: int | None
    """Where records of an earlier source topic end on the target, if it holds any."""


@dataclass(slots=True)
class _View:
    """What is to be compared of a partition."""

    place: Place
    target: TopicPartition
    expected: Expected
    low: int
    high: int
    goal: int
    target_low: int
    target_end: int
    pending: int
    gone: list[Gone]
    problems: list[str]
    notes: list[str]


class Planner:
    """Looks at both clusters and the ledger; one thread at a time."""

    def __init__(
        self, config: FlowConfig, choice: Choice, source: ClusterClient, target: ClusterClient
    ) -> None:
        self._config = config
        self._choice = choice
        self._source = source
        self._target = target
        self._ledger = LedgerStore(target, ledger_topic(config.flow.source))
        self._read_committed = config.isolation_level == "read_committed"
        self._producer_id = _NOWHERE

    # -- the plan -----------------------------------------------------------------------------

    def plan(self) -> Plan:
        """Look, and cut into ranges; raises VerifyError or WireError."""
        found = self._source.retry(
            lambda: TopicRefresh(self._config, self._source, self._target).compare(),
            _PATIENCE_SECONDS,
        )
        found = self._chosen(found)
        self._sign()
        reports = {
            TopicPartition(topic, index): PartitionReport(
                TopicPartition(topic, index), TopicPartition(remote, index)
            )
            for topic, remote in found.remote.items()
            for index in found.source.topics[topic].partitions
        }
        for partition, report in reports.items():
            if partition not in found.partitions:
                report.problems.append(self._why_not_there(found, partition))
        plan = Plan(self._context(), [], list(reports.values()), {}, 0)
        compacted = self._compacted(found, plan.notes)
        quarantined = self._quarantined(found)
        sizes = self._sizes(found)
        views = self._views(found, reports)
        ranges: list[Range] = []
        for partition, view in views.items():
            report = reports[partition]
            report.begin, report.end = view.low, view.high
            report.totals.pending = view.pending
            report.gone += view.gone
            report.problems += view.problems
            report.notes += view.notes
            ranges += self._cut(
                view, sizes.get(partition), compacted.get(partition.topic, frozenset()),
                quarantined.get(partition, frozenset()), len(ranges),
            )  # fmt: skip
        plan.offered = len(ranges)
        plan.ranges = self._sampled(ranges)
        plan.by_number = {r.number: reports[r.source] for r in plan.ranges}
        for part in plan.ranges:
            reports[part.source].planned += 1
        return plan

    def again(self, part: Range) -> Range | None:
        """The range as it is now: whoever mirrors may have been at it. None: it is gone."""
        found = Comparison(
            self._source.metadata([part.source.topic]),
            self._target.metadata([part.target.topic]),
            {part.source.topic: part.target.topic},
        )
        if part.source not in found.partitions:
            return None
        report = PartitionReport(part.source, part.target)
        view = self._views(found, {part.source: report}, wait=False).get(part.source)
        if view is None or view.place.target_id != part.target_id:
            return None
        begin, end = max(part.begin, view.low), min(part.end, view.high)
        fresh = self._range(view, begin, end, part.number)
        first = part.target_begin if begin == part.begin else fresh.target_begin
        return replace(
            fresh, target_begin=max(first, view.target_low), bytes=part.bytes,
            quarantined=part.quarantined, compacted=part.compacted,
        )  # fmt: skip

    def _context(self) -> VerifyContext:
        config = self._config
        return VerifyContext(
            config.flow, config.source_client, config.target_client, self._producer_id,
            self._read_committed, self._choice.most,
        )  # fmt: skip

    def _sign(self) -> None:
        """The flow's signature, from the ledger."""
        flow, topic = self._config.flow, ledger_topic(self._config.flow.source)
        if topic not in self._target.metadata([topic]).topics:
            raise VerifyError(
                "verify.no-ledger",
                f"{flow} was never mirrored by Heliograph: {flow.target} has no {topic}",
                "start it with: heliograph run FILE",
            )
        self._ledger.refresh()
        signature = self._ledger.signature
        if signature is None:
            return
        self._producer_id = signature.producer_id
        ids = self._source.cluster_id(), self._target.cluster_id()
        if (signature.source_cluster, signature.target_cluster) != ids:
            raise VerifyError(
                "verify.other-cluster",
                f"{topic} on {flow.target} belongs to a mirror of cluster"
                f" {signature.source_cluster}, but {flow.source} is {ids[0]}",
                f"check {flow.source}.bootstrap.servers and {flow.target}.bootstrap.servers",
            )

    def _chosen(self, found: Comparison) -> Comparison:
        patterns = self._choice.topics
        remote = {
            topic: name for topic, name in found.remote.items()
            if not patterns or any(p.fullmatch(topic) for p in patterns)
        }  # fmt: skip
        flow = self._config.flow
        if not remote:
            asked = ", ".join(p.pattern for p in patterns)
            what = f"no topic that matches {asked}" if patterns else "no topic"
            known = ", ".join(sorted(found.remote)[:5])
            hint = f"it mirrors {known}" if known else "check the key topics"
            raise VerifyError("verify.no-topics", f"{flow} mirrors {what}", hint)
        if (self._choice.begin is not None or self._choice.end is not None) and len(remote) > 1:
            some = ", ".join(sorted(remote)[:5])
            raise VerifyError(
                "verify.range", f"--range is about one topic, and {len(remote)} are chosen: {some}",
                "choose one with --topic",
            )  # fmt: skip
        return replace(found, remote=remote)

    def _why_not_there(self, found: Comparison, partition: TopicPartition) -> str:
        remote, there = found.remote[partition.topic], self._config.flow.target
        if remote in found.target.denied:
            right = missing_right(self._target.settings, "Describe", "topic", remote)
            return f"{remote} is not shown to us on {there}: {right}"
        if remote not in found.target.topics:
            return f"{there} has no topic {remote}: nothing of it is mirrored"
        return f"{remote} on {there} has no partition {partition.partition}"

    def _compacted(self, found: Comparison, notes: list[str]) -> dict[str, frozenset[Side]]:
        """On which sides of each topic a cleaner may remove records."""
        sides: dict[str, set[Side]] = {}
        for side, client, names in (
            (Side.SOURCE, self._source, {t: t for t in found.remote}),
            (Side.TARGET, self._target, {n: t for t, n in found.remote.items()
                                         if n in found.target.topics}),
        ):  # fmt: skip
            answer = configs.describe(client, names, ["cleanup.policy"])
            for name, topic in names.items():
                if "compact" in answer.value(name, "cleanup.policy", ""):
                    sides.setdefault(topic, set()).add(side)
            secret = sorted(n for n, error in answer.failed.items() if denied(error.code))
            if secret:
                right = missing_right(client.settings, "DescribeConfigs", "topic", secret[0])
                more = f" ({len(secret) - 1} more topics like that)" if secret[1:] else ""
                notes.append(f"{right}{more}; until then topics are taken for not compacted")
        return {topic: frozenset(found) for topic, found in sides.items()}

    def _quarantined(self, found: Comparison) -> dict[TopicPartition, frozenset[int]]:
        """Source offsets of records that were set aside."""
        name = quarantine_topic(self._config.flow.source)
        if name not in self._target.metadata([name]).topics:
            return {}
        kept: dict[TopicPartition, set[int]] = {}
        partition = TopicPartition(name, 0)
        metadata = self._target.metadata([name])
        start = admin.list_offsets(self._target, metadata, [partition], admin.EARLIEST)
        for chunk in log.read_to_end(self._target, partition, start.get(partition, 0)):
            for record in decode(chunk):
                origin = dict(record.headers)
                topic = (origin.get("heliograph.source.topic") or b"").decode()
                if topic in found.remote:
                    where = int(origin.get("heliograph.source.partition") or b"0")
                    at = int(origin.get("heliograph.source.offset") or b"-1")
                    kept.setdefault(TopicPartition(topic, where), set()).add(at)
        return {p: frozenset(offsets) for p, offsets in kept.items()}

    def _sizes(self, found: Comparison) -> dict[TopicPartition, int]:
        try:
            return log_sizes(self._source, found.source, found.partitions)
        except WireError:
            # Only to cut evenly; some may not ask that.
            return {}

    # -- looking ------------------------------------------------------------------------------

    def _views(
        self,
        found: Comparison,
        reports: Mapping[TopicPartition, PartitionReport],
        *,
        wait: bool = True,
    ) -> dict[TopicPartition, _View]:
        """What is to be compared of each partition; waits for the mirror if all has to be there."""
        goals: dict[TopicPartition, int] = {}
        ends = self._ends(found)
        idle_at = time.monotonic() + _IDLE_SECONDS
        while True:
            sights = self._look(found, ends)
            views = {p: self._view(found, p, sight) for p, sight in sights.items()}
            behind = any(v.goal < ends[p] for p, v in views.items())
            if not (wait and self._choice.complete and behind):
                break
            now = {p: v.goal for p, v in views.items()}
            if now != goals:
                goals, idle_at = now, time.monotonic() + _IDLE_SECONDS
            elif time.monotonic() > idle_at:
                break
            time.sleep(_POLL_SECONDS)
        for partition in found.partitions:
            if partition not in views:
                reports[partition].problems.append("a leader does not answer")
        return views

    def _ends(self, found: Comparison) -> dict[TopicPartition, int]:
        return self._complete(
            self._source, found.source, found.partitions, admin.LATEST, self._read_committed
        )

    def _complete(
        self,
        client: ClusterClient,
        metadata: Metadata,
        partitions: Collection[TopicPartition],
        at: int,
        read_committed: bool = False,
    ) -> dict[TopicPartition, int]:
        """Offsets of partitions; those whose leader does not answer for long are absent."""
        answer: dict[TopicPartition, int] = {}
        known: list[Metadata] = [metadata]

        def ask() -> None:
            # Leaders may have moved since the last try.
            fresh = known.pop() if known else client.metadata(sorted({p.topic for p in partitions}))
            answer.update(
                admin.list_offsets(client, fresh, partitions, at, read_committed=read_committed)
            )
            if len(answer) < len(partitions):
                raise ConnectionFailed(f"some leaders of {client.alias} do not answer")

        try:
            client.retry(ask, _PATIENCE_SECONDS)
        except ConnectionFailed:
            if not answer:
                raise
        return answer

    def _look(
        self, found: Comparison, ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, _Sight]:
        target_of = {p: TopicPartition(name, p.partition) for p, name in found.partitions.items()}
        targets = list(target_of.values())
        # The target's ends first, then its sequences, then the ledger: all that is below an end was
        # announced before, and how far the flow is by its sequence is not less.
        target_ends = self._complete(self._target, found.target, targets, admin.LATEST)
        states = admin.describe_producers(self._target, found.target, targets)
        target_starts = self._complete(self._target, found.target, targets, admin.EARLIEST)
        starts = self._complete(self._source, found.source, found.partitions, admin.EARLIEST)
        self._ledger.refresh()
        sights = {}
        for partition, target in target_of.items():
            known = (partition in ends and partition in starts and target in target_ends
                     and target in target_starts)  # fmt: skip
            if not known:
                continue
            place = self._place(found, partition)
            earlier = self._ledger.other_sources(place)
            ledger = self._ledger.at(place)
            begun = ledger.runs[0].target if ledger.runs else target_ends[target]
            sights[partition] = _Sight(
                ledger, starts[partition], ends[partition], target_starts[target],
                target_ends[target], states.get(target, []),
                begun if earlier else None,
            )  # fmt: skip
        return sights

    @staticmethod
    def _place(found: Comparison, partition: TopicPartition) -> Place:
        here = found.source.topics[partition.topic]
        there = found.target.topics[found.remote[partition.topic]]
        return Place(partition.topic, partition.partition, here.topic_id, there.topic_id)

    def _view(self, found: Comparison, partition: TopicPartition, sight: _Sight) -> _View:
        ledger, choice = sight.ledger, self._choice
        target = TopicPartition(found.remote[partition.topic], partition.partition)
        inherited = ledger.inherited.end
        target_low = max(sight.target_start, inherited)
        low, goal = sight.source_start, sight.source_start
        gone: list[Gone] = []
        problems: list[str] = []
        notes: list[str] = []
        expected = Expected([])
        if sight.earlier is not None and sight.earlier > target_low:
            notes.append(
                f"target offsets [{target_low}, {sight.earlier}) are of an earlier topic"
                f" {partition.topic}, which was deleted on {self._config.flow.source}"
            )
            target_low = sight.earlier
        if ledger.runs:
            end = self._end(ledger, sight, target)
            goal = ledger.source_of(end)
            expected = Expected(stretches_of(ledger, end, target_low))
            first = ledger.runs[0]
            begun = first.source
            if inherited:
                # Not compared: MM2 may have repeated or left out what it liked.
                behind = expected.source_from(target_low)
                begun = goal if behind is None else behind
                if begun > low:
                    text = (f"source offsets [{low}, {begun}) were mirrored by MM2 before the"
                            " take-over, and are not compared")  # fmt: skip
                    problems.append(text)
                    low = begun
            elif self._config.auto_offset_reset == "latest" and begun > low:
                notes.append(
                    f"source offsets [{low}, {begun}) were never to be mirrored"
                    " (auto.offset.reset=latest)"
                )
                low = begun
            # What the target does not have any more.
            if sight.target_start > first.target:
                kept = expected.source_from(sight.target_start)
                kept = goal if kept is None else kept
                if kept > low:
                    gone.append(Gone(Side.TARGET, low, kept))
                    low = kept
            # What the source does not have any more.
            there = expected.source_from(target_low)
            if there is not None and there < sight.source_start:
                gone.append(Gone(Side.SOURCE, there, min(sight.source_start, goal)))
                kept_at = expected.target_from(sight.source_start)
                target_low = sight.target_end if kept_at is None else kept_at
        elif sight.earlier is not None:
            problems.append(
                f"source topic {partition.topic} was deleted and created again; nothing of the new"
                " one is mirrored"
            )
        high = max(goal, sight.source_end) if choice.complete else max(goal, low)
        pending = 0 if choice.complete else max(sight.source_end - max(goal, low), 0)
        target_end = sight.target_end
        view = _View(
            self._place(found, partition), target, expected, low, max(high, low), goal,
            min(target_low, target_end), target_end, pending, gone, problems, notes,
        )  # fmt: skip
        return self._limited(view)

    def _limited(self, view: _View) -> _View:
        """Only the offsets that were asked for."""
        begin, end = self._choice.begin, self._choice.end
        if begin is None and end is None:
            return view
        if begin is not None and begin > view.low:
            at = view.expected.target_from(begin)
            view.target_low = view.target_end if at is None else max(at, view.target_low)
            view.low = begin
        if end is not None:
            if end < view.high:
                at = view.expected.target_from(end)
                view.target_end = view.target_end if at is None else min(at, view.target_end)
                view.high = max(end, view.low)
            view.pending = min(view.pending, max(end - max(view.goal, view.low), 0))
        view.high = max(view.high, view.low)
        lowest, highest = begin or 0, view.high if end is None else end
        view.gone = [
            Gone(g.side, max(g.begin, lowest), min(g.end, highest)) for g in view.gone
            if max(g.begin, lowest) < min(g.end, highest)
        ]  # fmt: skip
        return view

    def _end(self, ledger: PartitionLedger, sight: _Sight, target: TopicPartition) -> int:
        """The sequence behind the last record that is mirrored, below the target's end."""
        target_end = sight.target_end
        run = ledger.at_target(target_end)
        following = ledger.after(run.sequence)
        by_end = run.sequence + max(target_end - run.target, 0)
        if following:
            by_end = min(by_end, following[0].sequence)
        mine = [s for s in sight.states if s.producer_id == self._producer_id]
        if mine and mine[0].last_sequence >= 0:
            wrapped = (mine[0].last_sequence + 1) % SEQUENCE_MODULUS
            return min(by_end, unwrap(wrapped, by_end, SEQUENCE_MODULUS))
        return self._scanned(ledger, sight, target, by_end)

    def _scanned(
        self, ledger: PartitionLedger, sight: _Sight, target: TopicPartition, by_end: int
    ) -> int:
        """The same where the broker has forgotten the flow: by its last batch in the log."""
        position = sight.target_end - 1
        while position >= max(sight.target_start, ledger.runs[0].target):
            fetched = log.read_once(self._target, target, position)
            header = next((h for h, _ in batches(fetched.records)), None)
            if header is None:
                break
            own = header.producer_id == self._producer_id and not header.control
            if own and header.producer_epoch == PRODUCER_EPOCH:
                behind = header.base_sequence + header.record_count
                return min(by_end, unwrap(behind % SEQUENCE_MODULUS, by_end, SEQUENCE_MODULUS))
            position = min(header.base_offset, position) - 1
        return by_end

    # -- cutting ------------------------------------------------------------------------------

    def _cut(
        self,
        view: _View,
        size: int | None,
        compacted: frozenset[Side],
        quarantined: frozenset[int],
        number: int,
    ) -> list[Range]:
        offsets = view.high - view.low
        if not offsets and view.target_low >= view.target_end:
            return []
        total = _RECORD_BYTES * offsets if size is None else size
        pieces = 1
        if not compacted:
            pieces = max(pieces, -(-total // _RANGE_BYTES))
            if self._choice.sample is not None:
                pieces = max(pieces, min(_SAMPLED_RANGES, offsets // _SAMPLED_OFFSETS))
        pieces = max(min(pieces, offsets), 1)
        cuts = [view.low + offsets * n // pieces for n in range(pieces + 1)]
        found = []
        for index in range(pieces):
            begin, end = cuts[index], cuts[index + 1]
            part = self._range(view, begin, end, number + index)
            found.append(replace(
                part, bytes=total // pieces, compacted=compacted,
                quarantined=frozenset(o for o in quarantined if begin <= o < end),
            ))  # fmt: skip
        return found

    @staticmethod
    def _range(view: _View, begin: int, end: int, number: int) -> Range:
        expected = view.expected
        target_begin, target_end = view.target_low, view.target_end
        if begin > view.low:
            at = expected.target_from(begin)
            target_begin = target_end if at is None else at
        if end < view.high:
            at = expected.target_from(end)
            target_end = target_end if at is None else at
        return Range(
            number=number,
            source=TopicPartition(view.place.topic, view.place.partition),
            target=view.target,
            source_id=view.place.source_id,
            target_id=view.place.target_id,
            begin=begin,
            end=end,
            target_begin=target_begin,
            target_end=target_end,
            low=view.low,
            high=view.high,
            goal=view.goal,
            target_low=view.target_low,
            target_high=view.target_end,
            stretches=expected.between(begin - MARGIN, end + MARGIN),
            last=end == view.high,
        )

    def _sampled(self, ranges: list[Range]) -> list[Range]:
        if self._choice.sample is None:
            return ranges
        count = max(round(len(ranges) * self._choice.sample / 100), min(len(ranges), 1))
        chosen = random.Random(self._choice.seed).sample(ranges, count)  # noqa: S311 - no secret
        return sorted(chosen, key=lambda r: r.number)
