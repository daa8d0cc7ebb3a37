"""Brokers in this process that speak Kafka's protocol over TCP, as a test scripts them.

A `FakeCluster` has real logs of record batches, compares sequences as brokers do, and can be told
to be silent (``stopped``), to fail an API (``fails``), or to lack anything. Only what `copy/` asks.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
import uuid
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

from kafka.protocol.admin import DescribeConfigsRequest, DescribeConfigsResponse
from kafka.protocol.admin.transactions import DescribeProducersRequest, DescribeProducersResponse
from kafka.protocol.consumer import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from kafka.protocol.consumer.offsets import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from heliograph.batch.header import batches
from heliograph.batch.records import Record, build, decode
from heliograph.model import ClientSettings, TopicPartition

#: What is offered: API keys and the versions that are spoken here.
APIS = {
    0: (3, 13),
    1: (4, 13),
    2: (1, 7),
    3: (0, 12),
    18: (0, 3),
    23: (2, 4),
    32: (1, 4),
    61: (0, 0),
}
CLASSES = {
    0: ProduceRequest, 1: FetchRequest, 2: ListOffsetsRequest, 3: MetadataRequest,
    18: ApiVersionsRequest, 23: OffsetForLeaderEpochRequest, 32: DescribeConfigsRequest,
    61: DescribeProducersRequest,
}  # fmt: skip
_OUT_OF_ORDER = 45


@dataclass
class Log:
    """One partition: its batches with their base offsets, and what is remembered of producers."""

    leader: int
    batches: list[tuple[int, bytes]] = field(default_factory=list)
    start: int = 0
    end: int = 0
    #: Producer id -> epoch and last sequence.
    producers: dict[int, tuple[int, int]] = field(default_factory=dict)

    def append(self, batch: bytes) -> tuple[int, int]:
        """Error and base offset."""
        data = bytearray(batch)
        [(header, _)] = batches(memoryview(data))
        if header.producer_id >= 0:
            epoch, last = self.producers.get(header.producer_id, (header.producer_epoch, None))
            if epoch == header.producer_epoch and last not in {None, header.base_sequence - 1}:
                return _OUT_OF_ORDER, -1
            following = header.base_sequence + header.last_offset_delta
            self.producers[header.producer_id] = header.producer_epoch, following
        base = self.end
        struct.pack_into(">q", data, 0, base)
        self.batches.append((base, bytes(data)))
        self.end = base + header.last_offset_delta + 1
        return 0, base

    def read(self, offset: int) -> bytes:
        return b"".join(
            data for base, data in self.batches
            if next(batches(memoryview(data)))[0].last_offset >= max(offset, self.start)
        )  # fmt: skip

    def records(self) -> list[Record]:
        return list(decode(memoryview(bytearray(self.read(0)))))


class FakeBroker:
    """One listener of a `FakeCluster`."""

    def __init__(self, cluster: FakeCluster, node: int) -> None:
        self.cluster, self.node = cluster, node
        self.stopped = threading.Event()
        #: As metadata names it.
        self.host = "127.0.0.1"
        #: How often each API was asked for.
        self.asked: Counter[int] = Counter()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._links: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                link, _ = self._listener.accept()
            except OSError:
                return
            self._links.append(link)
            threading.Thread(target=self._serve, args=(link,), daemon=True).start()

    def close(self) -> None:
        self._listener.close()
        self.disconnect()

    def disconnect(self) -> None:
        for link in self._links:
            with suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
            link.close()
        self._links.clear()

    def _serve(self, link: socket.socket) -> None:
        stream = link.makefile("rb")
        try:
            while head := stream.read(4):
                frame = stream.read(int.from_bytes(head, "big"))
                key, version, correlation, length = struct.unpack_from(">hhih", frame)
                kind = CLASSES[key]
                flexible = kind.flexible_version_q(version)
                at = 10 + max(length, 0) + (1 if flexible else 0)
                request = kind.decode(frame[at:], version=version)
                self.asked[key] += 1
                while self.stopped.is_set():
                    time.sleep(0.01)
                response = self.cluster.answer(self, key, version, request)
                response._header = None
                body = bytes(response.encode(version=version))
                tags = b"\0" if flexible and key != 18 else b""
                link.sendall(
                    struct.pack(">ii", 4 + len(tags) + len(body), correlation) + tags + body
                )
        except (OSError, ValueError, struct.error):
            link.close()


class FakeCluster:
    """Brokers 1 to ``count`` and the partitions that they lead."""

    def __init__(self, alias: str, count: int = 1) -> None:
        self.alias = alias
        self.logs: dict[TopicPartition, Log] = {}
        self.ids: dict[str, uuid.UUID] = {}
        #: API key -> error code for all partitions.
        self.fails: dict[int, int] = {}
        self.configs: dict[str, str] = {}
        self.lock = threading.RLock()
        self.grown = threading.Condition(self.lock)
        self.brokers = {n: FakeBroker(self, n) for n in range(1, count + 1)}

    def __enter__(self) -> FakeCluster:
        return self

    def __exit__(self, *_: object) -> None:
        for broker in self.brokers.values():
            broker.stopped.clear()
            broker.close()

    @property
    def settings(self) -> ClientSettings:
        servers = ",".join(f"127.0.0.1:{b.port}" for b in self.brokers.values())
        return ClientSettings(self.alias, {"bootstrap.servers": servers})

    def create(self, topic: str, *leaders: int) -> None:
        """A topic with as many partitions as leaders are named."""
        with self.lock:
            self.ids[topic] = uuid.uuid4()
            for index, leader in enumerate(leaders or (1,)):
                self.logs[TopicPartition(topic, index)] = Log(leader)

    def write(
        self,
        topic: str,
        values: list[bytes],
        partition: int = 0,
        skip: int = 0,
        key: bytes = b"k",
        producer_id: int = -1,
    ) -> None:
        """One batch, behind ``skip`` offsets that the log does not have."""
        with self.grown:
            log = self.logs[TopicPartition(topic, partition)]
            log.end += skip
            stamp = int(time.time() * 1000)
            records = [Record(i, stamp, key, v) for i, v in enumerate(values)]
            sequence = -1 if producer_id < 0 else 0
            log.append(bytes(build(records, producer_id=producer_id, sequence=sequence)))
            self.grown.notify_all()

    def values(self, topic: str, partition: int = 0) -> list[bytes | None]:
        with self.lock:
            return [r.value for r in self.logs[TopicPartition(topic, partition)].records()]

    # -- answers ------------------------------------------------------------------------------

    def answer(self, broker: FakeBroker, key: int, version: int, request):
        if key == 1:
            return self._fetch(broker, request)
        with self.lock:
            return {
                0: self._produce, 2: self._list, 3: self._metadata, 18: self._versions,
                23: self._epochs, 32: self._configs, 61: self._producers,
            }[key](broker, request)  # fmt: skip

    def _versions(self, broker, request):
        kind = ApiVersionsResponse
        keys = [kind.ApiVersion(api_key=k, min_version=a, max_version=b)
                for k, (a, b) in APIS.items()]  # fmt: skip
        return kind(error_code=0, api_keys=keys, throttle_time_ms=0)

    def _metadata(self, broker, request):
        kind = MetadataResponse
        topic, partition = kind.MetadataResponseTopic, None
        partition = topic.MetadataResponsePartition
        names = sorted(self.ids) if request.topics is None else [t.name for t in request.topics]
        return kind(
            throttle_time_ms=0, cluster_id=self.alias, controller_id=1,
            brokers=[
                kind.MetadataResponseBroker(node_id=n, host=b.host, port=b.port, rack=None)
                for n, b in self.brokers.items()
            ],
            topics=[
                topic(
                    error_code=0 if name in self.ids else 3, name=name,
                    topic_id=self.ids.get(name, uuid.UUID(int=0)), is_internal=False,
                    partitions=[
                        partition(
                            error_code=0, partition_index=p.partition, leader_id=log.leader,
                            leader_epoch=0, replica_nodes=[log.leader], isr_nodes=[log.leader],
                            offline_replicas=[],
                        )
                        for p, log in self.logs.items() if p.topic == name
                    ],
                )
                for name in names
            ],
        )  # fmt: skip

    def _log(self, broker, name, index, key=-1) -> tuple[int, Log | None]:
        log = self.logs.get(TopicPartition(name, index))
        if log is None or log.leader != broker.node:
            return 6, None
        return self.fails.get(key, 0), log

    def _list(self, broker, request):
        kind = ListOffsetsResponse.ListOffsetsTopicResponse
        topics = []
        for t in request.topics:
            partitions = []
            for p in t.partitions:
                error, log = self._log(broker, t.name, p.partition_index, 2)
                offset = -1 if log is None else log.start if p.timestamp == -2 else log.end
                partitions.append(kind.ListOffsetsPartitionResponse(
                    partition_index=p.partition_index, error_code=error, timestamp=-1,
                    offset=offset, leader_epoch=0,
                ))  # fmt: skip
            topics.append(kind(name=t.name, partitions=partitions))
        return ListOffsetsResponse(throttle_time_ms=0, topics=topics)

    def _epochs(self, broker, request):
        kind = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
        topics = []
        for t in request.topics:
            ends = []
            for p in t.partitions:
                error, log = self._log(broker, t.topic, p.partition, 23)
                ends.append(kind.EpochEndOffset(
                    error_code=error, partition=p.partition, leader_epoch=p.leader_epoch,
                    end_offset=-1 if log is None else log.end,
                ))  # fmt: skip
            topics.append(kind(topic=t.topic, partitions=ends))
        return OffsetForLeaderEpochResponse(throttle_time_ms=0, topics=topics)

    def _producers(self, broker, request):
        kind = DescribeProducersResponse.TopicResponse
        state = kind.PartitionResponse
        topics = []
        for t in request.topics:
            partitions = []
            for index in t.partition_indexes:
                error, log = self._log(broker, t.name, index, 61)
                partitions.append(state(
                    partition_index=index, error_code=error, error_message=None,
                    active_producers=[] if log is None else [
                        state.ProducerState(
                            producer_id=i, producer_epoch=e, last_sequence=s, last_timestamp=-1,
                            coordinator_epoch=-1, current_txn_start_offset=-1,
                        )
                        for i, (e, s) in log.producers.items()
                    ],
                ))  # fmt: skip
            topics.append(kind(name=t.name, partitions=partitions))
        return DescribeProducersResponse(throttle_time_ms=0, topics=topics)

    def _configs(self, broker, request):
        kind = DescribeConfigsResponse.DescribeConfigsResult
        return DescribeConfigsResponse(
            throttle_time_ms=0,
            results=[
                kind(
                    error_code=0, error_message=None, resource_type=r.resource_type,
                    resource_name=r.resource_name,
                    configs=[
                        kind.DescribeConfigsResourceResult(
                            name=name, value=value, read_only=False, config_source=1,
                            is_sensitive=False, synonyms=[], config_type=0, documentation=None,
                        )
                        for name, value in self.configs.items()
                    ],
                )
                for r in request.resources
            ],
        )  # fmt: skip

    def _name(self, topic) -> str:
        by_id = {i: name for name, i in self.ids.items()}
        return by_id.get(topic.topic_id, "") if topic.topic_id is not None else topic.name

    def _produce(self, broker, request):
        kind = ProduceResponse.TopicProduceResponse
        topics = []
        for t in request.topic_data:
            partitions = []
            for p in t.partition_data:
                error, log = self._log(broker, self._name(t), p.index, 0)
                base = -1
                if log is not None and not error:
                    error, base = log.append(bytes(p.records))
                partitions.append(kind.PartitionProduceResponse(
                    index=p.index, error_code=error, base_offset=base, log_append_time_ms=-1,
                    log_start_offset=0, record_errors=[], error_message=None,
                ))  # fmt: skip
            topics.append(kind(name=t.name, topic_id=t.topic_id, partition_responses=partitions))
        self.grown.notify_all()
        return ProduceResponse(responses=topics, throttle_time_ms=0)

    def _fetch(self, broker, request):
        """Every request names all that it wants: sessions are refused, as by a full cache."""
        kind = FetchResponse.FetchableTopicResponse
        deadline = time.monotonic() + request.max_wait_ms / 1000
        with self.grown:
            while True:
                topics, size = [], 0
                for t in request.topics:
                    partitions = []
                    for p in t.partitions:
                        name = self._name(t) if t.topic_id is not None else t.topic
                        error, log = self._log(broker, name, p.partition, 1)
                        data = b""
                        if log is not None and not error:
                            out = not log.start <= p.fetch_offset <= log.end
                            error, data = (1, b"") if out else (0, log.read(p.fetch_offset))
                        size += len(data) + error
                        partitions.append(kind.PartitionData(
                            partition_index=p.partition, error_code=error,
                            high_watermark=-1 if log is None else log.end,
                            last_stable_offset=-1 if log is None else log.end,
                            log_start_offset=0, aborted_transactions=None,
                            preferred_read_replica=-1, records=data,
                        ))  # fmt: skip
                    topics.append(kind(topic=t.topic, topic_id=t.topic_id, partitions=partitions))
                if size or time.monotonic() >= deadline or request.min_bytes == 0:
                    break
                self.grown.wait(max(deadline - time.monotonic(), 0))
        return FetchResponse(throttle_time_ms=0, error_code=0, session_id=0, responses=topics)
