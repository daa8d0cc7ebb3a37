"""What a failback finds on both sides, and what speaks against it. Nothing is changed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace

from heliograph.config import FlowConfig
from heliograph.failover.brought import Copies, brought
from heliograph.failover.divergence import Parted, compare_logs, never_begun
from heliograph.failover.failback_plan import FailbackPlan, FailbackWish, Totals
from heliograph.failover.pair import other_direction, refusal_of_open
from heliograph.failover.refusals import HandoverRefused
from heliograph.failover.source_side import see_source
from heliograph.failover.target_side import Mirrored, TargetSide
from heliograph.failover.unmirrored import Choice, Unmirrored, merged, read_noted
from heliograph.ledger.handovers import CutAt, Handover, Kind
from heliograph.ledger.holds import Subject
from heliograph.ledger.reverse import loops
from heliograph.model import TopicPartition
from heliograph.policy import TopicSelection
from heliograph.units import counted, moment
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.metadata import Metadata

__all__ = ["FailbackLook", "failback_parts"]

_REQUEST_SECONDS = 10.0


def failback_parts() -> tuple[Subject, ...]:
    """What changes direction of a whole flow: heartbeats go both ways all the time."""
    return Subject.part("copying"), Subject.part("checkpoints")


class FailbackLook:
    """Connections to both clusters, and what they say. Close it.

    Attributes:
        side: the flow as its target knows it.
        source: a client of the old source.
        reverse: the flow of the other direction; it needs to be in the file, and enabled.
    """

    def __init__(self, config: FlowConfig, reverse: FlowConfig | None, wish: FailbackWish) -> None:
        self._config = config
        self._wish = wish
        self.reverse = reverse
        self._open = ExitStack()
        self.side = self._open.enter_context(TargetSide(config))
        self.source = self._open.enter_context(
            ClusterClient(
                config.source_admin, f"{config.flow}|failback-source",
                request_timeout=_REQUEST_SECONDS,
            )
        )  # fmt: skip
        self._selection = TopicSelection(config)

    def close(self) -> None:
        """Close the connections."""
        self._open.close()

    # -- the plan -----------------------------------------------------------------------------

    def plan(self) -> FailbackPlan:
        """Compare both clusters; raises HeliographError, WireError."""
        self.side.open()
        failover, before = self._failover()
        flow, facts = str(self._config.flow), before.facts if before is not None else {}
        noted = read_noted(facts.get("unmirrored", ()))
        if before is not None and (not before.open or "settle" in before.steps):
            totals = Totals(*facts.get("totals", ()))
            settled: dict[str, Choice | None] = {u.source.topic: u.choice for u in noted}
            return FailbackPlan(flow, failover, before, (), settled, tuple(noted), totals)
        mirrored = self.side.mirrored()
        cuts = self.cuts(mirrored, failover)
        self._require_source()
        with other_direction(self.reverse) as back:
            parted = self._compare(mirrored, cuts, failover, back)
            being_done = refusal_of_open(back, failover.began_ms)
        totals = Totals(*facts["totals"]) if "totals" in facts else _totals(parted)
        topics = {p.source.topic for p in parted if p.here.records or p.must_rebuild}
        topics |= {u.source.topic for u in noted}
        choices = {topic: self._choice(topic, facts) for topic in sorted(topics)}
        now = [
            Unmirrored.of(p, choice) for p in parted
            if (p.here.records or p.must_rebuild)
            and (choice := choices[p.source.topic]) is not None
        ]  # fmt: skip
        known = [replace(u, choice=choices[u.source.topic] or u.choice) for u in noted]
        plan = FailbackPlan(
            flow, failover, before, tuple(parted), choices, tuple(merged(known, now)), totals
        )
        refusals = [being_done] if being_done is not None else []
        return replace(plan, refusals=(*refusals, *self._against(plan)))

    def _choice(self, topic: str, facts: Mapping[str, dict[str, str]]) -> Choice | None:
        """What counts is what was said when the settling was begun."""
        decided = facts.get("choices", {}).get(topic)
        asked = self._wish.choice(topic)
        if decided is None or (asked is not None and not facts.get("settling")):
            return asked
        return Choice(decided)

    def _failover(self) -> tuple[Handover, Handover | None]:
        """The failover that is taken back, and the failback that was begun, or is through."""
        last, flow = self.side.handovers.last, self._config.flow
        if last is not None and last.kind is Kind.FAILBACK and (last.open or self._stands(last)):
            facts = last.facts["failover"]
            failed = Handover(facts["id"], Kind.FAILOVER, facts["by"], facts["began"], last.topics)
            return failed, last
        if last is None or last.kind is not Kind.FAILOVER or last.aborted:
            raise HandoverRefused(
                "failback.no-failover", f"flow {flow} was not failed over to {flow.target}",
                f"clients come back from a switchover with 'heliograph switchover --to"
                f" {flow.source}'",
            )  # fmt: skip
        if last.open:
            raise HandoverRefused(
                "failback.open-failover",
                f"the failover of {flow} that {last.by} began at {moment(last.began_ms / 1000)}"
                " is not through",
                f"'heliograph failover FILE --to {flow.target}' goes on with it",
            )
        self._require_rest(last)
        return last, None

    def _require_rest(self, failover: Handover) -> None:
        """What was copied since it was resumed has moved the place where logs part."""
        flow, topics, held = self._config.flow, failover.topics, self.side.holds.held
        subjects = failback_parts()[:1] if topics is None else map(Subject.topic, topics)
        resumed = [subject.name for subject in subjects if subject not in held]
        if resumed:
            what = f"{flow}" if topics is None else f"{resumed[0]} of {flow}"
            again = f"heliograph failover FILE --to {flow.target} --force"
            if topics is not None:
                again += " --topics"
            raise HandoverRefused(
                "failback.resumed",
                f"{what} was resumed since it was failed over, and is copied",
                f"if clients are still at {flow.target}, '{again}' stops it, and notes anew where"
                " the logs part; then repeat this command",
            )

    def _stands(self, failback: Handover) -> bool:
        """Whether a failback that is through is as it was left: the flow stands by."""
        topics, held = failback.topics, self.side.holds.held
        subjects = failback_parts() if topics is None else map(Subject.topic, topics)
        return all(subject in held and held[subject].standby for subject in subjects)

    def cuts(self, mirrored: Mirrored, failover: Handover) -> dict[TopicPartition, CutAt]:
        """Where the failover has cut partitions; raises HandoverRefused if that is not known."""
        # Topics that were promoted one by one rest one by one.
        resting = self.side.holds.topics if failover.topics is not None else {}
        found = {
            p: cut.partitions[p.partition]
            for p in mirrored.places
            for cut in [self.side.handovers.cuts.get(p.topic)]
            if cut is not None
            and p.partition in cut.partitions
            and (cut.handover == failover.id or p.topic in resting)
        }
        if not found:
            raise HandoverRefused(
                "failback.no-cut", f"where the failover of {self._config.flow} has cut the logs is"
                " not known: its topics on the target are others now",
            )  # fmt: skip
        return found

    def _require_source(self) -> None:
        seen, alias = see_source(self._config, ()), self._config.flow.source
        if not seen.answers:
            raise HandoverRefused(
                "failback.source-gone", f"{alias} does not answer: {seen.why_not}",
                f"bring {alias} back first; clients go on at {self._config.flow.target} meanwhile",
            )  # fmt: skip
        signature = self.side.store.signature
        if signature is not None and signature.source_cluster != seen.cluster_id:
            raise HandoverRefused(
                "failback.other-cluster",
                f"{alias} is another cluster now ({seen.cluster_id}) than the one that failed"
                f" ({signature.source_cluster})",
                "give it another alias, and mirror to it as to a new cluster",
            )

    # -- both logs ----------------------------------------------------------------------------

    def _compare(
        self,
        mirrored: Mirrored,
        cuts: Mapping[TopicPartition, CutAt],
        failover: Handover,
        other: TargetSide | None,
    ) -> list[Parted]:
        metadata = self.source.metadata()
        fresh = self._fresh(metadata, mirrored, {p.topic for p in cuts}, failover)
        known = mirrored.of({p.topic for p in cuts})
        back = self._brought({*cuts, *fresh}, other) if other is not None else {}
        parted = compare_logs(self.side, known, cuts, self.source, back)
        return sorted(
            [*parted, *never_begun(self.side, self.source, metadata, fresh, back)],
            key=lambda p: p.source,
        )

    def _fresh(
        self, metadata: Metadata, mirrored: Mirrored, cut: Collection[str], failover: Handover
    ) -> list[TopicPartition]:
        """Partitions of the flow of which nothing was mirrored before the failover."""
        if self._config.auto_offset_reset == "latest":
            return []
        return [
            TopicPartition(topic, index)
            for topic, found in metadata.topics.items()
            # Of a failover of some topics, all others go on being mirrored.
            if (topic in cut if failover.topics is not None else self._selection.includes(topic))
            and not self.side.policy.is_heartbeats_topic(topic)
            for index in found.partitions
            if TopicPartition(topic, index) not in mirrored.places
        ]

    def _brought(
        self, partitions: Collection[TopicPartition], back: TargetSide
    ) -> dict[TopicPartition, Copies]:
        """What the other direction has brought to the source, where names stay the same."""
        flow, policy = self._config.flow, self.side.policy
        pairs = {
            TopicPartition(self.side.remote_topic(p.topic), p.partition): p
            for p in partitions if loops(policy, p.topic, flow.source, flow.target)
        }  # fmt: skip
        return brought(back, pairs)

    # -- what speaks against it ---------------------------------------------------------------

    def _against(self, plan: FailbackPlan) -> Iterator[HandoverRefused]:
        flow, reverse = self._config.flow, self.reverse
        if reverse is None or not reverse.enabled:
            yield HandoverRefused(
                "failback.no-reverse",
                f"the file does not enable {flow.target}->{flow.source}: nothing can be mirrored"
                " back",
                f"add '{flow.target}->{flow.source}.enabled = true', its topics, and"
                f" '{flow.target}->{flow.source}.heliograph.standby = true'",
            )
            return
        topics = sorted({p.source.topic for p in plan.parted})
        renamed = [topic for topic in topics if self.side.remote_topic(topic) != topic]
        if renamed:
            yield HandoverRefused(
                "failback.renamed",
                f"topics have other names on {flow.target} ({self.side.remote_topic(renamed[0])}"
                f" is a copy of {renamed[0]}): {reverse.flow} does not mirror copies back",
                f"'heliograph resume --flow {flow}' lets the mirror go on with what {flow.source}"
                " has; groups are set by 'heliograph translate --reverse'. Failback needs"
                " IdentityReplicationPolicy",
            )
            return
        returned = TopicSelection(reverse)
        one_way = [topic for topic in topics if not returned.includes(topic)]
        if one_way:
            more = f" and {len(one_way) - 3} more" if one_way[3:] else ""
            yield HandoverRefused(
                "failback.one-way",
                f"{reverse.flow} does not mirror {', '.join(one_way[:3])}{more}: what"
                f" {flow.target} has taken since would not come to {flow.source}",
                f"add it to {reverse.flow}.topics",
            )
        yield from self._undecided(plan)
        yield from self._changed(plan)

    def _undecided(self, plan: FailbackPlan) -> Iterator[HandoverRefused]:
        source = self._config.flow.source
        settling = plan.before is not None and plan.before.facts.get("settling")
        open_choices = [topic for topic, choice in plan.choices.items() if choice is None]
        if open_choices:
            counts = ", ".join(
                f"{topic} {counted(sum(p.here.records for p in plan.of(topic)), 'record')}"
                for topic in open_choices[:5]
            )
            more = f" and {len(open_choices) - 5} more" if open_choices[5:] else ""
            yield HandoverRefused(
                "failback.unmirrored",
                f"only {source} has records of {counted(len(open_choices), 'topic')}:"
                f" {counts}{more}",
                "say what becomes of them: --unmirrored keep, export or rebuild, or topic by topic"
                " (--unmirrored 'orders=export,*=keep')",
            )
        for topic, choice in plan.choices.items():
            asked = self._wish.choice(topic)
            if settling and asked is not None and choice is not None and asked is not choice:
                yield HandoverRefused(
                    "failback.decided",
                    f"the failback that was begun has settled, or begun to settle, {topic} by"
                    f" '{choice}', not by '{asked}'",
                    "repeat the command with the same --unmirrored, or without it",
                )
        for p in plan.parted:
            # A topic that an earlier run has deleted is gone as it should be.
            if p.must_rebuild and plan.choices.get(p.source.topic) is Choice.KEEP:
                yield HandoverRefused(
                    "failback.must-rebuild",
                    f"{p.source} on {source} cannot be kept: {p.must_rebuild}",
                    f"--unmirrored '{p.source.topic}=rebuild', or export",
                )

    def _changed(self, plan: FailbackPlan) -> Iterator[HandoverRefused]:
        """Whether a saved plan is about other logs than those that are there."""
        expected, source = self._wish.expected, self._config.flow.source
        if expected is None:
            return
        hint = "make sure that nobody writes to it, and save the plan anew"
        if expected.failover != plan.failover.id:
            began = moment(plan.failover.began_ms / 1000)
            yield HandoverRefused(
                "failback.plan-old", f"the plan is about another failover than that of {began}",
                hint,
            )  # fmt: skip
            return
        now = {u.source: (u.begin, u.end) for u in plan.unmirrored if u.records}
        now |= {p.source: (p.here.begin, p.here.end) for p in plan.parted if p.here.records}
        for p in sorted({*now, *expected.ends}):
            if now.get(p) != expected.ends.get(p):
                is_now = f"ends at {now[p][1]} now" if p in now else "has no records of its own now"
                said = f"ends at {expected.ends[p][1]}" if p in expected.ends else "has none"
                yield HandoverRefused(
                    "failback.plan-old",
                    f"{p} on {source} {is_now}, by the plan it {said}", hint,
                )  # fmt: skip
                return


def _totals(parted: Collection[Parted]) -> Totals:
    return Totals(
        sum(p.here.records for p in parted),
        sum(p.there.records for p in parted),
        sum(p.here.deleted for p in parted),
        sum(p.there.deleted for p in parted),
    )
