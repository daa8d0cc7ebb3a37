"""Ends of many partitions: our ListOffsets against kafka-python's, and what it costs at rest."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import ListOffsetsRequest, ListOffsetsResponse

from heliograph.batch.records import Record, build
from heliograph.model import TopicPartition
from heliograph.wire import ends as module
from heliograph.wire.ends import EndsQuery
from heliograph.wire.errors import ConnectionFailed
from heliograph.wire.metadata import Metadata, PartitionInfo, TopicInfo

T = TopicPartition
Topic = ListOffsetsResponse.ListOffsetsTopicResponse
Partition = Topic.ListOffsetsPartitionResponse


class Broker:
    """Takes a connection's place: decodes requests and answers with the ends that it was given."""

    address = "broker:9092"

    def __init__(self, answers):
        self.answers = answers
        self.asked = []
        self.throttle_ms = 0
        self.throttled = []
        self.closed = False
        self.damage = None

    def send(self, api_key, version, flexible, parts):
        assert (api_key, version, flexible) == (2, 2, False)
        self.asked.append(ListOffsetsRequest.decode(b"".join(parts), version=2))

    def wait(self, _timeout):
        topics = {}
        for topic in self.asked[-1].topics:
            for p in topic.partitions:
                error, offset = self.answers[T(topic.name, p.partition_index)]
                made = Partition(
                    partition_index=p.partition_index, error_code=error, timestamp=-1, offset=offset
                )
                topics.setdefault(topic.name, []).append(made)
        response = ListOffsetsResponse(
            throttle_time_ms=self.throttle_ms,
            topics=[Topic(name=n, partitions=made) for n, made in topics.items()],
        )
        answer = bytes(response.encode(version=2))
        return memoryview(bytearray(answer[: self.damage]))

    def throttle(self, milliseconds):
        self.throttled.append(milliseconds)

    def close(self):
        self.closed = True


class Client:
    alias = "A"
    request_timeout = 1.0

    def __init__(self, brokers):
        self.brokers = brokers

    @contextmanager
    def lent(self, node):
        if self.brokers[node] is None:
            raise ConnectionFailed("away")
        yield self.brokers[node]


def metadata_of(leaders):
    topics = {}
    for p, leader in leaders.items():
        info = topics.setdefault(p.topic, TopicInfo(p.topic, uuid.uuid4(), False, {}))
        info.partitions[p.partition] = PartitionInfo(leader, 0, 1)
    return Metadata("id", 0, {}, topics)


partitions = st.builds(T, st.sampled_from(["a", "topic-ü", "x" * 249]), st.integers(0, 300))
answers = st.tuples(st.sampled_from([0, 0, 0, 3, 6]), st.integers(-1, (1 << 63) - 1))


@given(st.dictionaries(partitions, answers, max_size=30), st.booleans())
def test_requests_and_answers_are_kafkas(answers, read_committed):
    brokers = {n: Broker(answers) for n in (0, 1)}
    metadata = metadata_of({p: p.partition % 2 for p in answers})
    client: Any = Client(brokers)
    query = EndsQuery(client, read_committed=read_committed)
    query.ask(metadata, answers)
    assert query.found == {p: end for p, (error, end) in answers.items() if not error}
    for broker in brokers.values():
        for request in broker.asked:
            assert (request.replica_id, request.isolation_level) == (-1, int(read_committed))
            assert {p.timestamp for t in request.topics for p in t.partitions} == {-1}


@pytest.fixture
def three():
    """Three partitions on two brokers."""
    answers = {T("t", 0): (0, 10), T("t", 1): (0, 11), T("u", 0): (0, 12)}
    client: Any = Client({n: Broker(answers) for n in (0, 1)})
    leaders = {T("t", 0): 0, T("t", 1): 1, T("u", 0): 1}
    return SimpleNamespace(
        answers=answers, client=client, metadata=metadata_of(leaders), leaders=leaders,
        query=EndsQuery(client),
    )  # fmt: skip


def test_answers_that_stay_the_same_are_not_decoded(three, monkeypatch):
    three.query.ask(three.metadata, three.leaders)
    assert three.query.changed == set(three.leaders)
    decoded = []
    real = module._decode
    monkeypatch.setattr(module, "_decode", lambda a: decoded.append(1) or real(a))
    three.client.brokers[1].throttle_ms = 7
    for _ in range(5):
        three.query.ask(three.metadata, three.leaders)
        assert three.query.changed == set()
    assert decoded == []
    assert three.query.found[T("u", 0)] == 12
    assert three.client.brokers[1].throttled[-1] == 7
    three.answers[T("u", 0)] = (0, 13)
    three.query.ask(three.metadata, three.leaders)
    assert three.query.changed == {T("u", 0)}
    assert three.query.found == {T("t", 0): 10, T("t", 1): 11, T("u", 0): 13}
    three.query.ask(metadata_of({T("t", 0): 1}), [T("t", 0)])
    assert three.query.changed == {T("t", 1), T("u", 0)}, "not asked for any more"


def test_a_broker_that_is_away_is_told_and_its_partitions_are_absent(three):
    three.query.ask(three.metadata, three.leaders)
    broker, three.client.brokers[1] = three.client.brokers[1], None
    three.query.ask(three.metadata, three.leaders)
    assert three.query.found == {T("t", 0): 10}
    assert three.query.changed == {T("t", 1), T("u", 0)}
    assert set(three.query.silent) == {1}
    three.client.brokers[1] = broker
    three.query.ask(three.metadata, three.leaders)
    assert three.query.changed == {T("t", 1), T("u", 0)}, "it is back"
    assert len(three.query.found) == 3
    assert three.query.silent == {}
    three.query.ask(three.metadata, three.leaders, leave_out={1})
    assert three.query.found == {T("t", 0): 10}


def test_a_damaged_answer_costs_the_connection_and_nothing_else(three):
    three.client.brokers[1].damage = 20
    three.query.ask(three.metadata, three.leaders)
    assert three.query.found == {T("t", 0): 10}
    assert set(three.query.silent) == {1}
    assert three.client.brokers[1].closed
    three.client.brokers[1].damage = None
    three.query.ask(three.metadata, three.leaders)
    assert len(three.query.found) == 3


def test_the_time_of_the_record_at_an_offset_is_that_of_its_batch():
    def batch(base, *stamps):
        made = build((Record(n, stamp, None, b"v") for n, stamp in enumerate(stamps)), codec=0)
        made[:8] = base.to_bytes(8, "big")
        return bytes(made)

    records = memoryview(batch(10, 5000, 6000) + batch(12, 7500) + batch(13, -1))
    assert module._written(records, 10) == 5.0
    assert module._written(records, 11) == 5.0
    assert module._written(records, 12) == 7.5
    assert module._written(records, 13) is None, "it bears none"
    assert module._written(records, 14) is None
    assert module._written(records[:40], 10) is None, "a partial batch"
