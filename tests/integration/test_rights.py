"""A mirror that lacks a right: what it says, and that all the rest goes on.

One right is missing at a time. What is said names who, what, where and the command that helps; and
that command does help.
"""

from __future__ import annotations

import logging
import shlex
import time
from contextlib import contextmanager
from typing import Any

import pytest
from access import (
    MECHANISM,
    allow,
    create_topic,
    flow_config,
    grant,
    granted,
    revoke,
    settings_of,
    write_config,
)
from grouping import Groups
from mirroring import Mirroring, wait_for

from heliograph.config import load
from heliograph.control.groups.offset_sync import GroupOffsetSync
from heliograph.control.heartbeats import HeartbeatEmitter
from heliograph.control.topics import internal as internal_topics
from heliograph.copy import links
from heliograph.copy.loop import CopyLoop
from heliograph.errors import LabError, StartError
from heliograph.lab import Lab
from heliograph.lab.proof import read_all
from heliograph.model import Flow, TopicPartition
from heliograph.service.flow import FlowRuntime
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import BrokerError
from heliograph.wire.groups import GroupClient
from heliograph.wire.rights import missing_right

LOGIN: dict[str, Any] = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": MECHANISM,
    "sasl.username": "alice",
    "sasl.password": "alice-secret",
}


def help_text(settings, *right):
    text = missing_right(settings, *right)
    assert f"User:bob may not {right[0]} " in text
    return text


class Copying:
    """A flow whose executors are bob; alice has made all topics and has granted what bob needs."""

    def __init__(self, lab, *topics):
        self.lab = lab
        self.topics = topics
        alice = Mirroring.of(lab)
        self.flow = alice.but(
            source=settings_of(lab, "A", "bob"), target=settings_of(lab, "B", "bob")
        )
        context = self.flow.context
        assert context.offset_syncs is not None
        internal = (context.ledger_topic, context.offset_syncs.topic)
        grant(alice.target, *(allow("bob", "ALL", "topic", name) for name in internal))
        for topic in topics:
            self.flow.create(topic)
            self.flow.write(topic, [b"%d" % n for n in range(10)], **LOGIN)

    def copy(self):
        """One lease, up to where the source ends; the error of each topic."""
        receipts = CopyLoop(self.flow.lease(self.topics)).run()
        return {r.topic: r.error for r in receipts}

    def values(self, topic):
        return [r.value for r in read_all(self.flow.target, TopicPartition(f"A.{topic}", 0))]

    def is_whole(self, topic):
        return self.values(topic) == [b"%d" % n for n in range(10)]

    def close(self):
        self.flow.close()


@pytest.fixture
def copying(guarded_lab, topic_name):
    """Two topics: nothing is wrong with the first, bob lacks something at the second."""
    made = Copying(guarded_lab, f"{topic_name}-good", f"{topic_name}-bad")
    yield made
    made.close()
    links.close()


SOURCE, TARGET = ["READ"], ["READ", "WRITE"]


def let(copying, topic, source=SOURCE, target=TARGET):
    grant(copying.flow.source, *(allow("bob", o, "topic", topic) for o in source))
    grant(copying.flow.target, *(allow("bob", o, "topic", f"A.{topic}") for o in target))


@pytest.mark.parametrize(
    ("source", "target", "said", "lacking"),
    [
        (["DESCRIBE"], TARGET, "cannot be read from A: TOPIC_AUTHORIZATION_FAILED", ("A", "Read")),
        ([], TARGET, "is not shown to us on A", ("A", "Describe")),
        (SOURCE, ["READ"], "cannot be written on B: TOPIC_AUTHORIZATION_FAILED", ("B", "Write")),
        (SOURCE, ["WRITE"], "does not tell us where it ends", ("B", "Read")),
        (SOURCE, [], "is not shown to us on B", ("B", "Describe")),
    ],
)
def test_a_partition_that_may_not_be_copied_says_so_and_the_others_go_on(
    copying, source, target, said, lacking
):
    good, bad = copying.topics
    let(copying, good)
    let(copying, bad, source, target)
    errors = copying.copy()
    assert errors[good] == ""
    assert copying.is_whole(good)
    alias, operation = lacking
    topic = bad if alias == "A" else f"A.{bad}"
    right = help_text(settings_of(copying.lab, alias, "bob"), operation, "topic", topic)
    assert said in errors[bad]
    assert errors[bad].endswith(f"-> {right}")
    assert copying.values(bad) == []
    # It recovers in the next lease, in the same process.
    let(copying, bad)
    assert copying.copy() == {good: "", bad: ""}
    assert copying.is_whole(bad)


