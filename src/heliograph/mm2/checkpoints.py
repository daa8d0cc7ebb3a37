"""The checkpoints topic of a flow, on its target: read whole once, then followed, and appended to.

Used by the driver and by commands, in one thread at a time. MM2's own records count as ours do.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from heliograph.batch.records import Record, build
from heliograph.batch.records import decode as decode_records
from heliograph.ledger.topic_log import Pair, batches_of
from heliograph.mm2.formats import Checkpoint, checkpoint_key, decode_checkpoint_key
from heliograph.model import TopicPartition
from heliograph.wire import log
from heliograph.wire.cluster import ClusterClient

__all__ = ["CheckpointKey", "CheckpointLog"]

#: Group, topic of the target, partition.
CheckpointKey = tuple[str, str, int]

#: The value of a checkpoint that is gone. Not a tombstone: of a record without a value, MM2's
#: readers die, for all groups; one that is too short they skip. Compaction removes what was before.
_GONE = b""
#: Every client can read it, and keys of one batch are much alike.
_LZ4 = 3


class CheckpointLog:
    """The last checkpoint of every group and partition, as the topic has it.

    Attributes:
        known: by key, as of the last `refresh`.
        written_ms: when the newest checkpoint of each group was written; only grows.
        stamps: when each of ``known`` was written.
    """

    def __init__(self, client: ClusterClient, topic: str) -> None:
        self._client = client
        self._partition = TopicPartition(topic, 0)
        self._next_offset = 0
        self.known: dict[CheckpointKey, Checkpoint] = {}
        self.written_ms: dict[str, int] = {}
        self.stamps: dict[CheckpointKey, int] = {}

    def refresh(self) -> None:
        """Read on to the topic's end as it is now.

        Raises:
            ValueError: a record is no checkpoint, or one of a later version.
        """
        end = log.end_offset(self._client, self._partition)
        if end < self._next_offset:
            # Another topic of that name, or one that lost its end: what we know is not in it.
            self._next_offset = 0
            self.known.clear()
            self.written_ms.clear()
            self.stamps.clear()
        if end == self._next_offset:
            return
        for chunk in log.read_to_end(self._client, self._partition, self._next_offset):
            for record in decode_records(chunk):
                if record.offset >= self._next_offset:
                    self._take(record)
                    self._next_offset = record.offset + 1

    def _take(self, record: Record) -> None:
        try:
            key = decode_checkpoint_key(record.key or b"")
            if not record.value:
                self.known.pop(key, None)
                self.stamps.pop(key, None)
                return
            self.known[key] = Checkpoint.decode(record.key or b"", record.value)
        except ValueError as error:
            raise ValueError(
                f"{self._partition.topic} on cluster {self._client.alias}, offset {record.offset}:"
                f" {error}. Written by a newer version, or by something else? Nothing is written"
                " before it can be read; to begin anew, delete the topic and start again"
            ) from error
        self.stamps[key] = record.timestamp
        self.written_ms[key[0]] = max(self.written_ms.get(key[0], 0), record.timestamp)

    def append(self, checkpoints: Iterable[Checkpoint], gone: Iterable[CheckpointKey] = ()) -> None:
        """Write checkpoints, and that others are gone; durable when it returns."""
        pairs: list[Pair] = [c.encode() for c in checkpoints]
        pairs += [(checkpoint_key(*key), _GONE) for key in gone]
        now = int(time.time() * 1000)
        for batch in batches_of(pairs):
            records = [
                Record(self._next_offset + n, now, key, value)
                for n, (key, value) in enumerate(batch)
            ]
            built = build(records, codec=_LZ4)
            base = log.append(self._client, self._partition, built)
            if base == self._next_offset:
                for record in records:
                    self._take(record)
                self._next_offset += len(records)
        # Otherwise somebody else writes too, or a first try was not in vain: `refresh` tells.
