"""What becomes of a remote topic when its source topic is deleted; and when it only seems so."""

from __future__ import annotations

import json
import logging
import uuid

import pytest
from access import allow, create_topic, flow_config, grant, granted, settings_of, write_config
from click.testing import CliRunner
from driving import copying_jobs
from mirroring import wait_for
from pairs import Pair

from heliograph.cli import cli
from heliograph.control.topics import deletion as topic_deletion
from heliograph.control.topics.deletion import DeletionWatch
from heliograph.control.topics.refresh import TopicRefresh
from heliograph.errors import HeliographError
from heliograph.ledger.codec import Entry, Place, Signature
from heliograph.ledger.flow_ledger import FlowLedger
from heliograph.ledger.follower import LedgerFollower
from heliograph.ledger.memory import SyncedMemory, topic_subject
from heliograph.ledger.runs import Run
from heliograph.ledger.store import LedgerStore
from heliograph.model import ClientSettings, TopicPartition
from heliograph.policy import ledger_topic
from heliograph.service.flow import FlowRuntime
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import ConnectionFailed

KEEP = {"heliograph.on.topic.deleted": "keep"}
DELETE = {"heliograph.on.topic.deleted": "delete"}


class Mirrored:
    """Two topics that were mirrored, and what watches over them. ``other`` is never deleted."""

    def __init__(self, pair, flow, topic):
        self.pair, self.flow = pair, flow
        self.topic, self.other = topic, f"{topic}-other"
        self.remote = f"A.{topic}"
        self.sign()
        for name in (self.topic, self.other):
            flow.create(name)
            flow.write(name, [b"a", b"b", b"c"])
        flow.copy(self.topic, self.other)

    def sign(self):
        ids = (self.flow.source.cluster_id(), self.flow.target.cluster_id())
        ledger = LedgerStore(self.flow.target, self.flow.context.ledger_topic)
        ledger.sign(Signature(self.flow.context.producer_id, *ids))

    def watch(self, keys=DELETE, source=None, **more):
        """As a newly started mirror makes it."""
        p = self.pair(**{"topics": f"{self.topic}.*", **keys, **more})
        refresh = TopicRefresh(p.config, p.source, p.target)
        source = source or p.source
        return DeletionWatch(
            p.config, source, p.target, FlowLedger(p.target, self.flow.context.ledger_topic),
            lambda: refresh.refresh(create=False),
        )  # fmt: skip

    def delete(self, topic=None):
        self.flow.delete(self.flow.source, topic or self.topic)

    @property
    def there(self):
        return self.remote in self.flow.target.metadata([self.remote]).topics

    def assert_stays(self, watch, times=3):
        for _ in range(times):
            watch.watch()
        assert self.there

    def gone(self):
        return wait_for(lambda: not self.there)


@pytest.fixture
def mirrored(pair, mirroring, topic_name):
    return Mirrored(pair, mirroring, topic_name)


@pytest.fixture
def warnings(caplog):
    """What was said, in short."""
    caplog.set_level(logging.WARNING, logger=topic_deletion.__name__)
    return lambda: [r.getMessage() for r in caplog.records if r.name == topic_deletion.__name__]


# -- the two policies --------------------------------------------------------------------------


def test_keep_is_said_once_and_keeps(mirrored, warnings):
    watch = mirrored.watch(KEEP)
    watch.watch()
    mirrored.delete()
    watch.watch()
    assert warnings() == [], "seen once is not enough"
    for _ in range(3):
        watch.watch()
    [text] = warnings()
    assert f"source topic {mirrored.topic} was deleted on A" in text
    assert f"{mirrored.remote} on B is kept, with 3 offset(s) in 1 partition(s)" in text
    assert "heliograph.on.topic.deleted=keep" in text
    assert "is kept" in watch.details()[mirrored.topic]
    assert mirrored.flow.values(mirrored.topic) == [b"a", b"b", b"c"]
    again = mirrored.watch(KEEP)
    mirrored.assert_stays(again)
    assert len(warnings()) == 1, "also across restarts"
    assert "is kept" in again.details()[mirrored.topic]