def test_a_right_that_is_taken_away_while_it_is_copied(copying):
    good, bad = copying.topics
    for topic in copying.topics:
        let(copying, topic)
    assert copying.copy() == {good: "", bad: ""}
    revoke(copying.flow.source, allow("bob", "READ", "topic", bad))
    grant(copying.flow.source, allow("bob", "DESCRIBE", "topic", bad))
    for topic in copying.topics:
        copying.flow.write(topic, [b"more"], **LOGIN)
    errors = copying.copy()
    assert errors[good] == ""
    assert f"User:bob may not Read topic {bad} on cluster A" in errors[bad]
    assert copying.values(good)[-1] == b"more"
    grant(copying.flow.source, allow("bob", "READ", "topic", bad))
    assert copying.copy() == {good: "", bad: ""}
    assert copying.values(bad)[-1] == b"more"


@pytest.mark.full
def test_the_command_that_is_told_helps(copying, tmp_path):
    good, bad = copying.topics
    let(copying, good)
    let(copying, bad, source=["DESCRIBE"])
    told = copying.copy()[bad]
    command = shlex.split(told.partition("kafka-acls.sh ")[2])
    login = tmp_path / "admin.properties"
    properties = settings_of(copying.lab, "A").properties
    login.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    command[command.index("admin.properties")] = str(login)
    copying.lab.tool("AclCommand", *command)
    assert copying.copy() == {good: "", bad: ""}
    assert copying.is_whole(bad)


@pytest.mark.parametrize("lacking", ["WRITE", "DELETE"])
def test_a_late_start_that_may_not_be_padded(copying, lacking):
    """The lease says that it may, as when the right was taken away a moment ago."""
    good, bad = copying.topics
    let(copying, good)
    let(copying, bad, target=[o for o in ("READ", "WRITE", "DELETE") if o != lacking])
    copying.flow.trim(copying.flow.source, TopicPartition(bad, 0), 4)
    copying.flow = copying.flow.leasing(identical=True, paddable=True)
    errors = copying.copy()
    assert errors[good] == ""
    operation = lacking.capitalize()
    assert f"User:bob may not {operation} topic A.{bad} on cluster B; grant it" in errors[bad]
    let(copying, bad, target=["READ", "WRITE", "DELETE"])
    assert copying.copy() == {good: "", bad: ""}
    assert [r.offset for r in read_all(copying.flow.target, TopicPartition(f"A.{bad}", 0))] == [
        4, 5, 6, 7, 8, 9,
    ]  # fmt: skip


def test_markers_that_may_not_be_written(copying):
    """Likewise: the flow was allowed to when it began."""
    good, bad = copying.topics
    for topic in copying.topics:
        let(copying, topic)
    producer = copying.flow.producer(**LOGIN, **{"transactional.id": bad})
    producer.init_transactions()
    for _ in range(2):
        producer.begin_transaction()
        producer.produce(bad, b"x", b"k", 0)
        producer.commit_transaction()
    copying.flow = copying.flow.leasing(identical=True)
    errors = copying.copy()
    assert errors[good] == ""
    right = help_text(settings_of(copying.lab, "B", "bob"), "Alter", "cluster")
    assert "cannot be filled: CLUSTER_AUTHORIZATION_FAILED (31)\n  -> set helio" in errors[bad]
    assert errors[bad].endswith(f"; or {right}")


# -- the driver -------------------------------------------------------------------------------


