"""The storage topics of Connect on real brokers: created, checked, followed, written."""

from __future__ import annotations

import threading
import uuid
from contextlib import contextmanager
from dataclasses import replace

import pytest
from confluent_kafka import Consumer, Producer
from mirroring import settings, wait_for

from heliograph.connect import records
from heliograph.connect.api import Initial, PartitionOffset, State
from heliograph.connect.fold import Kind
from heliograph.connect.records import LoggerLevel, RestartRequest, StoredStatus, offset_key
from heliograph.connect.storage import StorageTopics
from heliograph.connect.storage_setup import StorageNames, StorageTopic
from heliograph.errors import StartError
from heliograph.model import TopicPartition
from heliograph.wire import admin, configs
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.epochs import EpochEnd
from heliograph.wire.errors import BrokerError

CONFIG = {"name": "C", "x": "${file:secrets:x}"}
RUNNING = StoredStatus(State.RUNNING, "w1:8083", 1)


@pytest.fixture
def client(lab):
    with ClusterClient(settings(lab, "A"), "test") as made:
        yield made


@pytest.fixture
def names(topic_name):
    """Named as workers name them; few offsets partitions, which cost a broker some files each."""
    return StorageNames(
        StorageTopic(f"{topic_name}-configs", 1, 1),
        StorageTopic(f"{topic_name}-status", 5, 1, {"min.insync.replicas": "1"}),
        StorageTopic(f"{topic_name}-offsets", 7, 1, {"cleanup.policy": "delete"}),
    )


@contextmanager
def following(client, names):
    """Topics that are followed, and an event that is set when something has changed."""
    news = threading.Event()
    topics = StorageTopics(client, names, news.set)
    topics.ensure()
    topics.start()
    try:
        yield topics, news
    finally:
        topics.close()


def other_producer(lab, **config):
    """Another client's, that chooses partitions as Java's producers do."""
    return Producer(
        {"bootstrap.servers": lab["A"].bootstrap, "partitioner": "murmur2_random"} | config
    )


def write(producer, topic, *pairs):
    for key, value in pairs:
        producer.produce(topic, value, key)
    assert producer.flush(60) == 0


def test_topics_are_created_as_connect_creates_them(client, names):
    StorageTopics(client, names, lambda: None).ensure()
    found = client.metadata([t.name for t in names.by_kind().values()]).topics
    assert [len(found[t.name].partitions) for t in names.by_kind().values()] == [1, 5, 7]
    answer = configs.describe(client, found, ["cleanup.policy", "min.insync.replicas"])
    assert {answer.value(name, "cleanup.policy", "") for name in found} == {"compact"}
    assert answer.found[names.statuses.name]["min.insync.replicas"].own
    # They are there already: that is fine.
    StorageTopics(client, names, lambda: None).ensure()


def test_topics_that_do_not_fit_are_all_named(client, topic_name):
    loose, wide, large = (f"{topic_name}-{what}" for what in ("loose", "wide", "large"))
    assert not admin.create_topics(
        client,
        [
            admin.NewTopic(wide, 2, 1, {"cleanup.policy": "compact"}),
            admin.NewTopic(loose, 1, 1, {"cleanup.policy": "compact,delete"}),
        ],
        30_000,
    )
    names = StorageNames(StorageTopic(wide), StorageTopic(loose), StorageTopic(large, 1, 1))
    with pytest.raises(StartError) as caught:
        StorageTopics(client, names, lambda: None).ensure()
    assert f"config.storage.topic={wide}: it has 2 partitions" in str(caught.value)
    assert f"status.storage.topic={loose}: its cleanup.policy is compact,delete" in str(
        caught.value
    )
    for wrong, text in [
        (StorageNames.of(wide, loose, wide), "name the same topic"),
        (
            StorageNames.of(f"{topic_name}-x", loose, large, 7),
            "config.storage.replication.factor=7",
        ),
        (
            replace(StorageNames.of(f"{topic_name}-x", loose, large), create=False),
            "automatic.creation.enable is false",
        ),
    ]:
        with pytest.raises(StartError, match=text):
            StorageTopics(client, wrong, lambda: None).ensure()


