"""How source and target have parted since a failover: what only one of them has.

Positions of the failover's cut are compared with both logs as they are now, and leader epochs tell
whether the source still has what was mirrored of it. What the flows have copied to either side is
not its own. Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from heliograph.copy.leader_epochs import divergence
from heliograph.failover.brought import Copies
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

__all__ = ["Parted", "Tail", "compare_logs", "never_begun", "tail"]


@dataclass(frozen=True, slots=True)
class Tail:
    """What a log has from the offset on at which it parts from the other one.

    Attributes:
        begin: that offset.
        start, end: where the log starts and ends now.
        records: offsets from ``begin`` on that only this log has.
        deleted: offsets that only this log had, and retention has deleted since.
    """

    begin: int
    start: int
    end: int
    records: int
    deleted: int = 0


def tail(begin: int, start: int, end: int, copied: Callable[[int], int] | None = None) -> Tail:
    """The tail of a log that parts at ``begin``.

    ``copied`` says how many records before an offset were copied from the other log; None: none.
    """

    def own(first: int, behind: int) -> int:
        if behind <= first:
            return 0
        copies = copied(behind) - copied(first) if copied is not None else 0
        return max(behind - first - max(copies, 0), 0)

    return Tail(begin, start, end, own(max(begin, start), end), own(begin, min(start, end)))


@dataclass(frozen=True, slots=True)
class Parted:
    """A partition, and how its two logs differ.

    Attributes:
        cut: where the failover has cut them; of one that was not begun, where its logs start.
        here, there: what only the source has, and only the target.
        source_id: the source topic's id; empty if there is no such topic or partition any more.
        lost: records that were mirrored and that the source does not have any more.
        recreated: whether the source topic is another one than the one that was mirrored.
        set_back: why the source's log cannot be trusted, though it does not say what it has lost.
        begun: whether anything of it was mirrored before the failover.
    """

    source: TopicPartition
    target: TopicPartition
    cut: CutAt
    here: Tail
    there: Tail
    source_id: str
    lost: int = 0
    recreated: bool = False
    set_back: str = ""
    begun: bool = True

    @property
    def must_rebuild(self) -> str:
        """Why the source's log cannot be gone on with; empty if it can."""
        if not self.source_id:
            return "it is gone"
        if self.recreated:
            return "it was created anew"
        if self.lost:
            return f"it has lost {self.lost:,} records that were mirrored"
        return self.set_back


class _Parting(NamedTuple):
    """Where logs part before the cut, and how many mirrored records the source lacks."""

    source: int
    target: int
    lost: int
    why: str = ""


class _Logs(NamedTuple):
    """Where logs start and end."""

    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]


def compare_logs(
    side: TargetSide,
    mirrored: Mirrored,
    cuts: Mapping[TopicPartition, CutAt],
    source: ClusterClient,
    brought: Mapping[TopicPartition, Copies],
) -> list[Parted]:
    """Compare both logs of each partition; raises WireError, HandoverRefused.

    ``brought`` says what the opposite direction has brought to the source.
    """
    metadata = source.metadata(sorted({p.topic for p in cuts}))
    here = _source_logs(side.flow.source, source, metadata, cuts)
    targets = {p: mirrored.targets[p] for p in cuts}
    logs = _logs(side.client, mirrored.metadata, targets.values())
    _refuse_silent(side.flow.target, (t for t in targets.values() if t not in logs.ends))
    copied = {p: Copies(side.store.at(mirrored.places[p]), sequence)
              for p, (sequence, _, _) in side.counts(mirrored).items()}  # fmt: skip
    _refuse_silent(side.flow.target, (t for p, t in targets.items() if p not in copied))
    partings = _partings(side, mirrored, cuts, source, metadata, here.ends)
    found = []
    for p, cut in sorted(cuts.items()):
        target, start, end = targets[p], here.starts.get(p, 0), here.ends.get(p, 0)
        there = tail(cut.target, logs.starts[target], logs.ends[target], copied[p].before)
        source_id = str(metadata.topics[p.topic].topic_id) if p in here.ends else ""
        if not source_id:
            found.append(Parted(p, target, cut, Tail(0, 0, 0, 0), there, ""))
        elif source_id != str(mirrored.places[p].source_id):
            whole = tail(start, start, end)
            found.append(Parted(p, target, cut, whole, there, source_id, recreated=True))
        else:
            at = partings.get(p, _Parting(cut.source, cut.target, 0))
            back = brought[p].before if p in brought else None
            if at.target < cut.target:
                there = Tail(at.target, there.start, there.end, there.records, there.deleted)
            own = tail(at.source, start, end, back)
            found.append(Parted(p, target, cut, own, there, source_id, at.lost, set_back=at.why))
    return found