def test_delete_deletes_that_topic_only_and_says_so(mirrored, warnings):
    watch = mirrored.watch(DELETE)
    mirrored.delete()
    watch.watch()
    assert mirrored.there
    watch.watch()
    mirrored.gone()
    [text] = warnings()
    assert f"source topic {mirrored.topic} was deleted on A" in text
    assert f"{mirrored.remote} on B is deleted, with 3 offset(s) in 1 partition(s)" in text
    assert "heliograph.on.topic.deleted=delete" in text
    for _ in range(2):
        watch.watch()
    assert len(warnings()) == 1
    assert watch.details() == {}
    assert mirrored.flow.values(mirrored.other) == [b"a", b"b", b"c"]


def test_from_keep_to_delete(mirrored, warnings):
    mirrored.delete()
    mirrored.assert_stays(mirrored.watch(KEEP))
    watch = mirrored.watch(DELETE)
    for _ in range(2):
        watch.watch()
    mirrored.gone()
    assert len(warnings()) == 2


def test_what_was_remembered_of_a_deleted_topic_is_forgotten(mirrored):
    target, ledger = mirrored.flow.target, mirrored.flow.context.ledger_topic
    topic_id = target.metadata([mirrored.remote]).topics[mirrored.remote].topic_id
    subject = topic_subject(mirrored.remote, topic_id)
    SyncedMemory(LedgerFollower(target, ledger)).remember(
        "config", {subject: {"retention.ms": "1"}}
    )
    mirrored.delete()
    watch = mirrored.watch(DELETE)
    for _ in range(2):
        watch.watch()
    mirrored.gone()
    memory = SyncedMemory(LedgerFollower(target, ledger))
    memory.refresh()
    assert memory.recall("config") == memory.recall("deleted") == {}


# -- what is no deletion -----------------------------------------------------------------------


def test_s43_a_topic_created_again_under_its_name_is_not_deleted(mirrored, warnings):
    watch = mirrored.watch(DELETE)
    mirrored.delete()
    watch.watch()
    admin.create_topics(mirrored.flow.source, [admin.NewTopic(mirrored.topic, 1, 1, {})], 30_000)
    mirrored.flow.await_topic(mirrored.flow.source, mirrored.topic, 1)
    mirrored.assert_stays(watch)
    assert warnings() == []
    assert watch.details() == {}


def test_a_topic_created_again_of_which_the_last_refresh_did_not_know(mirrored, warnings):
    mirrored.delete()
    p = mirrored.pair(topics=f"{mirrored.topic}.*", **DELETE)
    plan = TopicRefresh(p.config, p.source, p.target).refresh(create=False)
    assert mirrored.topic not in plan.source.topics
    p.create(p.source, mirrored.topic)
    ledger = mirrored.flow.context.ledger_topic
    mirrored.assert_stays(
        DeletionWatch(p.config, p.source, p.target, FlowLedger(p.target, ledger), lambda: plan)
    )
    assert warnings() == []


def test_s43_an_excluded_topic_is_left_alone_and_goes_on_when_it_is_included_again(
    mirrored, pair, warnings
):
    """Excluded, its source topic is still there; then excluded and deleted; the other goes on."""
    excluded = mirrored.watch(DELETE, **{"topics.exclude": mirrored.topic})
    mirrored.assert_stays(excluded)
    p = pair(**{"topics": f"{mirrored.topic}.*", "topics.exclude": mirrored.topic})
    assert mirrored.topic not in p.refresh().remote
    mirrored.flow.write(mirrored.topic, [b"d"])
    p = pair(topics=f"{mirrored.topic}.*")
    assert mirrored.topic in p.refresh().remote
    mirrored.flow.copy(mirrored.topic)
    assert mirrored.flow.values(mirrored.topic) == [b"a", b"b", b"c", b"d"]
    mirrored.delete()
    mirrored.assert_stays(excluded)
    assert warnings() == []