def test_what_is_written_is_read_by_its_writer_and_by_others(client, names):
    with following(client, names) as (ours, _), following(client, names) as (theirs, news):
        ours.append_configs(
            [
                records.target_entry("C", Initial.PAUSED),
                records.connector_entry("C", CONFIG),
                *records.task_entries("C", [{"task": "0"}, {"task": "1"}]),
            ]
        )
        status = [records.task_status_entry("C", n, RUNNING) for n in range(20)]
        ours.append_statuses([records.status_entry("C", RUNNING), *status])
        where = [{"cluster": "A", "partition": n, "topic": "t"} for n in range(20)]
        ours.append_offsets([(offset_key("C", w), {"offset": 5}) for w in where])
        ours.refresh()
        view = ours.view
        stored = view.connectors["C"]
        assert (stored.config, stored.target, len(stored.tasks)) == (CONFIG, Initial.PAUSED, 2)
        assert view.statuses["C"].tasks == dict.fromkeys(range(20), RUNNING)
        assert sorted(view.offset_keys("C")) == sorted(offset_key("C", w) for w in where)
        assert PartitionOffset(where[3], {"offset": 5}) in view.offsets("C")
        wait_for(lambda: theirs.view == view)
        assert news.is_set()

        ours.append_offsets([(key, None) for key in view.offset_keys("C")])
        gone = [records.task_status_entry("C", n, None) for n in range(20)]
        ours.append_statuses([*gone, records.status_entry("C", None)])
        ours.append_configs(
            [records.connector_entry("C", None), records.target_entry("C", None),
             records.restart_entry("D", include_tasks=False, only_failed=True),
             records.logger_entry("root", "DEBUG")]
        )  # fmt: skip
        ours.refresh()
        assert (ours.view.connectors, ours.view.statuses, ours.view.offsets("C")) == ({}, {}, [])
        requests = [RestartRequest("D", False, True), LoggerLevel("root", "DEBUG")]
        assert ours.take_requests() == requests
        wait_for(lambda: theirs.view == ours.view)
        assert theirs.take_requests() == requests
    with following(client, names) as (late, _):
        assert late.view == ours.view
        assert late.take_requests() == [], "what was asked for before it was there"


def test_records_of_a_java_like_producer_meet_ours(lab, client, names):
    """Keys are in the same partitions, so the last writer wins, whoever that is."""
    with following(client, names) as (topics, _):
        producer = other_producer(lab)
        keys = [offset_key("C", {"partition": n}) for n in range(50)]
        write(producer, names.offsets.name, *[(key, b'{"offset":1}') for key in keys])
        topics.append_offsets([(key, {"offset": 2}) for key in keys])
    reader = Consumer(
        {"bootstrap.servers": lab["A"].bootstrap, "group.id": uuid.uuid4().hex,
         "auto.offset.reset": "earliest", "enable.auto.commit": "false"}
    )  # fmt: skip
    reader.subscribe([names.offsets.name])
    found: dict[bytes, set[int]] = {}
    read: list[bytes] = []
    while len(read) < 100:
        if (message := reader.poll(60)) is not None and message.error() is None:
            found.setdefault(message.key(), set()).add(message.partition())
            read.append(message.value())
    reader.close()
    assert found.keys() == set(keys)
    assert all(len(partitions) == 1 for partitions in found.values())
    assert sorted(read) == [b'{"offset":1}'] * 50 + [b'{"offset":2}'] * 50


def test_transactions_and_rubbish(lab, client, names, caplog):
    """What an exactly-once worker aborts is not there; what is no record does no harm."""
    connector = {n: (f"connector-{n}".encode(), b'{"properties":{}}') for n in "ABC"}
    with following(client, names) as (topics, _):
        producer = other_producer(lab, **{"transactional.id": names.configs.name})
        producer.init_transactions(60)
        for name, commit in (("A", True), ("B", False), ("C", True)):
            producer.begin_transaction()
            write(producer, names.configs.name, connector[name], (b"rubbish", b"\xff"))
            if commit:
                producer.commit_transaction(60)
            else:
                producer.abort_transaction(60)
        caplog.clear()
        topics.refresh()
        assert [*topics.view.connectors] == ["A", "C"]
        # The one that was aborted is not even looked at. The other thread may have told of some.
        assert sum("rubbish" in r.getMessage() for r in caplog.records) <= 2

        # While a transaction is open, what follows it is hidden: a reading waits for its end.
        producer.begin_transaction()
        write(producer, names.configs.name, (connector["A"][0], None))
        topics.append_configs([records.connector_entry("D", {})])
        reading = threading.Thread(target=topics.refresh)
        reading.start()
        assert [*topics.view.connectors] == ["A", "C"]
        assert reading.is_alive()
        producer.commit_transaction(60)
        reading.join()
        assert [*topics.view.connectors] == ["C", "D"]


