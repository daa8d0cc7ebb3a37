"""What to do with records that only the old source has: they were never mirrored before it failed.

    keep     they become part of the topic on both sides: they are mirrored now, behind what was
             written to the target meanwhile
    export   they are written to a topic of their own on the target, with their origin in headers;
             the topic on the old source is deleted, and made anew from the target
    rebuild  the topic on the old source is deleted, and made anew from the target

Each may be repeated after a kill. Runs in commands.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum

from heliograph.batch.records import Record, build, decode
from heliograph.config import FlowConfig
from heliograph.control.contexts import flow_context
from heliograph.copy import links
from heliograph.copy.loop import CopyLoop
from heliograph.failover.divergence import Parted
from heliograph.failover.refusals import HandoverFailed
from heliograph.failover.target_side import TargetSide
from heliograph.model import Lease, LeasedPartition, TopicPartition
from heliograph.units import counted
from heliograph.verify.reading import read_batches
from heliograph.wire import admin, log
from heliograph.wire.cluster import ClusterClient

__all__ = ["Choice", "bring_tails", "delete_topics", "export_tails", "export_topic"]

_LEASE_SECONDS = 30.0
_PATIENCE_SECONDS = 600.0
#: An exported batch has so many records at most, and about so many bytes.
_BATCH_RECORDS, _BATCH_BYTES = 500, 512 << 10
_ZSTD = 4
#: Nothing is deleted by itself, and nothing is too large that a source can hold.
_EXPORT_CONFIGS = {"cleanup.policy": "delete", "retention.ms": "-1",
                   "max.message.bytes": "100000000"}  # fmt: skip
_HANDOVER_HEADER = "heliograph.handover"


class Choice(StrEnum):
    """See the module's description."""

    KEEP = "keep"
    EXPORT = "export"
    REBUILD = "rebuild"


def export_topic(source: str) -> str:
    """The topic on the target that records of a source are exported to; it is never mirrored."""
    return f"mm2-unmirrored.{source}.internal"


# -- keep -----------------------------------------------------------------------------------------


def bring_tails(
    config: FlowConfig, side: TargetSide, parted: Sequence[Parted], tell: Callable[[str], None]
) -> int:
    """Mirror what only the source has, by a lease that this process holds; returns how many.

    The flow is held, so nobody else copies it; two holders would do no harm. Raises HandoverFailed
    if a partition cannot be copied.
    """
    wanted = {p.source: p for p in parted if p.only_source}
    signature = side.store.signature
    if not wanted or signature is None:
        return 0
    context = flow_context(config, str(config.flow), signature.producer_id)
    give_up_at = time.monotonic() + _PATIENCE_SECONDS
    left = dict(wanted)
    try:
        while True:
            now = time.time()
            lease = Lease(context, tuple(
                LeasedPartition(p.source, p.target.topic, p.source_end, shared=True)
                for p in left.values()
            ), now, now + _LEASE_SECONDS)  # fmt: skip
            errors = {}
            for receipt in CopyLoop(lease).run():
                p = TopicPartition(receipt.topic, receipt.partition)
                if receipt.source_position >= wanted[p].source_end:
                    left.pop(p, None)
                elif receipt.error:
                    errors[p] = receipt.error
            if not left:
                return sum(p.only_source for p in wanted.values())
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


# -- export ---------------------------------------------------------------------------------------


def export_tails(
    config: FlowConfig,
    side: TargetSide,
    source: ClusterClient,
    parted: Iterable[Parted],
    handover: str,
    producer_id: int,
) -> int:
    """Write what only the source has to the topic of `export_topic`; returns how many records.

    Records are numbered by their order. Those that an earlier run has written are counted in the
    topic; a request of it that comes late is refused by its sequence.
    """
    tails = sorted((p for p in parted if p.only_source), key=lambda p: p.source)
    if not tails:
        return 0
    target = side.client
    topic = TopicPartition(export_topic(config.flow.source), 0)
    _ensure_topic(config, target, topic.topic)
    written = _exported(target, topic, handover)
    count = 0
    records = _tails(config, source, tails, handover)
    for batch in _batches(itertools.islice(records, written, None)):
        sequence = written + count
        data = build(batch, codec=_ZSTD, producer_id=producer_id, sequence=sequence)
        log.append(target, topic, data)
        count += len(batch)
    return written + count


def _ensure_topic(config: FlowConfig, target: ClusterClient, topic: str) -> None:
    if topic in target.metadata([topic]).topics:
        return
    new = admin.NewTopic(topic, 1, config.ledger_topic_replication_factor, _EXPORT_CONFIGS)
    for error in admin.create_topics(target, [new], config.admin_timeout_ms).values():
        raise error


def _exported(target: ClusterClient, topic: TopicPartition, handover: str) -> int:
    """How many records of this handover are in the topic."""
    metadata, _ = target.retry(lambda: log.located(target, topic), _LEASE_SECONDS)
    start = admin.list_offsets(target, metadata, [topic], admin.EARLIEST).get(topic, 0)
    mark = (_HANDOVER_HEADER, handover.encode())
    return sum(
        mark in record.headers
        for chunk in log.read_to_end(target, topic, start)
        for record in decode(chunk)
    )


def _tails(
    config: FlowConfig, source: ClusterClient, tails: Iterable[Parted], handover: str
) -> Iterator[Record]:
    """The records in their order, each with where it comes from."""
    metadata = source.metadata()
    committed = config.isolation_level == "read_committed"
    for p in tails:
        begin = 0 if p.recreated else p.cut.source
        batches = read_batches(
            source, p.source, metadata.topics[p.source.topic].topic_id, begin, p.source_end,
            read_committed=committed,
        )  # fmt: skip
        for batch in batches:
            for record in decode(batch.data):
                if begin <= record.offset < p.source_end:
                    origin = {
                        _HANDOVER_HEADER: handover,
                        "heliograph.source.cluster": config.flow.source,
                        "heliograph.source.topic": p.source.topic,
                        "heliograph.source.partition": str(p.source.partition),
                        "heliograph.source.offset": str(record.offset),
                        "heliograph.source.timestamp": str(record.timestamp),
                    }
                    headers = [*record.headers, *((k, v.encode()) for k, v in origin.items())]
                    yield Record(0, record.timestamp, record.key, record.value, headers)


def _batches(records: Iterable[Record]) -> Iterator[list[Record]]:
    batch: list[Record] = []
    size = 0
    for record in records:
        weight = len(record.key or b"") + len(record.value or b"") + 200
        if batch and (len(batch) >= _BATCH_RECORDS or size + weight > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += weight
    if batch:
        yield batch


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