def test_a_remote_topic_created_again_is_not_ours(mirrored, warnings):
    watch = mirrored.watch(DELETE)
    mirrored.delete()
    mirrored.flow.delete(mirrored.flow.target, mirrored.remote)
    admin.create_topics(mirrored.flow.target, [admin.NewTopic(mirrored.remote, 1, 1, {})], 30_000)
    mirrored.flow.await_topic(mirrored.flow.target, mirrored.remote, 1)
    mirrored.assert_stays(watch)
    assert warnings() == []


def test_a_topic_that_was_never_mirrored_is_left_alone(mirrored, warnings):
    flow, name = mirrored.flow, f"{mirrored.topic}-empty"
    flow.create(name)
    mirrored.delete(name)
    watch = mirrored.watch(DELETE)
    for _ in range(3):
        watch.watch()
    assert f"A.{name}" in flow.target.metadata([f"A.{name}"]).topics
    assert warnings() == []


def test_an_unreachable_source_says_nothing_about_its_topics(mirrored, warnings):
    mirrored.delete()
    away = ClusterClient(ClientSettings("A", {"bootstrap.servers": "127.0.0.1:1"}), "test")
    watch = mirrored.watch(DELETE, away)
    for _ in range(3):
        with pytest.raises(ConnectionFailed):
            watch.watch()
    assert mirrored.there
    assert warnings() == []


def test_another_cluster_under_the_source_s_address_is_refused(mirrored, warnings):
    mirrored.delete()
    watch = mirrored.watch(DELETE, mirrored.flow.target)
    for _ in range(3):
        with pytest.raises(HeliographError, match=r"source\.other-cluster"):
            watch.watch()
    assert mirrored.there
    assert warnings() == []


def test_a_source_that_lost_all_of_its_topics_deletes_nothing(mirrored, warnings):
    """Its disks were lost and it was set up again, say: the mirror is all that is left."""
    mirrored.delete()
    mirrored.delete(mirrored.other)
    watch = mirrored.watch(DELETE)
    mirrored.assert_stays(watch)
    assert len(warnings()) == 2
    assert all("it may have lost its topics" in text for text in warnings())
    assert "is kept all the same" in watch.details()[mirrored.topic]
    assert "is gone on A" in watch.details()[mirrored.topic]


def test_brokers_that_cannot_tell(mirrored, warnings, monkeypatch):
    monkeypatch.setattr(admin, "tells_topic_ids", lambda _: False)
    mirrored.delete()
    mirrored.assert_stays(mirrored.watch(DELETE))
    [text] = warnings()
    assert "cannot tell that a topic id is gone" in text
    assert "is kept all the same" in text


# -- records of others -------------------------------------------------------------------------


def produce(flow, topic, partition=0, **config):
    producer = flow.producer("B", **config)
    producer.produce(topic, b"foreign", b"foreign", partition)
    assert producer.flush(30) == 0


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_remote_topic_with_records_of_others_is_kept(mirrored, warnings, idempotent):
    produce(mirrored.flow, mirrored.remote, **{"enable.idempotence": idempotent})
    mirrored.delete()
    watch = mirrored.watch(DELETE)
    mirrored.assert_stays(watch)
    [text] = warnings()
    assert "is kept all the same, with 4 offset(s)" in text
    assert ("has written to" if idempotent else "others have written to the end") in text


def test_records_of_others_between_ours(mirrored, warnings):
    produce(mirrored.flow, mirrored.remote)
    mirrored.flow.write(mirrored.topic, [b"d"])
    mirrored.flow.copy(mirrored.topic)
    mirrored.delete()
    mirrored.assert_stays(mirrored.watch(DELETE))
    assert "others have written" in warnings()[0]