def test_a_topic_that_was_created_anew_is_read_from_its_start(client, names):
    with following(client, names) as (topics, _):
        topics.append_configs([records.connector_entry("C", {})])
        topics.append_statuses([records.status_entry("C", RUNNING)])
        topics.refresh()
        topic = names.configs.name
        topic_id = client.metadata([topic]).topics[topic].topic_id
        assert not admin.delete_topics(client, {topic_id: topic}, 30_000)
        wait_for(lambda: topic not in client.metadata([topic]).topics)
        assert [*topics.view.connectors] == ["C"], "a topic that is gone says nothing"
        topics.ensure()
        for name in ("D", "E", "F"):
            topics.append_configs([records.connector_entry(name, {})])
        topics.refresh()
        assert [*topics.view.connectors] == ["D", "E", "F"]
        assert [*topics.view.statuses] == ["C"]
        wait_for(lambda: topics._incomplete == set())


def test_a_topic_that_was_emptied_is_read_from_its_start(client, names):
    topics = StorageTopics(client, names, lambda: None)
    topics.ensure()
    topics.append_configs([records.connector_entry("C", {})])
    topics.refresh()
    for name in ("D", "E"):
        topics.append_configs([records.connector_entry(name, {})])
    part = TopicPartition(names.configs.name, 0)
    mixed = {"cleanup.policy": "compact,delete"}
    assert not configs.alter(client, {part.topic: mixed})
    metadata = client.metadata([part.topic])
    wait_for(lambda: admin.delete_records(client, metadata, {part: 2}) == {part: 0})
    topics.refresh()
    assert [*topics.view.connectors] == ["E"]
    # A worker that is new begins where the topic does.
    new = StorageTopics(client, names, lambda: None)
    new.refresh()
    assert new.view == topics.view


def test_a_leader_that_lacks_records(client, names, monkeypatch, caplog):
    """What an unclean election looks like; brokers of one replica have none."""
    topics = StorageTopics(client, names, lambda: None)
    topics.ensure()
    topics.append_configs([records.connector_entry("C", {})])
    topics.refresh()
    part = TopicPartition(names.configs.name, 0)
    epoch = topics._epochs[part]
    asked = []

    def ends(_client, _metadata, epochs):
        asked.append(dict(epochs))
        # First a broker that has not heard of its election yet.
        return {part: EpochEnd(0, 0, 0) if len(asked) > 1 else EpochEnd(76, -1, -1)}

    monkeypatch.setattr("heliograph.connect.storage.epoch_ends", ends)
    topics._epochs[part] = epoch - 1
    topics.refresh()
    assert "read again" not in caplog.text
    topics.refresh()
    assert "a leader of partition 0 lacks records" in caplog.text
    assert asked == [{part: epoch - 1}] * 2
    topics.refresh()
    assert len(asked) == 2
    assert [*topics.view.connectors] == ["C"]


def test_many_at_once(client, names):
    """Whoever refreshes after writing finds what was written, whatever others do."""
    with following(client, names) as (topics, _):
        missed = []

        def work(name):
            for n in range(5):
                topics.append_configs([records.connector_entry(name, {"n": str(n)})])
                topics.refresh()
                if topics.view.connectors[name].config != {"n": str(n)}:
                    missed.append((name, n))

        threads = [threading.Thread(target=work, args=(f"C{n}",)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert missed == []
        assert len(topics.view.connectors) == 8


def test_topics_that_are_not_there(client, names):
    topics = StorageTopics(client, names, lambda: None)
    with pytest.raises(BrokerError):
        topics._metadata()
    assert topics.view.config_offset == -1
    assert set(topics._incomplete) == set(Kind)
    topics.close()
