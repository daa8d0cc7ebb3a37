"""Our hand-written Fetch and Produce against kafka-python's classes, made from Kafka's schemas."""

from __future__ import annotations

import uuid
from collections import deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from heliograph.model import TopicPartition
from heliograph.wire.errors import BrokerError, DamagedAnswer
from heliograph.wire.fetch import FetchSession
from heliograph.wire.produce import Producer

IDS = {f"topic-{n}": uuid.UUID(int=n + 1) for n in range(4)}
NAMES = {i: name for name, i in IDS.items()}
partitions = st.builds(TopicPartition, st.sampled_from(sorted(IDS)), st.integers(0, 300))
offsets = st.integers(0, (1 << 63) - 1)
errors = st.sampled_from([0, 1, 3, 6, 45, 87])


class Wire:
    """Takes a connection's place: keeps what is sent, answers what it was given."""

    address = "broker:9092"
    closed = False

    def __init__(self, api, highest):
        self._api, self._highest = api, highest
        self.sent = []
        self.answers = deque()
        self.throttled_ms = None

    def close(self):
        self.closed = True

    def throttle(self, milliseconds):
        self.throttled_ms = milliseconds

    def supports(self, api_key, version):
        return api_key == self._api and version <= self._highest

    def version(self, api_key, highest):
        assert api_key == self._api
        return min(highest, self._highest)

    def send(self, api_key, version, flexible, parts, *, flush=True):
        assert api_key == self._api
        assert flush
        self.sent.append((version, flexible, b"".join(parts)))

    def answer(self, response, version):
        head = b"\0" if response.flexible_version_q(version) else b""
        self.answers.append(memoryview(bytearray(head + bytes(response.encode(version=version)))))

    def receive(self):
        return self.answers.popleft() if self.answers else None

    def wait(self, _timeout):
        return self.answers.popleft()


def wired(api, highest) -> Any:
    """A `Wire` where a `Connection` is asked for."""
    return Wire(api, highest)


def fetcher(version):
    wire = wired(1, version)
    session = FetchSession(wire, IDS, read_committed=True, max_bytes=1000, partition_max_bytes=500)
    return wire, session


def asked(wire, version):
    """The last fetch request as kafka-python reads it: (request, wanted, forgotten)."""
    sent_version, flexible, body = wire.sent[-1]
    assert (sent_version, flexible) == (version, version >= 12)
    request = FetchRequest.decode(body, version=version)
    request._header = None  # its decoder leaves it unset, its encoder asks for it
    assert bytes(request.encode(version=version)) == body, "not one byte more or less"

    def name(topic):
        return NAMES[topic.topic_id] if version >= 13 else topic.topic

    wanted = {
        TopicPartition(name(t), p.partition): p.fetch_offset
        for t in request.topics
        for p in t.partitions
    }
    forgotten = {
        TopicPartition(name(t), p) for t in request.forgotten_topics_data for p in t.partitions
    }
    return request, wanted, forgotten


def fetched(version, rows, session_id=77, error=0):
    """A response; rows: partition -> (error, high, stable, start, aborted, records)."""
    kind = FetchResponse.FetchableTopicResponse
    topics = {}
    for p, (code, high, stable, start, aborted, records) in rows.items():
        data = kind.PartitionData(
            partition_index=p.partition,
            error_code=code,
            high_watermark=high,
            last_stable_offset=stable,
            log_start_offset=start,
            aborted_transactions=None
            if aborted is None
            else [
                kind.PartitionData.AbortedTransaction(producer_id=a, first_offset=b)
                for a, b in aborted
            ],
            preferred_read_replica=-1,
            records=records,
        )
        topics.setdefault(p.topic, []).append(data)
    return FetchResponse(
        throttle_time_ms=7,
        error_code=error,
        session_id=session_id,
        responses=[
            kind(topic=name, topic_id=IDS[name], partitions=data) for name, data in topics.items()
        ],
    )


BOTH = pytest.mark.parametrize("version", [11, 13])


@BOTH
def test_f11_a_fetch_names_the_leader_epoch_that_it_is_meant_for(version):
    wire, session = fetcher(version)
    session.want(TopicPartition("topic-1", 3), 50, 7)
    session.want(TopicPartition("topic-1", 4), 60)
    session.send(500, 1)
    request, *_ = asked(wire, version)
    [topic] = request.topics
    assert {p.partition: p.current_leader_epoch for p in topic.partitions} == {3: 7, 4: -1}