class Running:
    """Flow A->B as the driver prepares it, as bob; without Spark."""

    def __init__(self, lab, folder, stem, **keys):
        self.lab = lab
        self.stem = stem
        keys = {"topics": f"{stem}.*", "heartbeats.replication.enabled": "false", **keys}
        self.config = flow_config(write_config(lab, folder, ("bob", "bob"), **keys))
        self.source = ClusterClient(settings_of(lab, "A"), "test")
        self.target = ClusterClient(settings_of(lab, "B"), "test")

    def rights(self):
        """What a mirror needs, by cluster."""
        topics = ("DESCRIBE", "READ", "DESCRIBE_CONFIGS")
        source = [allow("bob", o, "topic", f"{self.stem}…") for o in topics]
        source += [allow("bob", o, "topic", "mm2-offset-syncs.B.internal")
                   for o in ("CREATE", "WRITE")]  # fmt: skip
        remote = ("CREATE", "READ", "WRITE", "DELETE", "ALTER", "DESCRIBE_CONFIGS")
        target = [allow("bob", o, "topic", f"A.{self.stem}…") for o in remote]
        internal = ("mm2-ledger.A.internal", "A.checkpoints.internal", "heartbeats")
        target += [allow("bob", o, "topic", name)
                   for name in internal for o in ("CREATE", "READ", "WRITE")]  # fmt: skip
        target += [allow("bob", o) for o in ("IDEMPOTENT_WRITE", "ALTER", "DESCRIBE")]
        return source, target

    @contextmanager
    def but(self, *lacking):
        """Everything is granted except what is lacking; a prepared flow."""
        source, target = ([a for a in side if a not in lacking] for side in self.rights())
        with granted(self.source, *source), granted(self.target, *target):
            runtime = FlowRuntime(self.config)
            try:
                runtime.open_target()
                runtime.open()
                yield runtime
            finally:
                runtime.close()

    def close(self):
        self.source.close()
        self.target.close()


@pytest.fixture
def running(guarded_lab, tmp_path, topic_name, caplog):
    caplog.set_level(logging.INFO, "heliograph")
    made = []

    def make(**keys):
        made.append(Running(guarded_lab, tmp_path, topic_name, **keys))
        create_topic(made[-1].source, f"{topic_name}-t")
        return made[-1]

    yield make
    for one in made:
        one.close()


def said(caplog):
    """What the mirror had to say, other than that somebody else's claim has ended."""
    texts = [(r.levelname, r.getMessage()) for r in caplog.records]
    return [t for t in texts if "may not" in t[1] or "would take" in t[1]]


def leased(runtime):
    partitions = wait_for(lambda: runtime.refresh_topics() or runtime.plan.partitions)
    assert partitions
    [partition] = runtime.plan.partitions
    return runtime.leased(partition)


def test_with_all_rights_nothing_is_missing(running, caplog):
    r = running()
    with r.but() as runtime:
        lease = leased(runtime)
        assert (lease.identical, lease.paddable) == (True, True)
    assert said(caplog) == []


@pytest.mark.parametrize(("offsets", "level"), [("auto", "INFO"), ("identical", "WARNING")])
def test_without_alter_on_the_target_cluster_offsets_are_dense(running, caplog, offsets, level):
    r = running(**{"heliograph.offsets": offsets})
    with r.but(allow("bob", "ALTER")) as runtime:
        assert not leased(runtime).identical
        runtime.refresh_topics()
    [(told, text)] = said(caplog)
    assert told == level
    assert "gaps in offsets are not filled, and offsets are translated exactly instead" in text
    right = help_text(settings_of(r.lab, "B", "bob"), "Alter", "cluster")
    # The right is almost an admin's: only who wants identical offsets hears how to grant it.
    assert (right in text) == (offsets == "identical")
    assert ("can give itself every other right" in text) == (offsets == "identical")


def test_without_delete_on_target_topics_nothing_is_padded(running, caplog):
    r = running()
    with r.but(allow("bob", "DELETE", "topic", f"A.{r.stem}…")) as runtime:
        lease = leased(runtime)
        assert (lease.identical, lease.paddable) == (True, False)
        runtime.refresh_topics()
    right = help_text(settings_of(r.lab, "B", "bob"), "Delete", "topic", f"A.{r.stem}-t")
    what = "offsets of logs that start far from 0 are not kept"
    assert said(caplog) == [("INFO", f"A->B: {what}: {right}")]


def test_without_describe_configs_on_a_source_topic_it_is_created_without_them(running, caplog):
    r = running()
    with r.but(allow("bob", "DESCRIBE_CONFIGS", "topic", f"{r.stem}…")) as runtime:
        assert leased(runtime)
    [(level, text)] = said(caplog)
    right = help_text(settings_of(r.lab, "A", "bob"), "DescribeConfigs", "topic", f"{r.stem}-t")
    assert level == "WARNING"
    assert right in text


