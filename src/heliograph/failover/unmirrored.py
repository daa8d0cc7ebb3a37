"""What to do with records that only the old source has: they were never mirrored before it failed.

    keep     they become part of the topic on both sides: they are mirrored now, behind what was
             written to the target meanwhile
    export   they are written to a topic of their own on the target, with their origin in headers
             (`exporting`); the topic on the old source is deleted, and made anew from the target
    rebuild  the topic on the old source is deleted, and made anew from the target

Each may be repeated after a kill. Runs in commands.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Self

from heliograph.config import FlowConfig
from heliograph.control.contexts import flow_context
from heliograph.control.topics.refresh import Comparison, TopicRefresh
from heliograph.copy import links
from heliograph.copy.loop import CopyLoop
from heliograph.failover.divergence import Parted
from heliograph.failover.refusals import HandoverFailed
from heliograph.failover.target_side import TargetSide
from heliograph.ledger.reverse import reverse_of
from heliograph.model import Guard, Lease, LeasedPartition, TopicPartition
from heliograph.units import counted
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient

__all__ = [
    "Choice",
    "Unmirrored",
    "bring_tails",
    "delete_topics",
    "make_targets",
    "merged",
    "not_to_bring",
    "noted",
    "read_noted",
]

_LEASE_SECONDS = 30.0
_PATIENCE_SECONDS = 600.0
#: The target shows a topic a moment after its controller has made it.
_SHOWN_SECONDS, _LOOK_SECONDS = 30.0, 0.2


class Choice(StrEnum):
    """See the module's description."""

    KEEP = "keep"
    EXPORT = "export"
    REBUILD = "rebuild"


@dataclass(frozen=True, slots=True)
class Unmirrored:
    """A partition of the old source that has to be settled, as the ledger keeps it.

    Attributes:
        begin, end: the offsets that were never mirrored.
        records: how many of them only the source has; none of a topic that must be made anew only.
        topic_id: of the source topic; empty if it was gone.
    """

    source: TopicPartition
    target: TopicPartition
    begin: int
    end: int
    records: int
    topic_id: str
    choice: Choice

    @classmethod
    def of(cls, p: Parted, choice: Choice) -> Self:
        """As it was found now."""
        own = p.here
        return cls(p.source, p.target, own.begin, own.end, own.records, p.source_id, choice)


def noted(unmirrored: Iterable[Unmirrored]) -> list[Any]:
    """As JSON for the ledger, a few bytes a partition: all have to fit into one record. Pure."""
    topics: dict[tuple[str, str, str, Choice], list[list[int]]] = {}
    for u in unmirrored:
        topic = u.source.topic, u.target.topic, u.topic_id, u.choice
        topics.setdefault(topic, []).append([u.source.partition, u.begin, u.end, u.records])
    return [[*topic, partitions] for topic, partitions in topics.items()]


def read_noted(told: Iterable[Any]) -> list[Unmirrored]:
    """What `noted` has made."""
    return [
        Unmirrored(
            TopicPartition(topic, p), TopicPartition(target, p), begin, end, records, topic_id,
            Choice(choice),
        )
        for topic, target, topic_id, choice, partitions in told
        for p, begin, end, records in partitions
    ]  # fmt: skip


def merged(before: Iterable[Unmirrored], now: Iterable[Unmirrored]) -> list[Unmirrored]:
    """What is to be settled, by an earlier run that was killed and by what is there now. Pure.

    What it has settled may be gone. What was written since counts, too. Raises HandoverFailed if a
    topic is another one now.
    """
    found = {u.source: u for u in now}
    for old in before:
        new = found.get(old.source)
        if new is None or not new.topic_id:
            found[old.source] = old
        elif new.topic_id == old.topic_id:
            records = max(old.records, new.records)
            found[old.source] = replace(new, begin=min(old.begin, new.begin), records=records)
        elif old.topic_id:
            raise HandoverFailed(
                "failback.writers",
                f"{old.source.topic} was created anew on the old source since this failback was"
                " begun: a client of it is still at work",
                f"stop that client, delete {old.source.topic} there, then repeat this command",
            )
    return [u for _, u in sorted(found.items())]


# -- keep -----------------------------------------------------------------------------------------