@BOTH
@given(wanted=st.dictionaries(partitions, offsets, max_size=20))
def test_fetch_request(version, wanted):
    wire, session = fetcher(version)
    for partition, offset in wanted.items():
        session.want(partition, offset)
    assert session.partitions == len(wanted)
    session.send(500, 1)
    request, named, forgotten = asked(wire, version)
    assert (named, forgotten) == (wanted, set())
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (500, 1, 1000)
    assert (request.isolation_level, request.session_id, request.session_epoch) == (1, 0, 0)
    assert (request.replica_id, request.rack_id) == (-1, "")
    for topic in request.topics:
        for p in topic.partitions:
            assert (p.current_leader_epoch, p.log_start_offset) == (-1, -1)
            assert p.partition_max_bytes == 500


rows = st.dictionaries(
    partitions,
    st.tuples(
        errors,
        offsets,
        offsets,
        offsets,
        st.none() | st.lists(st.tuples(offsets, offsets), max_size=3),
        st.none() | st.binary(max_size=300),
    ),
    max_size=15,
)


@BOTH
@given(rows=rows)
def test_fetch_response(version, rows):
    wire, session = fetcher(version)
    session.want(TopicPartition("topic-0", 0), 0)
    session.send(0)
    assert session.receive() is None
    wire.answer(fetched(version, rows), version)
    found = session.receive()
    assert wire.throttled_ms == 7
    assert {
        f.partition: (f.error, f.high_watermark, f.last_stable_offset, f.log_start, f.aborted,
                      bytes(f.records))
        for f in found
    } == {p: (*row[:4], list(row[4] or []), row[5] or b"") for p, row in rows.items()}  # fmt: skip
    assert not session.in_flight


@BOTH
@given(rows=rows, at=st.integers(0, 1 << 16), raw=st.binary(min_size=1, max_size=8))
def test_f36_a_damaged_answer_is_read_or_breaks_the_connection(version, rows, at, raw):
    """Whatever its counts and sizes say: nothing else is raised."""
    wire, session = fetcher(version)
    for partition in rows:
        session.want(partition, 0)
    session.send(0)
    wire.answer(fetched(version, rows), version)
    frame = wire.answers[0]
    at %= len(frame)
    frame[at : at + len(raw)] = raw[: len(frame) - at]
    try:
        assert all(f.partition.topic in IDS or version < 13 for f in session.receive())
    except BrokerError:
        assert not wire.closed
    except DamagedAnswer:
        assert wire.closed


def test_records_are_views_that_may_be_written_to():
    wire, session = fetcher(13)
    p = TopicPartition("topic-1", 2)
    session.want(p, 0)
    session.send(0)
    wire.answer(fetched(13, {p: (0, 1, 1, 0, [], b"batch")}), 13)
    frame = wire.answers[0]
    [answer] = session.receive()
    answer.records[0:1] = b"B"
    assert b"Batch" in bytes(frame), "no copy was made"


steps = st.lists(
    st.tuples(partitions, st.sampled_from(["want", "drop"]), offsets), min_size=0, max_size=8
)


@BOTH
@given(plan=st.lists(st.tuples(steps, st.sampled_from(["ok", "ok", "lost", "none"])), max_size=8))
def test_a_session_tells_the_broker_only_what_changed(version, plan):
    """The broker's view, kept by the rules of KIP-227, is always what we want to fetch."""
    wire, session = fetcher(version)
    wanted, broker, epoch = {}, {}, 0
    for changes, outcome in plan:
        for partition, what, offset in changes:
            if what == "want":
                session.want(partition, offset)
                wanted[partition] = offset
            else:
                session.drop(partition)
                wanted.pop(partition, None)
        assert session.partitions == len(wanted)
        session.send(0)
        request, named, forgotten = asked(wire, version)
        if request.session_epoch == 0:
            broker = {}
            assert not forgotten
        else:
            assert (request.session_id, request.session_epoch) == (77, epoch)
            assert forgotten <= broker.keys() | named.keys()
            if not changes:
                assert not named, "idle partitions cost nothing"
        assert not forgotten & named.keys()
        broker = {p: o for p, o in broker.items() if p not in forgotten} | named
        assert broker == wanted
        if outcome == "lost":
            wire.answer(fetched(version, {}, session_id=0, error=70), version)
            assert session.receive() == []
            epoch, broker = 0, {}
        else:
            granted = 0 if outcome == "none" else 77
            wire.answer(fetched(version, {}, session_id=granted), version)
            session.receive()
            epoch = epoch + 1 if granted and request.session_epoch else int(bool(granted))


