"""Logs of batches in memory, made of records with given offsets."""

from __future__ import annotations

import struct

from heliograph.batch.header import header_at
from heliograph.batch.records import Record, build
from heliograph.model import TopicPartition
from heliograph.verify.comparison import Comparison, Terms
from heliograph.verify.expected import Expected
from heliograph.verify.model import Stretch
from heliograph.verify.streams import Batch

FLOW, FOREIGN = 1000, 7
HIGH = 1 << 40


def content(n: int) -> Record:
    return Record(0, 1_700_000_000_000 + n, b"k%d" % n, b"value-%d" % n, [("h", b"%d" % n)])


def batch(records: dict[int, Record], producer_id: int = FLOW, codec: int = 0) -> Batch:
    """One batch; offsets may have holes."""
    offsets = sorted(records)
    first = offsets[0]
    data = bytearray(build([records[o] for o in offsets], codec=codec, producer_id=producer_id,
                           sequence=0))  # fmt: skip
    if offsets != list(range(first, first + len(offsets))):
        assert codec == 0
        data = _with_holes(records, producer_id)
    struct.pack_into(">q", data, 0, first)
    view = memoryview(data)
    return Batch(header_at(view, 0), view)


def _with_holes(records: dict[int, Record], producer_id: int) -> bytearray:
    from aiokafka.record.default_records import DefaultRecordBatchBuilder

    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=0, producer_id=producer_id,
        producer_epoch=0, base_sequence=0, batch_size=1 << 30,
    )  # fmt: skip
    first = min(records)
    for offset in sorted(records):
        r = records[offset]
        builder.append(offset - first, r.timestamp, r.key, r.value, list(r.headers))
    return bytearray(builder.build())


def log(records: dict[int, Record], cuts=(), producers=None, codec=0) -> list[Batch]:
    """Batches that end before each of ``cuts``; a batch never has two producers."""
    producers = producers or {}
    found: list[Batch] = []
    group: dict[int, Record] = {}
    who = FLOW
    for offset in sorted(records):
        writer = producers.get(offset, FLOW)
        dense = not group or offset == max(group) + 1
        if group and (offset in cuts or writer != who or (codec and not dense)):
            found.append(batch(group, who, codec))
            group = {}
        who = writer
        group[offset] = records[offset]
    if group:
        found.append(batch(group, who, codec))
    return found


def terms(begin=0, end=HIGH, target_begin=0, target_end=HIGH, **changes) -> Terms:
    return Terms(
        TopicPartition("t", 3), TopicPartition("A.t", 3), begin, end, target_begin, target_end,
        FLOW, **changes,
    )  # fmt: skip


ONE_TO_ONE = (Stretch(0, 0, HIGH),)


def compare(source, target, stretches=ONE_TO_ONE, margin=0, **changes):
    given = terms(**changes)
    return Comparison(source, target, Expected(list(stretches)), given, margin=margin).run()