def never_begun(
    side: TargetSide,
    source: ClusterClient,
    metadata: Metadata,
    partitions: Iterable[TopicPartition],
    brought: Mapping[TopicPartition, Copies],
) -> list[Parted]:
    """Partitions of the source of which nothing was mirrored, and that have records of their own.

    As `compare_logs`; ``metadata`` is the source's.
    """
    wanted = list(partitions)
    here = _source_logs(side.flow.source, source, metadata, wanted)
    targets = {p: TopicPartition(side.remote_topic(p.topic), p.partition) for p in wanted}
    seen = side.client.metadata(sorted({t.topic for t in targets.values()}))
    there = [
        t for t in targets.values()
        if t.topic in seen.topics and t.partition in seen.topics[t.topic].partitions
    ]  # fmt: skip
    logs = _logs(side.client, seen, there)
    _refuse_silent(side.flow.target, (t for t in there if t not in logs.ends))
    found = []
    for p, target in sorted(targets.items()):
        back = brought[p].before if p in brought else None
        own = tail(here.starts[p], here.starts[p], here.ends[p], back)
        start, end = logs.starts.get(target, 0), logs.ends.get(target, 0)
        if own.records:
            topic_id = str(metadata.topics[p.topic].topic_id)
            cut = CutAt(own.begin, start)
            # Where both write to it, what the target has of its own comes from there.
            found.append(
                Parted(p, target, cut, own, tail(start, start, end), topic_id, begun=False)
            )
    return found


def _source_logs(
    alias: str, source: ClusterClient, metadata: Metadata, partitions: Iterable[TopicPartition]
) -> _Logs:
    there = [
        p for p in partitions
        if p.topic in metadata.topics and p.partition in metadata.topics[p.topic].partitions
    ]  # fmt: skip
    # Ends first: what comes in between would look like an open transaction.
    logs = _logs(source, metadata, there)
    stable = admin.list_offsets(source, metadata, there, admin.LATEST, read_committed=True)
    _refuse_silent(alias, (p for p in there if p not in logs.ends or p not in stable))
    _refuse_open(alias, stable, logs.ends)
    return logs


def _logs(client: ClusterClient, metadata: Metadata, partitions: Iterable[TopicPartition]) -> _Logs:
    wanted = sorted(set(partitions))
    starts = admin.list_offsets(client, metadata, wanted, admin.EARLIEST)
    ends = admin.list_offsets(client, metadata, wanted, admin.LATEST)
    both = starts.keys() & ends.keys()
    return _Logs(starts, {p: end for p, end in ends.items() if p in both})


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


def _partings(
    side: TargetSide,
    mirrored: Mirrored,
    cuts: Mapping[TopicPartition, CutAt],
    source: ClusterClient,
    metadata: Metadata,
    ends: Mapping[TopicPartition, int],
) -> dict[TopicPartition, _Parting]:
    """Where logs part before the cut, because the source has lost what was mirrored."""
    found: dict[TopicPartition, _Parting] = {}
    asking = {}
    for p, end in ends.items():
        ledger, cut = side.store.at(mirrored.places[p]), cuts[p]
        if end < cut.source:
            at = min(ledger.to_target(end), cut.target)
            found[p] = _Parting(end, at, cut.source - end)
        sequence = _sequence(ledger, cut)
        asking[p] = divergence(ledger, sequence, metadata.leader_epoch(p.topic, p.partition))
    answers: dict[TopicPartition, EpochEnd] = {}
    while asking:
        wanted: dict[TopicPartition, int] = {}
        for p, question in list(asking.items()):
            try:
                wanted[p] = question.send(answers[p]) if p in answers else next(question)
            except StopIteration as ended:
                del asking[p]
                known = found.get(p, _Parting(cuts[p].source, cuts[p].target, 0))
                if isinstance(ended.value, str):
                    found[p] = known._replace(why=ended.value)
                elif ended.value is not None and ended.value.offset <= known.source:
                    lost = max(known.lost, ended.value.lost)
                    found[p] = _Parting(ended.value.offset, ended.value.target, lost)
        told = epoch_ends(source, metadata, wanted) if wanted else {}
        # Of what brokers do not tell nothing more is known than where logs end.
        answers = {p: answer for p, answer in told.items() if answer.error == NONE}
        asking = {p: question for p, question in asking.items() if p in answers}
    return found


def _sequence(ledger: PartitionLedger, cut: CutAt) -> int:
    """Of the next record to mirror, at the cut."""
    if ledger.known is not None and ledger.known.source == cut.source:
        return ledger.known.sequence
    return ledger.sequence_of(cut.source) if cut.source else ledger.runs[0].sequence
