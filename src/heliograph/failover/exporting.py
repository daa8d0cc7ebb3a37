"""Records that only the old source has, written to a topic of their own on the target.

Each has its origin in headers. An export that was killed goes on behind the last record that it has
written of each partition: the topic itself says which that is. Its batches are numbered, so a
request of the killed process that comes late is refused by the broker, or is the very one that is
sent again. Runs in commands.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from heliograph.batch.records import Record, build, decode
from heliograph.config import FlowConfig
from heliograph.failover.target_side import TargetSide
from heliograph.failover.unmirrored import Unmirrored
from heliograph.model import Guard, TopicPartition
from heliograph.verify.reading import LogStartMoved, read_batches
from heliograph.wire import admin, log
from heliograph.wire.cluster import ClusterClient

__all__ = ["export_tails", "export_topic"]

_PATIENCE_SECONDS = 30.0
#: An exported batch has so many records at most, and about so many bytes.
_BATCH_RECORDS, _BATCH_BYTES = 500, 512 << 10
_ZSTD = 4
#: Nothing is deleted by itself, and nothing is too large that a source can hold.
_CONFIGS = {"cleanup.policy": "delete", "retention.ms": "-1",
            "max.message.bytes": "100000000"}  # fmt: skip
_HANDOVER = "heliograph.handover"
_TOPIC, _PARTITION = "heliograph.source.topic", "heliograph.source.partition"
_OFFSET = "heliograph.source.offset"


def export_topic(source: str) -> str:
    """The topic on the target that records of a source are exported to; it is never mirrored."""
    return f"mm2-unmirrored.{source}.internal"


@dataclass(slots=True)
class _Written:
    """What an earlier run of this handover has exported.

    Attributes:
        records: how many.
        behind: by partition, the offset behind the last one.
    """

    records: int = 0
    behind: dict[TopicPartition, int] = field(default_factory=dict)


def export_tails(
    config: FlowConfig,
    side: TargetSide,
    source: ClusterClient,
    unmirrored: Iterable[Unmirrored],
    guards: Mapping[TopicPartition, Guard],
    handover: str,
    producer_id: int,
) -> int:
    """Write what only the source has to the topic of `export_topic`; returns how many records.

    That is all of this handover's, those of earlier runs included. ``guards`` say what came from
    the target: it is left out. Raises WireError.
    """
    wanted = sorted((u for u in unmirrored if u.records), key=lambda u: u.source)
    if not wanted:
        return 0
    target = side.client
    topic = TopicPartition(export_topic(config.flow.source), 0)
    _ensure_topic(config, target, topic.topic)
    written = _exported(target, topic, handover)
    count = written.records
    for batch in _batches(_tails(config, source, wanted, guards, written.behind, handover)):
        data = build(batch, codec=_ZSTD, producer_id=producer_id, sequence=count)
        log.append(target, topic, data)
        count += len(batch)
    return count


def _ensure_topic(config: FlowConfig, target: ClusterClient, topic: str) -> None:
    if topic in target.metadata([topic]).topics:
        return
    new = admin.NewTopic(topic, 1, config.ledger_topic_replication_factor, _CONFIGS)
    for error in admin.create_topics(target, [new], config.admin_timeout_ms).values():
        raise error


def _exported(target: ClusterClient, topic: TopicPartition, handover: str) -> _Written:
    metadata, _ = target.retry(lambda: log.located(target, topic), _PATIENCE_SECONDS)
    start = admin.list_offsets(target, metadata, [topic], admin.EARLIEST).get(topic, 0)
    mark, found = handover.encode(), _Written()
    for chunk in log.read_to_end(target, topic, start):
        for record in decode(chunk):
            # Ours are the last: a record may have brought headers of the same names.
            told = {name: value or b"" for name, value in record.headers}
            if told.get(_HANDOVER) == mark:
                found.records += 1
                p = TopicPartition(told[_TOPIC].decode(), int(told[_PARTITION]))
                found.behind[p] = int(told[_OFFSET]) + 1
    return found


def _tails(
    config: FlowConfig,
    source: ClusterClient,
    wanted: Iterable[Unmirrored],
    guards: Mapping[TopicPartition, Guard],
    behind: Mapping[TopicPartition, int],
    handover: str,
) -> Iterator[Record]:
    """The records in their order, each with where it comes from."""
    topics = source.metadata().topics
    for u in wanted:
        # A topic that is gone was exported wholly before an earlier run has deleted it.
        if u.source.topic in topics and str(topics[u.source.topic].topic_id) == u.topic_id:
            begin = max(u.begin, behind.get(u.source, 0))
            for record in _records(config, source, u, guards.get(u.source), begin):
                yield _marked(record, config.flow.source, u.source, handover)


def _records(
    config: FlowConfig, source: ClusterClient, u: Unmirrored, guard: Guard | None, begin: int
) -> Iterator[Record]:
    """What a partition has from ``begin`` on, as far as retention has left it."""
    committed = config.isolation_level == "read_committed"
    copies = guard.producer_ids if guard is not None else frozenset[int]()
    topic_id = uuid.UUID(u.topic_id)
    while begin < u.end:
        try:
            for batch in read_batches(
                source, u.source, topic_id, begin, u.end, read_committed=committed
            ):
                if batch.header.producer_id not in copies:
                    yield from (r for r in decode(batch.data) if begin <= r.offset < u.end)
                begin = max(begin, batch.header.last_offset + 1)
        except LogStartMoved as moved:
            begin = moved.start
        else:
            return


def _marked(record: Record, alias: str, p: TopicPartition, handover: str) -> Record:
    origin = {
        _HANDOVER: handover,
        "heliograph.source.cluster": alias,
        _TOPIC: p.topic,
        _PARTITION: str(p.partition),
        _OFFSET: str(record.offset),
        "heliograph.source.timestamp": str(record.timestamp),
    }
    headers = [*record.headers, *((k, v.encode()) for k, v in origin.items())]
    return Record(0, record.timestamp, record.key, record.value, headers)


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