def make_targets(
    config: FlowConfig, source: ClusterClient, target: ClusterClient, topics: Iterable[str]
) -> None:
    """Create topics on the target that were never mirrored, as the mirror would.

    Raises HandoverFailed if that cannot be done, WireError.
    """
    refresh, wanted = TopicRefresh(config, source, target), set(topics)

    def look() -> Comparison:
        found = refresh.compare()
        remote = {t: name for t, name in found.remote.items() if t in wanted}
        return Comparison(found.source, found.target, remote)

    found = look()
    if not found.missing and not found.short:
        return
    new, problems = refresh.new_topics(found)
    problems = [*refresh.create(new), *refresh.grow(found.short).values(), *problems]
    deadline = time.monotonic() + _SHOWN_SECONDS
    while (found.missing or found.short) and not problems and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
        found = look()
    if found.missing or found.short:
        named = problems[0] if problems else "they do not appear"
        raise HandoverFailed(
            "failback.no-topic",
            f"topics that were never mirrored cannot be created on {config.flow.target}: {named}",
            "repeat this command when that is mended",
        )


def not_to_bring(
    config: FlowConfig, source: ClusterClient, side: TargetSide, wanted: Iterable[Unmirrored]
) -> Mapping[TopicPartition, Guard]:
    """What of these came from the target, and must not go back there."""
    here = source.metadata()
    names = {u.source: u.target.topic for u in wanted}
    reverse = reverse_of(config, source, side.client, here, {p.topic for p in names})
    if reverse is None:
        return {}
    return reverse.guards(names, here, side.client.metadata(sorted(set(names.values()))))


def bring_tails(
    config: FlowConfig,
    side: TargetSide,
    unmirrored: Sequence[Unmirrored],
    guards: Mapping[TopicPartition, Guard],
    tell: Callable[[str], None],
) -> int:
    """Mirror what only the source has, by a lease that this process holds; returns how many.

    The flow is held, so nobody else copies it; two holders would do no harm. Raises HandoverFailed
    if a partition cannot be copied.
    """
    wanted = {u.source: u for u in unmirrored if u.records}
    signature = side.store.signature
    if not wanted or signature is None:
        return 0
    # What retention has deleted meanwhile is told by the plan, and keeps nobody from the rest.
    context = replace(
        flow_context(config, str(config.flow), signature.producer_id), on_data_loss="continue"
    )
    give_up_at = time.monotonic() + _PATIENCE_SECONDS
    left = dict(wanted)
    try:
        while True:
            now = time.time()
            lease = Lease(context, tuple(
                LeasedPartition(
                    u.source, u.target.topic, u.end, shared=True, guard=guards.get(u.source)
                )
                for u in left.values()
            ), now, now + _LEASE_SECONDS)  # fmt: skip
            errors = {}
            for receipt in CopyLoop(lease).run():
                p = TopicPartition(receipt.topic, receipt.partition)
                if receipt.source_position >= wanted[p].end:
                    left.pop(p, None)
                elif receipt.error:
                    errors[p] = receipt.error
            if not left:
                return sum(u.records for u in wanted.values())
            partition = min(left)
            why = errors.get(partition, "it takes long")
            tell(f"{counted(len(left), 'partition')} left; {partition}: {why}")
            if time.monotonic() > give_up_at:
                raise HandoverFailed(
                    "failback.keep", f"what only {config.flow.source} has of {partition} cannot be"
                    f" mirrored: {why}", "repeat this command when that is mended",
                )  # fmt: skip
    finally:
        links.close()


# -- rebuild --------------------------------------------------------------------------------------


def delete_topics(
    config: FlowConfig, source: ClusterClient, ids: Sequence[tuple[str, str]]
) -> list[str]:
    """Delete topics of the old source, (name, id); returns the names of those that were there.

    By id: a topic that was created anew under the name since is not touched.
    """
    wanted = {uuid.UUID(topic_id): name for name, topic_id in ids if topic_id}
    there = source.metadata(sorted(wanted.values())).topics
    found = {i: name for i, name in wanted.items()
             if name in there and there[name].topic_id == i}  # fmt: skip
    if not found:
        return []
    for error in admin.delete_topics(source, found, config.admin_timeout_ms).values():
        raise error
    deadline = time.monotonic() + _LEASE_SECONDS
    while time.monotonic() < deadline:
        there = source.metadata(sorted(found.values())).topics
        if not any(n in there and there[n].topic_id == i for i, n in found.items()):
            break
        time.sleep(0.2)
    return sorted(found.values())