def test_records_of_others_in_a_partition_that_was_never_mirrored(mirrored, warnings):
    flow = mirrored.flow
    assert admin.create_partitions(flow.target, {mirrored.remote: 2}, 30_000) == {}
    flow.await_topic(flow.target, mirrored.remote, 2)
    produce(flow, mirrored.remote, 1)
    mirrored.delete()
    mirrored.assert_stays(mirrored.watch(DELETE))
    assert "-1 holds records, but was never mirrored" in warnings()[0]


@pytest.mark.parametrize("stranger", [False, True])
def test_records_of_others_where_the_broker_has_forgotten_us(
    quick, tmp_path, topic_name, stranger, warnings
):
    """The records are from 2023, so that the quick lab's B forgets their producer at once."""
    p = Pair(quick.lab, tmp_path, topics=f"{topic_name}.*", **DELETE)
    m = Mirrored(lambda **_: p, quick, topic_name)
    remote = TopicPartition(m.remote, 0)

    def producers():
        return admin.describe_producers(p.target, p.target.metadata([m.remote]), [remote])

    wait_for(lambda: producers() == {remote: []})
    if stranger:
        produce(quick, m.remote)
    m.delete()
    watch = m.watch()
    for _ in range(2):
        watch.watch()
    if stranger:
        assert m.there
        assert "others have written to the end" in warnings()[0]
    else:
        m.gone()
    p.close()


def commit(flow, topic):
    producer = flow.producer(**{"transactional.id": uuid.uuid4().hex})
    producer.init_transactions(30)
    for n in range(3):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % n, b"k", 0)
        producer.commit_transaction(30)
    wait_for(
        lambda: (
            flow.offsets(flow.source, topic, admin.LATEST, read_committed=True)
            == flow.offsets(flow.source, topic, admin.LATEST)
        )
    )


@pytest.mark.parametrize("identical", [False, True])
def test_filled_gaps_and_filler_are_not_taken_for_records_of_others(
    pair, mirroring, topic_name, identical
):
    flow = mirroring.leasing(identical=identical, paddable=True)
    m = Mirrored(pair, flow, f"{topic_name}-x")
    topic = f"{m.topic}-late"
    flow.create(topic)
    flow.write(topic, [b"deleted"] * 10)
    flow.trim(flow.source, TopicPartition(topic, 0), 10)
    commit(flow, topic)
    flow.copy(topic)
    m.topic, m.remote = topic, f"A.{topic}"
    m.delete()
    watch = m.watch(DELETE)
    for _ in range(2):
        watch.watch()
    m.gone()


# -- rights ------------------------------------------------------------------------------------


def test_missing_rights_delete_nothing_and_are_named(
    guarded_lab, tmp_path, topic_name, warnings, monkeypatch
):
    a, b = (ClusterClient(settings_of(guarded_lab, alias), "test") for alias in "AB")
    names = [f"{topic_name}-{i}" for i in range(3)]
    hidden, deleted, _witness = names
    for name in names:
        create_topic(a, name)
        create_topic(b, f"A.{name}")
    ledger_name = f"ledger-{topic_name}"
    create_topic(b, ledger_name, cleanup_policy="compact")
    ledger = LedgerStore(b, ledger_name)
    ledger.sign(Signature(7, a.cluster_id(), b.cluster_id()))
    here, there = a.metadata(names).topics, b.metadata([f"A.{n}" for n in names]).topics
    ledger.write(
        Entry(Place(n, 0, here[n].topic_id, there[f"A.{n}"].topic_id), [Run(0, 0, 0)])
        for n in names
    )
    config = flow_config(
        write_config(guarded_lab, tmp_path, ("carol", "dave"), topics=f"{topic_name}.*", **DELETE)
    )
    # What carol may not see on A is not deleted: it is there.
    grant(a, *(allow("carol", "DESCRIBE", "topic", name) for name in names[1:]))
    rights = [
        allow("dave", o, kind, name)
        for o, kind, name in (
            ("DESCRIBE", "topic", f"A.{topic_name}…"), ("READ", "topic", ledger_name),
            ("WRITE", "topic", ledger_name),
        )
    ]  # fmt: skip
    grant(b, *rights)
    with (
        ClusterClient(config.source_admin, "test") as source,
        ClusterClient(config.target_admin, "test") as target,
    ):
        refresh = TopicRefresh(config, source, target)
        watch = DeletionWatch(
            config,
            source,
            target,
            FlowLedger(target, ledger_name),
            lambda: refresh.refresh(create=False),
        )
        admin.delete_topics(a, {here[deleted].topic_id: deleted}, 30_000)
        wait_for(lambda: deleted not in a.metadata([deleted]).topics)
        for _ in range(3):
            watch.watch()
        assert hidden not in watch.details()
        text = watch.details()[deleted]
        assert f"User:dave may not Delete topic A.{deleted} on cluster B" in text
        assert f"--operation Delete --topic A.{deleted}" in text
        assert len(warnings()) == 1
        with granted(b, allow("dave", "DELETE", "topic", f"A.{deleted}")):
            # It is tried again, after a while.
            monkeypatch.setattr(topic_deletion, "_AGAIN_SECONDS", 0.0)
            wait_for(
                lambda: watch.watch() or f"A.{deleted}" not in b.metadata([f"A.{deleted}"]).topics
            )
    assert b.metadata([f"A.{hidden}"]).topics.keys() == {f"A.{hidden}"}
    a.close()
    b.close()


