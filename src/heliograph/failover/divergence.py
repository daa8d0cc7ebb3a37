"""How source and target have parted since a failover: what only one of them has.

Positions of the failover's cut are compared with both logs as they are now, and leader epochs tell
whether the source still has what was mirrored of it. Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from heliograph.copy.leader_epochs import divergence
from heliograph.failover.refusals import HandoverRefused
from heliograph.failover.target_side import Mirrored, TargetSide
from heliograph.ledger.handovers import CutAt
from heliograph.ledger.runs import PartitionLedger
from heliograph.model import TopicPartition
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.epochs import EpochEnd, epoch_ends
from heliograph.wire.errors import NONE
from heliograph.wire.metadata import Metadata

__all__ = ["Parted", "compare_logs"]


@dataclass(frozen=True, slots=True)
class Parted:
    """A partition, and how its two logs differ.

    Attributes:
        cut: where the failover has cut them.
        source_end, target_end: where they end now.
        source_id: the source topic's id; empty if there is no such topic or partition any more.
        lost: records that were mirrored and that the source does not have any more.
        recreated: whether the source topic is another one than the one that was mirrored.
    """

    source: TopicPartition
    target: TopicPartition
    cut: CutAt
    source_end: int
    target_end: int
    source_id: str
    lost: int = 0
    recreated: bool = False

    @property
    def only_source(self) -> int:
        """Offsets that only the source has: they were never mirrored."""
        if self.recreated or not self.source_id:
            return self.source_end
        return max(self.source_end - self.cut.source, 0)

    @property
    def only_target(self) -> int:
        """Offsets that were written to the target since the failover."""
        return max(self.target_end - self.cut.target, 0)

    @property
    def must_rebuild(self) -> str:
        """Why the source's log cannot be gone on with; empty if it can."""
        if not self.source_id:
            return "it is gone"
        if self.recreated:
            return "it was created anew"
        if self.lost:
            return f"it has lost {self.lost:,} records that were mirrored"
        return ""


def compare_logs(
    side: TargetSide,
    mirrored: Mirrored,
    cuts: Mapping[TopicPartition, CutAt],
    source: ClusterClient,
) -> list[Parted]:
    """Compare both logs of each partition; raises WireError, HandoverRefused."""
    topics = sorted({p.topic for p in cuts})
    metadata = source.metadata(topics)
    there = [
        p for p in cuts
        if p.topic in metadata.topics and p.partition in metadata.topics[p.topic].partitions
    ]  # fmt: skip
    ends = admin.list_offsets(source, metadata, there, admin.LATEST)
    stable = admin.list_offsets(source, metadata, there, admin.LATEST, read_committed=True)
    _refuse_silent(side.flow.source, (p for p in there if p not in ends))
    _refuse_open(side.flow.source, {p: stable.get(p, end) for p, end in ends.items()}, ends)
    target_ends = side.ends(mirrored)
    _refuse_silent(side.flow.target, (mirrored.targets[p] for p in cuts if p not in target_ends))
    lost = _lost(side, mirrored, cuts, source, metadata, ends)
    found = []
    for p, cut in sorted(cuts.items()):
        source_id = str(metadata.topics[p.topic].topic_id) if p in ends else ""
        recreated = bool(source_id) and source_id != str(mirrored.places[p].source_id)
        found.append(
            Parted(
                p, mirrored.targets[p], cut, ends.get(p, 0), target_ends[p], source_id,
                0 if recreated else lost.get(p, 0), recreated,
            )
        )  # fmt: skip
    return found


def _refuse_silent(alias: str, silent: Iterable[TopicPartition]) -> None:
    for p in silent:
        raise HandoverRefused(
            "failback.silent", f"the leader of {p} on {alias} does not answer",
            f"bring the brokers of {alias} back first",
        )  # fmt: skip


def _refuse_open(
    alias: str, stable: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> None:
    for p, end in sorted(ends.items()):
        if stable[p] < end:
            raise HandoverRefused(
                "failback.open-transaction",
                f"{p} on {alias} has an open transaction at offset {stable[p]}: whether what is"
                " behind it counts is not decided",
                "end it: kafka-transactions.sh --bootstrap-server ... find-hanging, then abort; or"
                " wait for its time-out",
            )


def _lost(
    side: TargetSide,
    mirrored: Mirrored,
    cuts: Mapping[TopicPartition, CutAt],
    source: ClusterClient,
    metadata: Metadata,
    ends: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """How many mirrored records each partition of the source has lost."""
    found = {p: max(cuts[p].source - end, 0) for p, end in ends.items()}
    asking = {}
    for p in ends:
        ledger = side.store.at(mirrored.places[p])
        sequence = _sequence(ledger, cuts[p])
        asking[p] = divergence(ledger, sequence, metadata.leader_epoch(p.topic, p.partition))
    answers: dict[TopicPartition, EpochEnd] = {}
    while asking:
        wanted: dict[TopicPartition, int] = {}
        for p, question in list(asking.items()):
            try:
                wanted[p] = question.send(answers[p]) if p in answers else next(question)
            except StopIteration as ended:
                del asking[p]
                if ended.value is not None and not isinstance(ended.value, str):
                    found[p] = max(found[p], ended.value.lost)
        told = epoch_ends(source, metadata, wanted) if wanted else {}
        # Of what brokers do not tell nothing more is known than where logs end.
        answers = {p: answer for p, answer in told.items() if answer.error == NONE}
        asking = {p: question for p, question in asking.items() if p in answers}
    return {p: lost for p, lost in found.items() if lost}


def _sequence(ledger: PartitionLedger, cut: CutAt) -> int:
    """Of the next record to mirror, at the cut."""
    if ledger.known is not None and ledger.known.source == cut.source:
        return ledger.known.sequence
    return ledger.sequence_of(cut.source) if cut.source else ledger.runs[0].sequence