def test_a_session_is_closed_with_the_final_epoch():
    wire, session = fetcher(13)
    session.want(TopicPartition("topic-0", 0), 5)
    session.send(0)
    wire.answer(fetched(13, {}), 13)
    session.receive()
    wire.answer(fetched(13, {}, session_id=0), 13)
    session.close_session()
    request, named, _ = asked(wire, 13)
    assert (request.session_id, request.session_epoch, named) == (77, -1, {})


def test_other_errors_of_a_fetch_are_raised():
    wire, session = fetcher(13)
    session.want(TopicPartition("topic-0", 0), 5)
    session.send(0)
    wire.answer(fetched(13, {}, error=35), 13)
    with pytest.raises(BrokerError, match="broker:9092"):
        session.receive()


def test_topics_without_an_id_are_named():
    wire = wired(1, 13)
    session = FetchSession(
        wire, {"old": uuid.UUID(int=0)}, read_committed=False, max_bytes=1, partition_max_bytes=1
    )
    session.want(TopicPartition("old", 0), 5)
    session.send(0)
    assert wire.sent[-1][:2] == (11, False)


def test_a_recreated_topic_is_another_one():
    _, session = fetcher(13)
    assert session.knows({"topic-0": IDS["topic-0"]})
    assert not session.knows({"topic-0": uuid.uuid4()})
    producer = Producer(wired(0, 13), IDS)
    assert producer.knows(IDS)
    assert not producer.knows({"topic-9": uuid.uuid4()})


PRODUCE = pytest.mark.parametrize("version", [8, 13])


@PRODUCE
@given(batches=st.dictionaries(partitions, st.binary(min_size=1, max_size=300), min_size=1))
def test_produce_request(version, batches):
    wire = wired(0, version)
    Producer(wire, IDS, timeout_ms=1234).send(list(batches.items()))
    sent_version, flexible, body = wire.sent[-1]
    assert (sent_version, flexible) == (version, version >= 9)
    request = ProduceRequest.decode(body, version=version)
    request._header = None
    assert bytes(request.encode(version=version)) == body
    assert (request.transactional_id, request.acks, request.timeout_ms) == (None, -1, 1234)
    assert {
        TopicPartition(NAMES[t.topic_id] if version >= 13 else t.name, p.index): bytes(p.records)
        for t in request.topic_data
        for p in t.partition_data
    } == batches


answers = st.dictionaries(
    partitions,
    st.tuples(
        errors,
        offsets,
        offsets,
        st.lists(st.tuples(st.integers(0, 99), st.none() | st.text(max_size=9)), max_size=2),
        st.none() | st.text(max_size=20),
    ),
    max_size=12,
)


@PRODUCE
@given(answers=answers)
def test_no_answer_is_shorter_than_foretold(version, answers):
    asked = Producer(wired(0, version), IDS).send([(p, b"x") for p in answers])
    response = ProduceResponse(responses=_responses(answers), throttle_time_ms=0)
    head = 9 if response.flexible_version_q(version) else 8  # size, correlation id, tagged fields
    assert len(bytes(response.encode(version=version))) + head >= asked or not answers


@PRODUCE
@given(answers=answers)
def test_produce_response(version, answers):
    response = ProduceResponse(responses=_responses(answers), throttle_time_ms=7)
    wire = wired(0, version)
    producer = Producer(wire, IDS)
    assert producer.receive() is None
    wire.answer(response, version)
    found = producer.receive()
    assert wire.throttled_ms == 7
    assert {a.partition: (a.error, a.base_offset, a.log_start) for a in found} == {
        p: row[:3] for p, row in answers.items()
    }
    for answer in found:
        *_, record_errors, message = answers[answer.partition]
        assert answer.records == {number: text or "" for number, text in record_errors}
        assert answer.message == message


def _responses(answers):
    kind = ProduceResponse.TopicProduceResponse
    topics = {}
    for p, (error, base, start, record_errors, message) in answers.items():
        data = kind.PartitionProduceResponse(
            index=p.partition,
            error_code=error,
            base_offset=base,
            log_append_time_ms=-1,
            log_start_offset=start,
            record_errors=[
                kind.PartitionProduceResponse.BatchIndexAndErrorMessage(
                    batch_index=n, batch_index_error_message=text
                )
                for n, text in record_errors
            ],
            error_message=message,
        )
        topics.setdefault(p.topic, []).append(data)
    return [
        kind(name=name, topic_id=IDS[name], partition_responses=data)
        for name, data in topics.items()
    ]