# -- the mirror's job and the command ----------------------------------------------------------


def test_the_job_of_a_mirror_and_topics_plan(pair, mirroring, topic_name, caplog):
    """With a flow's own ledger, as ``heliograph run`` has it."""

    def told():
        return [r.getMessage() for r in caplog.records if "is deleted" in r.getMessage()]

    topics = [f"{topic_name}-{i}" for i in range(2)]
    p = pair(**{"topics": f"{topic_name}.*", **DELETE})
    for name in topics:
        p.create(p.source, name)
    runtime = FlowRuntime(p.config)

    def plan(path, *args):
        result = CliRunner().invoke(cli, ["topics", "plan", str(path), *args])
        assert result.exit_code == 0, result.output
        return result.output

    try:
        runtime.open_target()
        runtime.open()
        wait_for(lambda: runtime.refresh_topics() or runtime.plan.topics == 2)
        ledger = LedgerStore(p.target, ledger_topic("A"))
        for name in topics:
            mirroring.await_topic(p.target, f"A.{name}", 1)
            here = p.source.metadata([name]).topics[name].topic_id
            there = p.target.metadata([f"A.{name}"]).topics[f"A.{name}"].topic_id
            ledger.write([Entry(Place(name, 0, here, there), [Run(0, 0, 0)])])
        [job] = [j for j in copying_jobs(runtime) if "watching for deleted topics" in j.description]
        assert job.description == "watching for deleted topics of A->B"
        assert job.interval_seconds == 10
        job.run()
        assert plan(p.path).strip() == "A->B: nothing to do"
        mirroring.delete(p.source, topics[0])
        runtime.refresh_topics()
        [flow] = json.loads(plan(p.path, "-o", "json"))
        assert [row["topic"] for row in flow["delete"]] == [f"A.{topics[0]}"]
        assert "delete" in plan(p.path)
        kept = p.path.with_name("keep.properties")
        kept.write_text(p.path.read_text().replace("deleted = delete", "deleted = keep"))
        output = plan(kept)
        assert "A->B: nothing to do" in output
        assert f"A.{topics[0]} on B is kept" in output
        for _ in range(2):
            job.run()
        wait_for(lambda: not p.count(p.target, f"A.{topics[0]}"))
        assert f"A.{topics[0]} on B is deleted" in told()[0]
        assert p.count(p.target, f"A.{topics[1]}") == 1
        runtime.refresh_topics()
        assert p.count(p.target, f"A.{topics[0]}") == 0, "and it is not created again"
    finally:
        runtime.close()
