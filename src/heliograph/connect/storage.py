"""The three topics in which a Connect cluster keeps everything: followed and written. Driver.

One thread follows all partitions. It waits for records of the config topic, and looks at the other
two whenever that wait ends. `StorageTopics.refresh` reads on in the caller's thread. Readings take
turns; each ends with a new `StorageTopics.view`, if it brought anything.

Only what is committed is read, since exactly-once workers write in transactions. The config and
status topics count as read only when nothing is hidden behind a transaction that is open.

A topic that has lost records (created anew, an unclean election, records deleted) is read again
from its start, and the view stays as it was until that is done. If a topic is gone, the view stays.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from heliograph.batch.header import batches
from heliograph.batch.pieces import AbortedTransactions
from heliograph.batch.records import decode
from heliograph.connect.fold import ConnectorsView, Kind, StorageFold
from heliograph.connect.records import Entry, LoggerLevel, RestartRequest, encode_key
from heliograph.connect.storage_setup import StorageNames, ensure_topics
from heliograph.errors import StartError
from heliograph.ledger.topic_log import Pair, TopicLog, batches_of
from heliograph.mm2.connect_json import encode_json
from heliograph.mm2.connect_offsets import append_by_key
from heliograph.model import TopicPartition
from heliograph.shown import shown
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.epochs import epoch_ends
from heliograph.wire.errors import (
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
    BrokerError,
    ConnectionFailed,
    WireError,
)
from heliograph.wire.fetch import Fetched, FetchSession
from heliograph.wire.metadata import Metadata
from heliograph.wire.ranges import read_ranges
from heliograph.wire.rights import denied, missing_right

__all__ = ["StorageTopics"]

log = logging.getLogger(__name__)

#: How long a reading goes on through leader changes, reconnects and open transactions.
_PATIENCE_SECONDS = 30.0
#: How long the follower waits for a record of the config topic: how late statuses and offsets are
#: noticed, and how long `close` takes.
_WAIT_MS = 500
#: After a failure, and after an answer that came at once without a record.
_PAUSE_SECONDS = 0.5
#: It ends by itself when a broker that does not answer is given up.
_CLOSE_SECONDS = 5.0
_CHUNK_BYTES = 1 << 20
#: The broker's cleaner needs longer than this to remove what was there when a reading began.
_QUICK_SECONDS = 1.0
#: Topics in which nothing may be hidden. Of the offsets, a connector that writes in transactions
#: may always have some open.
_STRICT = frozenset({Kind.CONFIGS, Kind.STATUSES})


class StorageTopics:
    """Follows the storage topics, and writes to them. Thread-safe.

    Attributes:
        view: all that is stored, replaced as a whole.
    """

    def __init__(
        self, client: ClusterClient, names: StorageNames, changed: Callable[[], None]
    ) -> None:
        """Describe the topics.

        Args:
            client: of the cluster that has them; whoever made it closes it.
            names: of the topics.
            changed: called when there is a new view or a new request, in the thread that has read
                it, with nothing locked. It must not raise.
        """
        self._client = client
        self._names = names
        self._changed = changed
        self._kinds = {topic.name: kind for kind, topic in names.by_kind().items()}
        self._fold = StorageFold()
        self.view = ConnectorsView()
        self._log = TopicLog(client, names.configs.name)
        #: Held by whoever writes to the config topic, so that entries stay together.
        self._writing = threading.Lock()
        #: Held by whoever reads; guards all that follows.
        self._reading = threading.Lock()
        self._latest: Metadata | None = None
        self._positions: dict[TopicPartition, int] = {}
        self._topic_ids: dict[str, uuid.UUID] = {}
        self._epochs: dict[TopicPartition, int] = {}
        #: Topics that have not been read to their ends since their starts.
        self._incomplete = set(Kind)
        #: When the last `refresh` that has ended began, and how it failed.
        self._refreshed: tuple[float, WireError | None] = (float("-inf"), None)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="storage topics", daemon=True)

    # -- beginning and end --------------------------------------------------------------------

    def ensure(self) -> None:
        """Create topics that are missing, check the others; raises StartError."""
        try:
            ensure_topics(self._client, self._names)
        except WireError as error:
            raise _cannot_start(error) from error

    def start(self) -> None:
        """Read all topics to their ends, then follow them; raises StartError."""
        try:
            self.refresh()
        except WireError as error:
            raise _cannot_start(error) from error
        self._thread.start()

    def close(self) -> None:
        """Stop following."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_SECONDS)

    # -- reading ------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Read to the ends as they are now: the view then has all that was written before.

        Callers share a reading that began after they called. Raises WireError.
        """
        called = time.monotonic()
        with self._reading:
            began, failure = self._refreshed
            news = False
            if began < called:
                began, failure = time.monotonic(), None
                before, asked = self.view, self._fold.requests.total
                try:
                    self._client.retry(self._read_to_ends, _PATIENCE_SECONDS)
                except WireError as error:
                    failure = error
                self._refreshed = began, failure
                news = self._is_news(before, asked)
        if news:
            self._changed()
        if failure is not None:
            raise failure

    def take_requests(self) -> list[RestartRequest | LoggerLevel]:
        """Restarts and logger levels that were asked for since the last call, oldest first."""
        return self._fold.requests.take()

    def _is_news(self, before: ConnectorsView, asked: int) -> bool:
        """Whether there is another view, or a request more than there were."""
        return self.view is not before or self._fold.requests.total != asked

    def _read_to_ends(self) -> None:
        """One try; raises an error that is worth another one if not everything can be read."""
        while True:
            began, before = time.monotonic(), dict(self._positions)
            metadata = self._metadata()
            partitions = self._partitions(metadata)
            strict = [p for p in partitions if self._kinds[p.topic] in _STRICT]
            ends = admin.list_offsets(self._client, metadata, strict, admin.LATEST, fenced=True)
            stable = self._read_on(metadata, partitions)
            for p in partitions:
                if p not in stable or (p not in ends and self._kinds[p.topic] in _STRICT):
                    raise ConnectionFailed(f"{p} of cluster {self._client.alias} is not served")
            for p, end in ends.items():
                if stable[p] < end:
                    raise ConnectionFailed(
                        f"{p} of cluster {self._client.alias}: a transaction that began at offset"
                        f" {stable[p]} is still open and hides what follows"
                    )
            # If this took long, the cleaner may have removed records that were not read yet, in
            # favour of later ones behind the ends.
            if self._positions == before or time.monotonic() - began < _QUICK_SECONDS:
                return

    def _metadata(self) -> Metadata:
        metadata = self._client.metadata(sorted(self._kinds))
        for name in self._kinds:
            what = f"looking for topic {name} on cluster {self._client.alias}"
            if name in metadata.denied:
                right = missing_right(self._client.settings, "Describe", "topic", name)
                raise BrokerError(TOPIC_AUTHORIZATION_FAILED, what, right)
            if name not in metadata.topics:
                raise BrokerError(UNKNOWN_TOPIC_OR_PARTITION, what)
        self._latest = metadata
        return metadata

    def _partitions(self, metadata: Metadata) -> list[TopicPartition]:
        return [TopicPartition(n, i) for n in self._kinds for i in metadata.topics[n].partitions]

    def _read_on(
        self, metadata: Metadata, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """Read what there is now; returns how far that is, of the partitions that are served.

        The view has it then, as far as topics are complete.
        """
        self._notice_losses(metadata, partitions)
        new = [p for p in partitions if p not in self._positions]
        if new:
            starts = admin.list_offsets(self._client, metadata, new, admin.EARLIEST, fenced=True)
            self._positions |= starts
        stable = admin.list_offsets(
            self._client, metadata, partitions, admin.LATEST, read_committed=True, fenced=True
        )
        served = {p: end for p, end in stable.items() if p in self._positions}
        for p, end in served.items():
            if end < self._positions[p]:
                self._lose(p.topic, "it ends before what was read")
                raise ConnectionFailed(f"{p} of cluster {self._client.alias} was cut")
        behind = {p: self._positions[p] for p, end in served.items() if end > self._positions[p]}
        if behind:
            self._read(behind)
            self._skip_holes(metadata, {p: served[p] for p in behind})
        for kind in Kind:
            mine = {p for p in partitions if self._kinds[p.topic] is kind}
            if mine <= served.keys():
                self._incomplete.discard(kind)
            if kind not in self._incomplete:
                self._fold.publish(kind)
        if Kind.CONFIGS not in self._incomplete:
            self._fold.set_live()
        self.view = self._fold.view
        return served

    def _read(self, behind: Mapping[TopicPartition, int]) -> None:
        refused = read_ranges(
            self._client, behind, self._take,
            read_committed=True, partition_bytes=_CHUNK_BYTES, patience=0,
        )  # fmt: skip
        for error in refused.values():
            raise error

    def _take(self, fetched: Fetched) -> int:
        partition = fetched.partition
        kind = self._kinds[partition.topic]
        transactions = AbortedTransactions(fetched.aborted)
        for header, batch in batches(fetched.records):
            aborted = (header.transactional or header.control) and transactions.skips(
                header.last_offset, header.producer_id, control=header.control
            )
            if not aborted:
                self._take_batch(kind, partition, batch)
            position = self._positions[partition]
            self._positions[partition] = max(position, header.last_offset + 1)
        return max(self._positions[partition], fetched.offset)

    def _take_batch(self, kind: Kind, partition: TopicPartition, batch: memoryview) -> None:
        start = self._positions[partition]
        try:
            records = list(decode(batch))
        except Exception as error:  # noqa: BLE001 - whatever codecs do with what others wrote
            log.warning(
                "A batch of %s behind offset %d cannot be read and is skipped: %s",
                partition, start, shown(error) or type(error).__name__,
            )  # fmt: skip
            return
        for r in records:
            if r.offset >= start:
                self._fold.take(kind, r.offset, r.key, r.value, r.timestamp)

    def _skip_holes(self, metadata: Metadata, ends: Mapping[TopicPartition, int]) -> None:
        """Move behind what compaction has removed; records that were deleted are a loss."""
        short = [p for p, end in ends.items() if self._positions[p] < end]
        if not short:
            return
        starts = admin.list_offsets(self._client, metadata, short, admin.EARLIEST, fenced=True)
        for p in short:
            if p not in starts:
                raise ConnectionFailed(f"{p} of cluster {self._client.alias} is not served")
            if starts[p] > self._positions[p]:
                self._lose(p.topic, "records were deleted that had not been read")
                raise ConnectionFailed(f"{p} of cluster {self._client.alias} was emptied")
            self._positions[p] = ends[p]

    def _notice_losses(self, metadata: Metadata, partitions: Collection[TopicPartition]) -> None:
        """Compare topic ids and leader epochs with those of the reading before."""
        for name in self._kinds:
            now = metadata.topics[name].topic_id
            if self._topic_ids.setdefault(name, now) != now:
                self._lose(name, "it was created anew")
                self._topic_ids[name] = now
        epochs = {p: e for p in partitions if (e := metadata.leader_epoch(*p)) >= 0}
        elected = {p: old for p, old in self._epochs.items() if epochs.get(p, old) != old}
        found = epoch_ends(self._client, metadata, elected) if elected else {}
        for p, end in found.items():
            if end.error != NONE:
                # Asked again next time.
                del epochs[p]
            elif 0 <= end.offset < self._positions.get(p, 0):
                self._lose(p.topic, f"a leader of partition {p.partition} lacks records")
        self._epochs |= epochs

    def _lose(self, topic: str, why: str) -> None:
        log.warning("Topic %s is read again from its start: %s", topic, why)
        for known in (self._positions, self._epochs):
            for p in [p for p in known if p.topic == topic]:
                del known[p]
        self._incomplete.add(self._kinds[topic])
        self._fold.forget(self._kinds[topic])

    # -- following ----------------------------------------------------------------------------

    def _follow(self) -> None:
        told = ""
        while not self._stopping.is_set():
            try:
                waited = self._wait_for_record()
                self._look()
                if told:
                    log.info("The storage topics of cluster %s are read again", self._client.alias)
                told = ""
            except Exception as error:  # noqa: BLE001 - this thread must outlive a bad day
                waited = False
                if str(error) != told:
                    told = str(error)
                    log.warning("The storage topics cannot be read, trying on: %s", error)
            if not waited:
                self._stopping.wait(_PAUSE_SECONDS)

    def _look(self) -> None:
        with self._reading:
            before, asked = self.view, self._fold.requests.total
            metadata = self._metadata()
            self._read_on(metadata, self._partitions(metadata))
            news = self._is_news(before, asked)
        if news:
            self._changed()

    def _wait_for_record(self) -> bool:
        """Wait for a record of the config topic, not for long; False if the broker did not wait."""
        partition = TopicPartition(self._names.configs.name, 0)
        metadata = self._latest or self._metadata()
        leader = metadata.leader(*partition)
        if leader < 0:
            return False
        ids = {partition.topic: metadata.topics[partition.topic].topic_id}
        with self._client.lent(leader) as connection:
            session = FetchSession(
                connection, ids, read_committed=True, max_bytes=1, partition_max_bytes=1,
                single=True,
            )  # fmt: skip
            session.want(partition, self._positions.get(partition, 0))
            session.send(_WAIT_MS)
            answer = session.wait(self._client.request_timeout)
        return all(fetched.error == NONE for fetched in answer)

    # -- writing ------------------------------------------------------------------------------

    def append_configs(self, entries: Sequence[Entry]) -> None:
        """Write to the config topic, in this order, together and exactly once. Raises WireError.

        After an error it is not known whether they were written; `refresh` tells.
        """
        producer_id, sequence = self._producer_id(), 0
        with self._writing:
            for batch in batches_of(map(_encoded, entries)):
                if producer_id < 0:
                    self._log.append(batch)
                else:
                    self._log.append(batch, producer_id, sequence)
                sequence += len(batch)

    def _producer_id(self) -> int:
        """One of its own for each call: a request that comes late cannot be taken for a new one.

        -1 where we may not have one: then a record may be written twice.
        """
        try:
            return self._log.allocate_producer_id()
        except BrokerError as error:
            if denied(error.code):
                return -1
            raise

    def append_statuses(self, entries: Sequence[Entry]) -> None:
        """Write to the status topic, each to its key's partition. Raises WireError."""
        self._append(self._names.statuses.name, [_encoded(entry) for entry in entries])

    def append_offsets(self, entries: Sequence[tuple[bytes, Mapping[str, Any] | None]]) -> None:
        """Write to the offsets topic; None resets an offset. Raises WireError.

        Keys are those of `heliograph.connect.records.offset_key` or `ConnectorsView.offset_keys`.
        """
        pairs = [(k, None if v is None else encode_json(dict(v))) for k, v in entries]
        if pairs:
            append_by_key(self._client, self._names.offsets.name, pairs, marked=True)

    def _append(self, topic: str, pairs: Sequence[Pair]) -> None:
        if pairs:
            append_by_key(self._client, topic, pairs)


def _encoded(entry: Entry) -> Pair:
    key, value = entry
    return encode_key(key), None if value is None else encode_json(value)


def _cannot_start(error: WireError) -> StartError:
    return StartError(
        "connect.storage",
        f"the storage topics cannot be read: {error}",
        "check bootstrap.servers of the worker file, and what its user may do",
    )
