"""What there is to compare of a flow, cut into ranges. Runs in the driver.

No partition that the flow mirrors is left out silently: what cannot be compared has its reason in
the report.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from heliograph.batch.records import decode
from heliograph.config import FlowConfig
from heliograph.control.topics.refresh import Comparison, TopicRefresh
from heliograph.errors import HeliographError
from heliograph.ledger.reverse import looping, reverse_of
from heliograph.ledger.signatures import signatures
from heliograph.ledger.store import LedgerStore
from heliograph.model import Flow, Guard, TopicPartition
from heliograph.policy import ledger_topic, policy_from, quarantine_topic
from heliograph.verify.checking import MARGIN
from heliograph.verify.model import Range, Side, VerifyContext
from heliograph.verify.report import PartitionReport
from heliograph.verify.views import PATIENCE_SECONDS, Choice, View, Viewer
from heliograph.wire import admin, configs, log
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import WireError
from heliograph.wire.log_sizes import log_sizes
from heliograph.wire.rights import denied, missing_right

#: A range is about this large: a fraction of a second for an executor.
_RANGE_BYTES = 64 << 20
#: Where a broker does not tell how large a partition is, a record is taken to be this large.
_RECORD_BYTES = 512
#: A sample is drawn from so many ranges of a partition at least, if it has the records for it.
_SAMPLED_RANGES, _SAMPLED_OFFSETS = 20, 1000
_NOWHERE = -1


class VerifyError(HeliographError):
    """There is nothing to verify, or no way to."""


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
        #: What came from the target, by partition.
        self._guards: Mapping[TopicPartition, Guard] = {}

    def _viewer(self) -> Viewer:
        return Viewer(
            self._config, self._choice, self._source, self._target, self._ledger,
            self._producer_id, self._guards,
        )  # fmt: skip

    # -- the plan -----------------------------------------------------------------------------

    def plan(self) -> Plan:
        """Look, and cut into ranges; raises VerifyError or WireError."""
        found = self._source.retry(
            lambda: TopicRefresh(self._config, self._source, self._target).compare(),
            PATIENCE_SECONDS,
        )
        found = self._chosen(found)
        self._sign()
        self._guards = self._look_back(found)
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
        notes: list[str] = []
        plan = Plan(self._context(notes), [], list(reports.values()), {}, 0, notes=notes)
        compacted = self._compacted(found, notes)
        quarantined = self._quarantined(found)
        sizes = self._sizes(found)
        views = self._viewer().views(found, reports)
        ranges: list[Range] = []
        for partition, view in views.items():
            report = reports[partition]
            report.begin, report.end = view.low, view.high
            report.totals.pending = view.pending
            report.totals.never = len(view.never)
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
        view = self._viewer().views(found, {part.source: report}, wait=False).get(part.source)
        if view is None or view.place.target_id != part.target_id:
            return None
        begin, end = max(part.begin, view.low), min(part.end, view.high)
        fresh = self._range(view, begin, end, part.number)
        first = part.target_begin if begin == part.begin else fresh.target_begin
        return replace(
            fresh, target_begin=max(first, view.target_low), bytes=part.bytes,
            quarantined=part.quarantined, compacted=part.compacted,
        )  # fmt: skip

    def _context(self, notes: list[str]) -> VerifyContext:
        config = self._config
        return VerifyContext(
            config.flow, config.source_client, config.target_client, self._producer_id,
            self._read_committed, self._others(notes), self._choice.most,
        )  # fmt: skip

    def _others(self, notes: list[str]) -> dict[int, str]:
        """The other flows into the target, by the producer ids that they sign with."""
        source, target = self._config.flow.source, self._config.flow.target
        found = signatures(self._target)
        for alias, why in found.unread.items():
            if alias != source:
                notes.append(
                    f"{ledger_topic(alias)} cannot be read, so that records of {alias}->{target}"
                    f" would count as extra: {why}"
                )
        return {
            producer_id: str(Flow(alias, target))
            for producer_id, alias in found.sources.items()
            if alias != source and producer_id != self._producer_id
        }

    def _look_back(self, found: Comparison) -> Mapping[TopicPartition, Guard]:
        """What a flow in the opposite direction has brought, where names let that come back."""
        flow = self._config.flow
        topics = looping(policy_from(self._config), found.remote, flow.source, flow.target)
        reverse = reverse_of(self._config, self._source, self._target, found.source, topics)
        if reverse is None:
            return {}
        wanted = {p: name for p, name in found.partitions.items() if p.topic in topics}
        return reverse.guards(wanted, found.source, found.target)

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
                notes.append(f"{right}{more}; until then only holes in a log tell of compaction")
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

    # -- cutting ------------------------------------------------------------------------------

    def _cut(
        self,
        view: View,
        size: int | None,
        compacted: frozenset[Side],
        quarantined: frozenset[int],
        number: int,
    ) -> list[Range]:
        offsets, deleted = view.high - view.low, len(view.deleted)
        total = _RECORD_BYTES * (offsets + deleted) if size is None else size
        lost = total * deleted // max(offsets + deleted, 1)
        found = [
            self._deleted_range(view, begin, end, size)
            for begin, end, size in (self._pieces(view.deleted, lost) if deleted else ())
        ]
        if offsets or view.target_low < view.target_end:
            spans = [(view.low, view.high, total - lost)]
            if not compacted:
                spans = self._pieces(range(view.low, view.high), total - lost)
            found += [
                replace(self._range(view, begin, end), bytes=size, compacted=compacted)
                for begin, end, size in spans
            ]
        return [
            replace(part, number=number + index,
                    quarantined=frozenset(o for o in quarantined if part.begin <= o < part.end))
            for index, part in enumerate(found)
        ]  # fmt: skip

    def _pieces(self, offsets: range, total: int) -> list[tuple[int, int, int]]:
        """Offsets of ``total`` bytes cut evenly: begin, end and bytes of each piece."""
        pieces = -(-total // _RANGE_BYTES)
        if self._choice.sample is not None:
            pieces = max(pieces, min(_SAMPLED_RANGES, len(offsets) // _SAMPLED_OFFSETS))
        pieces = max(min(pieces, len(offsets)), 1)
        cuts = [offsets.start + len(offsets) * n // pieces for n in range(pieces + 1)]
        return [(begin, end, total // pieces) for begin, end in pairwise(cuts)]

    def _deleted_range(self, view: View, begin: int, end: int, size: int) -> Range:
        return replace(
            self._range(view, begin, end), bytes=size, deleted=True, last=False,
            stretches=view.claims.between(begin, end), inferred=view.inferred,
            pruned_below=view.pruned_below,
        )  # fmt: skip

    @staticmethod
    def _range(view: View, begin: int, end: int, number: int = 0) -> Range:
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
            guard=view.guard,
        )

    def _sampled(self, ranges: list[Range]) -> list[Range]:
        if self._choice.sample is None:
            return ranges
        count = max(round(len(ranges) * self._choice.sample / 100), min(len(ranges), 1))
        chosen = random.Random(self._choice.seed).sample(ranges, count)  # noqa: S311 - no secret
        return sorted(chosen, key=lambda r: r.number)