def test_a_remote_topic_that_is_there_but_not_shown(running, caplog):
    r = running()
    create_topic(r.target, f"A.{r.stem}-t")
    create_topic(r.source, f"{r.stem}-u")
    rest = ("READ", "WRITE", "DELETE", "ALTER", "DESCRIBE_CONFIGS")
    hidden = [allow("bob", o, "topic", f"A.{r.stem}…") for o in rest]
    visible = [allow("bob", o, "topic", f"A.{r.stem}-u") for o in rest]
    with granted(r.target, *visible), r.but(*hidden) as runtime:
        wait_for(lambda: runtime.refresh_topics() or runtime.plan.partitions)
        assert {p.topic for p in runtime.plan.partitions} == {f"{r.stem}-u"}
    right = help_text(settings_of(r.lab, "B", "bob"), "Describe", "topic", f"A.{r.stem}-t")
    assert said(caplog) == [
        ("WARNING", f"A->B: {right}; until then its source topic is not mirrored")
    ]


def test_offset_syncs_that_may_not_be_written_are_told_at_the_start(running, caplog):
    r = running()
    syncs = "mm2-offset-syncs.B.internal"
    seen = granted(r.source, allow("bob", "DESCRIBE", "topic", syncs))
    with seen, r.but(allow("bob", "WRITE", "topic", syncs)) as runtime:
        assert leased(runtime)
    right = help_text(settings_of(r.lab, "A", "bob"), "Write", "topic", syncs)
    assert said(caplog) == [("WARNING", f"A->B: {right}")]


def test_s39_an_internal_topic_that_may_not_be_created_is_told_and_the_mirror_begins(
    running, caplog
):
    r = running(**{"A->B.offset-syncs.topic.location": "target"})
    syncs = "mm2-offset-syncs.A.internal"
    with granted(r.target, allow("bob", "DESCRIBE", "topic", syncs)), r.but() as runtime:
        assert leased(runtime)
    right = help_text(settings_of(r.lab, "B", "bob"), "Create", "topic", syncs)
    assert said(caplog) == [("WARNING", f"A->B: {right}")]


def test_s39_one_that_is_there_or_not_shown_is_assumed_present(running, caplog):
    r = running(**{"A->B.offset-syncs.topic.location": "target"})
    with r.but() as runtime:
        assert leased(runtime)
    right = help_text(settings_of(r.lab, "B", "bob"), "Describe", "topic",
                      "mm2-offset-syncs.A.internal")  # fmt: skip
    assert said(caplog) == [("WARNING", f"A->B: {right}")]


def test_a_ledger_that_may_not_be_created_stops_the_start_at_once(guarded_lab, tmp_path):
    path = write_config(guarded_lab, tmp_path, ("bob", "bob"), **{"B->A.enabled": "true"})
    config = next(f for f in load(path).flows if str(f.flow) == "B->A")
    ledger = "mm2-ledger.B.internal"
    with (
        ClusterClient(settings_of(guarded_lab, "A"), "test") as alice,
        ClusterClient(config.source_admin, "test") as source,
        ClusterClient(config.target_admin, "test") as target,
        granted(alice, allow("bob", "DESCRIBE", "topic", ledger)),
        pytest.raises(StartError) as info,
    ):
        internal_topics.ensure(config, source, target)
    right = help_text(config.target_admin, "Create", "topic", ledger)
    text = f"[topics.ledger] flow B->A: topic {ledger} is missing on cluster A\n  -> {right}"
    assert str(info.value) == text


@pytest.mark.parametrize("lacking", ["READ", "WRITE"])
def test_without_the_ledger_there_is_no_start(running, lacking):
    r = running()
    ledger = "mm2-ledger.A.internal"
    started = time.monotonic()
    with pytest.raises(StartError) as info, r.but(allow("bob", lacking, "topic", ledger)):
        pass
    operation = lacking.capitalize()
    right = help_text(settings_of(r.lab, "B", "bob"), operation, "topic", ledger)
    assert right in str(info.value)
    assert time.monotonic() - started < 240, "it is not tried again and again"


def test_without_a_producer_id_there_is_no_start(guarded_lab):
    settings = settings_of(guarded_lab, "B", "dave")
    with ClusterClient(settings, "test") as client, pytest.raises(BrokerError) as info:
        admin.allocate_producer_id(client)
    assert missing_right(settings, "IdempotentWrite", "cluster") in str(info.value)


def test_heartbeats_that_may_not_be_written(running):
    r = running()
    seen = granted(r.target, allow("bob", "DESCRIBE", "topic", "heartbeats"))
    with ClusterClient(settings_of(r.lab, "B", "bob"), "test") as client, seen:
        emitter = HeartbeatEmitter(Flow("A", "B"), client, "heartbeats")
        with pytest.raises(BrokerError) as info:
            emitter.emit()
    right = help_text(settings_of(r.lab, "B", "bob"), "Write", "topic", "heartbeats")
    assert right in str(info.value)


def test_an_authorizer_needs_clients_with_names(tmp_path):
    with pytest.raises(LabError, match="SASL_PLAINTEXT or SASL_SSL"):
        Lab(tmp_path, clusters=["A"], authorizer=True).start()


# -- groups -----------------------------------------------------------------------------------


@pytest.fixture
def groups(copying):
    """Groups "open" and "closed" of the first topic; the jobs look at them as bob."""
    good, _ = copying.topics
    let(copying, good)
    assert copying.copy()[good] == ""
    flow, context = copying.flow, copying.flow.context
    alice = flow.but(source=settings_of(copying.lab, "A"), target=settings_of(copying.lab, "B"))
    made = Groups(alice, good)
    made.commit_many({name: {TopicPartition(good, 0): 4} for name in ("open", "closed")})
    made.flow = flow.but(source=context.source, target=settings_of(copying.lab, "B"))
    made.translation = made.translating()
    made.emitter = made.emitting(made.translation)
    yield made
    made.close()


def test_a_group_that_may_not_be_described_says_so_and_the_others_get_checkpoints(groups, caplog):
    bob = groups.flow.context.source
    grant(groups.flow.source, allow("bob", "DESCRIBE", "group", f"{groups.prefix}open"))
    with granted(groups.flow.source, allow("bob", "DESCRIBE")):
        assert groups.emit().keys() == {"open"}
        groups.emit()
        right = help_text(bob, "Describe", "group", f"{groups.prefix}closed")
        assert groups.said(groups.emitter)["closed"] == right
        told = [r.getMessage() for r in caplog.records if right in r.getMessage()]
        assert len(told) == 1
        grant(groups.flow.source, allow("bob", "DESCRIBE", "group", f"{groups.prefix}closed"))
        assert wait_for(lambda: groups.emit().keys() == {"open", "closed"})


def test_without_describe_on_the_cluster_it_is_said_that_groups_may_be_missing(groups):
    grant(groups.flow.source, allow("bob", "DESCRIBE", "group", f"{groups.prefix}open"))
    assert groups.emit().keys() == {"open"}
    right = help_text(groups.flow.context.source, "Describe", "cluster")
    assert groups.emitter.details()["*"].endswith(right)


def test_a_group_that_may_not_be_committed_says_so_and_the_others_are_synced(groups, copying):
    settings = settings_of(copying.lab, "B", "bob")
    both = [allow("bob", "DESCRIBE", "group", f"{groups.prefix}…")]
    grant(groups.flow.source, *both)
    grant(groups.flow.target, *both, allow("bob", "READ", "group", f"{groups.prefix}open"))
    target = GroupClient(groups.client(settings))
    with (
        granted(groups.flow.source, allow("bob", "DESCRIBE")),
        granted(groups.flow.target, allow("bob", "DESCRIBE")),
    ):
        sync = GroupOffsetSync(Flow("A", "B"), groups.translation, target, 0.0)
        wait_for(lambda: sync.sync() or groups.offsets("open"))
        details = groups.said(sync)
        assert details["closed"] == help_text(settings, "Read", "group", f"{groups.prefix}closed")
        assert groups.offsets("closed") == {}
        grant(groups.flow.target, allow("bob", "READ", "group", f"{groups.prefix}closed"))
        wait_for(lambda: sync.sync() or groups.offsets("closed"))
    assert groups.offsets("open") == groups.offsets("closed") == {f"A.{copying.topics[0]}-0": 4}
