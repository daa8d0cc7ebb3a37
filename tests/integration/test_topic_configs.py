"""Configs of remote topics follow their source topics on real brokers; operators keep theirs."""

from __future__ import annotations

import json
import logging

import pytest
from access import (
    allow,
    create_topic,
    flow_config,
    grant,
    granted,
    revoke,
    settings_of,
    write_config,
)
from click.testing import CliRunner
from driving import copying_jobs
from kafka.protocol.admin import IncrementalAlterConfigsRequest
from mirroring import settings, wait_for
from pairs import Pair

from heliograph.cli import cli
from heliograph.control.topics import internal
from heliograph.control.topics import refresh as topics_module
from heliograph.control.topics.config_rules import ConfigChange
from heliograph.control.topics.config_sync import ConfigSync
from heliograph.control.topics.refresh import TopicRefresh
from heliograph.ledger.follower import LedgerFollower
from heliograph.ledger.memory import SyncedMemory
from heliograph.policy import ledger_topic
from heliograph.service.flow import FlowRuntime
from heliograph.wire import admin, configs
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import BrokerError

COMPACT = {"cleanup.policy": "compact"}


class Synced:
    """One topic of a flow whose configs are synced, with its remote topic."""

    def __init__(self, pair, topic, **keys):
        self.pair = pair(topics=topic, **keys)
        self.topic, self.remote = topic, f"A.{topic}"
        self.memory = self.pair.remember_in()

    def create(self, partitions=1, **values):
        wanted = {key.replace("_", "."): value for key, value in values.items()}
        self.pair.create(self.pair.source, self.topic, partitions, wanted)
        self.pair.mirrored(self.topic)

    def at_source(self, **values):
        self.pair.alter(self.pair.source, self.topic, **values)

    def at_target(self, **values):
        self.pair.alter(self.pair.target, self.remote, **values)

    def sync(self):
        """A process that has just started syncs once; returns what it says."""
        job = self.pair.config_sync(self.memory)
        job.sync()
        return job.details()

    def plan(self):
        found = self.pair.config_sync(self.memory).plan()
        return {c.name: (c.old, c.new) for c in found.changes}

    @property
    def remembered(self):
        memory = SyncedMemory(LedgerFollower(self.pair.target, self.memory))
        memory.refresh()
        return memory.recall("config")

    @property
    def own(self):
        return self.pair.overrides(self.pair.target, self.remote)

    def becomes(self, **values):
        wait_for(lambda: self.own == {k.replace("_", "."): v for k, v in values.items()})


@pytest.fixture
def synced(pair, topic_name):
    def make(**keys):
        return Synced(pair, topic_name, **keys)

    return make


# -- the wire ----------------------------------------------------------------------------------


def test_configs_are_told_with_their_sources(pair, topic_name):
    p = pair(topics=topic_name)
    p.create(p.source, topic_name, 1, COMPACT)
    found = p.entries(p.source, topic_name)
    policy, retention = found["cleanup.policy"], found["retention.ms"]
    assert (policy.value, policy.own) == ("compact", True)
    assert (retention.value, retention.source) == ("604800000", configs.ConfigSource.DEFAULT)
    only = configs.describe(p.source, [topic_name], ["retention.ms"])
    assert list(only.found[topic_name]) == ["retention.ms"]
    assert only.value(topic_name, "retention.ms", "?") == "604800000"
    assert only.value(topic_name, "cleanup.policy", "?") == "?"


def test_errors_are_per_topic(pair, topic_name):
    p = pair(topics=topic_name)
    p.create(p.source, topic_name)
    wanted = {topic_name: {"retention.ms": "1"}, f"{topic_name}-none": {"retention.ms": "1"}}
    failed = configs.alter(p.source, wanted)
    assert list(failed) == [f"{topic_name}-none"]
    assert "cluster A" in str(failed[f"{topic_name}-none"])
    wait_for(lambda: p.overrides(p.source, topic_name) == {"retention.ms": "1"})
    answer = configs.describe(p.source, list(wanted))
    assert list(answer.found) == [topic_name]
    assert list(answer.failed) == [f"{topic_name}-none"]
    assert configs.alter(p.source, {topic_name: {"retention.ms": None}}, validate_only=True) == {}
    assert p.overrides(p.source, topic_name) == {"retention.ms": "1"}


def test_more_topics_than_fit_into_one_request(pair, topic_name, monkeypatch):
    monkeypatch.setattr(configs, "_TOPICS_PER_REQUEST", 2)
    p = pair(topics=topic_name)
    names = [f"{topic_name}-{i}" for i in range(5)]
    new = [admin.NewTopic(name, 1, 1, {}) for name in names]
    assert admin.create_topics(p.source, new, 30_000) == {}
    wait_for(lambda: p.source.metadata(names).topics.keys() == {*names})
    assert configs.alter(p.source, {name: {"retention.ms": "1"} for name in names}) == {}
    wait_for(lambda: all(p.overrides(p.source, n) == {"retention.ms": "1"} for n in names))


def test_topics_are_deleted_by_their_ids(pair, topic_name):
    p = pair(topics=topic_name)
    p.create(p.source, topic_name)
    old = p.source.metadata([topic_name]).topics[topic_name].topic_id
    p.delete(p.source, topic_name)
    p.create(p.source, topic_name)
    [error] = admin.delete_topics(p.source, {old: topic_name}, 30_000).values()
    assert isinstance(error, BrokerError)
    assert error.code == 100, "UNKNOWN_TOPIC_ID"
    assert p.count(p.source, topic_name) == 1, "the new topic of that name is not touched"


# -- MM2's rules -------------------------------------------------------------------------------


def test_s31_changes_at_the_source_arrive_but_for_the_default_exclusions(synced):
    s = synced()
    s.create()
    s.at_source(
        retention_ms="1000000", cleanup_policy="compact", min_insync_replicas="1",
        unclean_leader_election_enable="true", message_timestamp_type="LogAppendTime",
        # MM2's list names these with a prefix that topic properties do not have.
        message_timestamp_before_max_ms="86400000",
    )  # fmt: skip
    assert s.sync() == {}
    s.becomes(
        retention_ms="1000000",
        cleanup_policy="compact",
        message_timestamp_before_max_ms="86400000",
    )
    assert s.plan() == {}, "nothing to do"


def test_s32_custom_exclusions_by_regular_expressions(synced):
    s = synced(**{"config.properties.exclude": r"max\..*, retention\..*"})
    s.create()
    s.at_source(max_message_bytes="123456", retention_ms="1", segment_bytes="1048576")
    s.sync()
    s.becomes(segment_bytes="1048576")


def test_s33_removing_it_at_the_source_resets_it_to_the_default_of_the_target(synced):
    s = synced()
    s.create(retention_ms="1000000")
    s.becomes(retention_ms="1000000")
    s.sync()
    s.at_source(retention_ms=None, segment_bytes="1048576")
    s.sync()
    s.becomes(segment_bytes="1048576")
    s.sync()
    assert s.plan() == {}


def test_s33_it_works_also_if_it_is_removed_before_the_first_sync(synced):
    """What a topic was created with is known from then on."""
    s = synced()
    s.create(retention_ms="1000000")
    s.at_source(retention_ms=None)
    s.sync()
    s.becomes()


def test_s33_a_topic_that_mm2_made_is_taken_over(synced):
    s = synced()
    p = s.pair
    p.create(p.source, s.topic, 1, {"retention.ms": "1000000"})
    p.create(p.target, s.remote, 1, {"retention.ms": "1000000", "segment.bytes": "1048576"})
    s.sync()
    s.at_source(retention_ms=None)
    s.sync()
    s.becomes(segment_bytes="1048576")


def test_s34_defaults_of_the_source_win_except_for_excluded_ones(synced):
    s = synced(**{"A->B.use.defaults.from": "source"})
    s.create()
    s.at_target(retention_ms="5", min_insync_replicas="1")
    s.sync()
    wait_for(lambda: s.own["retention.ms"] == "604800000")
    assert s.own["min.insync.replicas"] == "1"


def test_s34_a_topic_is_created_with_the_defaults_of_its_source(synced):
    s = synced(**{"A->B.use.defaults.from": "source"})
    s.create()
    own = s.own
    assert own["retention.ms"] == "604800000"
    assert "min.insync.replicas" not in own, "excluded"
    # A default of the source that differs from the broker's file is not a default.
    assert len(own) > 10


def test_s35_an_excluded_property_edited_on_the_target_stays(synced):
    for mode in ("keep", "overwrite"):
        s = synced(**{"heliograph.target.configs": mode})
        if not s.pair.count(s.pair.source, s.topic):
            s.create()
        s.at_target(min_insync_replicas="1")
        s.sync()
        assert s.own == {"min.insync.replicas": "1"}


# -- what operators change on the target -------------------------------------------------------


def test_an_operator_s_own_settings_are_kept(synced):
    s = synced()
    s.create(retention_ms="1000000")
    s.at_target(segment_bytes="1048576")
    s.sync()
    assert s.own == {"retention.ms": "1000000", "segment.bytes": "1048576"}
    # What the source topic sets always wins ...
    s.at_target(retention_ms="5")
    s.sync()
    s.becomes(retention_ms="1000000", segment_bytes="1048576")
    # ... and once it does not, the operator may.
    s.at_source(retention_ms=None)
    s.at_target(retention_ms="5")
    s.sync()
    assert s.own == {"retention.ms": "5", "segment.bytes": "1048576"}


def test_overwrite_is_what_mm2_does(synced):
    s = synced(**{"heliograph.target.configs": "overwrite"})
    s.create(retention_ms="1000000")
    s.at_target(segment_bytes="1048576")
    s.sync()
    s.becomes(retention_ms="1000000")


def test_a_re_created_remote_topic_owes_nothing_to_its_predecessor(synced):
    s = synced()
    s.create(retention_ms="1000000")
    s.sync()
    s.at_source(retention_ms=None)
    assert len(s.remembered) == 1
    s.pair.delete(s.pair.target, s.remote)
    s.pair.create(s.pair.target, s.remote, 1, {"retention.ms": "1000000"})
    s.sync()
    assert s.own == {"retention.ms": "1000000"}, "the operator's, although it looks the same"
    assert s.remembered == {}


# -- what goes wrong ---------------------------------------------------------------------------


def test_a_value_that_the_target_refuses_stops_nothing_else(pair, topic_name):
    """As if B's brokers had a policy, or were of a version with another idea of a property."""
    bad, good = f"{topic_name}-bad", f"{topic_name}-good"
    p = pair(topics=f"{topic_name}.*")
    memory = p.remember_in()
    for name in (bad, good):
        p.create(p.source, name)
    p.mirrored(bad, good)
    sync = p.config_sync(memory)
    assert sync.plan().changes == []
    changes = [
        ConfigChange(f"A.{bad}", "retention.ms", None, "not a number", "for the test"),
        ConfigChange(f"A.{bad}", "segment.bytes", None, "1048576", "for the test"),
        ConfigChange(f"A.{good}", "retention.ms", None, "1000000", "for the test"),
    ]
    before = sync.apply(changes, validate_only=True)
    assert p.overrides(p.target, f"A.{good}") == {}
    failed = sync.apply(changes)
    assert failed == before
    assert list(failed) == [f"A.{bad}"]
    assert "retention.ms cannot become not a number" in failed[f"A.{bad}"]
    wait_for(lambda: p.overrides(p.target, f"A.{good}") == {"retention.ms": "1000000"})
    wait_for(lambda: p.overrides(p.target, f"A.{bad}") == {"segment.bytes": "1048576"})


class Guarded:
    """Flow A->B of the guarded lab, mirrored by carol on A and dave on B."""

    def __init__(self, lab, folder, topics):
        self.path = write_config(lab, folder, ("carol", "dave"), topics=topics)
        self.config = flow_config(self.path)
        self.owners = [ClusterClient(settings_of(lab, alias), "test") for alias in "AB"]
        self.clients = (
            ClusterClient(self.config.source_admin, "test"),
            ClusterClient(self.config.target_admin, "test"),
        )
        self.topics = TopicRefresh(self.config, *self.clients)

    def sync(self):
        plan = self.topics.refresh()
        return ConfigSync(self.config, *self.clients, None, lambda: plan)

    def close(self):
        for client in (*self.owners, *self.clients):
            client.close()


@pytest.fixture
def guarded(guarded_lab, tmp_path):
    made = []

    def make(topics):
        made.append(Guarded(guarded_lab, tmp_path, topics))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_s38_without_describe_configs_at_the_source_it_is_said(guarded, topic_name, caplog):
    g = guarded(f"{topic_name}.*")
    a, b = g.owners
    names = [f"{topic_name}-{i}" for i in range(3)]
    for name in names:
        create_topic(a, name, retention_ms="1000000")
    grant(a, *(allow("carol", "DESCRIBE", "topic", n) for n in names))
    grant(a, allow("carol", "DESCRIBE_CONFIGS", "topic", names[0]))
    everything = [
        allow("dave", operation, "topic", f"A.{topic_name}…")
        for operation in ("CREATE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS")
    ]
    grant(b, *everything)
    plan = g.topics.refresh()
    [problem] = plan.problems
    assert f"User:carol may not DescribeConfigs topic {names[1]} on cluster A" in problem
    assert "kafka-acls.sh" in problem
    assert "1 more" in problem
    assert "created without the configs" in problem
    wait_for(lambda: g.topics.refresh().remote.keys() == {*names})
    # The sync says it too, once, and does what it can.
    sync = g.sync()
    with caplog.at_level(logging.WARNING):
        sync.sync()
        sync.sync()
    details = sync.details()
    assert details.keys() == {f"A.{names[1]}", f"A.{names[2]}"}
    assert "may not DescribeConfigs" in details[f"A.{names[2]}"]
    assert len([r for r in caplog.records if "not synced" in r.message]) == 1
    # After the grant it goes on by itself.
    grant(a, *(allow("carol", "DESCRIBE_CONFIGS", "topic", n) for n in names[1:]))

    def all_synced():
        sync.sync()
        found = configs.describe(b, [f"A.{n}" for n in names], ["retention.ms"])
        return {found.value(f"A.{n}", "retention.ms", "") for n in names} == {"1000000"}

    wait_for(all_synced)
    assert sync.details() == {}


def test_missing_rights_on_the_target_are_named(guarded, topic_name):
    g = guarded(f"{topic_name}.*")
    a, b = g.owners
    name, remote = topic_name, f"A.{topic_name}"
    create_topic(a, name, 2, retention_ms="1000000")
    rights = [allow("carol", o, "topic", name) for o in ("DESCRIBE", "DESCRIBE_CONFIGS")]
    grant(a, *rights)
    # CREATE
    [problem] = g.topics.refresh().problems
    assert f"User:dave may not Create topic {remote} on cluster B" in problem
    assert f"--operation Create --topic {remote}" in problem
    # DESCRIBE_CONFIGS, where the topic is there; ALTER, because it has too few partitions
    create_topic(b, remote, 1)
    grant(b, allow("dave", "DESCRIBE", "topic", remote))
    plan = wait_for(lambda: (p := g.topics.refresh()) and p.partitions and p)
    alter, describe = plan.problems
    assert f"User:dave may not Alter topic {remote} on cluster B" in alter
    assert "only 1 of 2 partitions" in alter
    assert f"User:dave may not DescribeConfigs topic {remote} on cluster B" in describe
    sync = g.sync()
    sync.sync()
    assert "may not DescribeConfigs" in sync.details()[remote]
    # ALTER_CONFIGS
    grant(b, allow("dave", "DESCRIBE_CONFIGS", "topic", remote))

    def denied():
        sync.sync()
        return "AlterConfigs" in sync.details().get(remote, "") and sync.details()[remote]

    text = wait_for(denied)
    assert f"User:dave may not AlterConfigs topic {remote} on cluster B" in text
    with granted(b, allow("dave", "ALTER_CONFIGS", "topic", remote)):
        wait_for(lambda: sync.sync() or not sync.details())
    revoke(a, *rights)


# -- leases know of it -------------------------------------------------------------------------


def test_a_changed_target_topic_is_seen_by_later_leases(pair, topic_name, monkeypatch):
    p = pair(topics=topic_name)
    p.create(p.source, topic_name)
    remote = f"A.{topic_name}"
    assert p.mirrored(topic_name).targets[remote].compacted is False
    p.alter(p.target, remote, cleanup_policy="compact", max_message_bytes="4321")
    plan = p.refresh()
    assert not plan.targets[remote].compacted, "known for a minute"
    seen = p.topics.look_again(plan.target)
    assert (seen[remote].compacted, seen[remote].max_bytes) == (True, 4321)
    monkeypatch.setattr(topics_module, "_LOOK_AGAIN_SECONDS", 0.0)
    monkeypatch.setattr(p.topics, "_look_again_at", 0.0)
    p.alter(p.target, remote, cleanup_policy=None)
    assert p.refresh().targets[remote].compacted is False, "an operator changed it"


def test_the_job_of_a_mirror_syncs_and_the_plan_follows(pair, topic_name):
    p = pair(topics=topic_name)
    p.create(p.source, topic_name)
    remote = f"A.{topic_name}"
    runtime = FlowRuntime(p.config)
    try:
        runtime.open_target()
        runtime.open()
        wait_for(lambda: runtime.refresh_topics() or runtime.plan.partitions)
        [job] = [
            j for j in copying_jobs(runtime) if j.description == "syncing topic configs of A->B"
        ]
        assert job.interval_seconds == 60
        p.alter(p.source, topic_name, cleanup_policy="compact")
        job.run()
        assert dict(job.details()) == {}
        wait_for(lambda: p.overrides(p.target, remote) == COMPACT)

        def followed():
            return runtime.plan.targets[remote].compacted or runtime.refresh_topics()

        # At once, or soon if the broker had not heard of it then; by itself, in a minute.
        wait_for(lambda: followed() and runtime.plan.targets[remote].compacted, 40)
        runtime.refresh_topics()
        assert runtime.plan.targets[remote].compacted
    finally:
        runtime.close()


def test_the_job_can_be_switched_off(pair, topic_name):
    p = pair(**{"topics": topic_name, "sync.topic.configs.enabled": "false"})
    p.create(p.source, topic_name)
    runtime = FlowRuntime(p.config)
    try:
        runtime.open_target()
        runtime.open()
        assert not [j for j in copying_jobs(runtime) if "configs" in j.description]
    finally:
        runtime.close()


# -- heliograph topics plan --------------------------------------------------------------------


def run_plan(path, *args, exit_code=0):
    result = CliRunner().invoke(cli, ["topics", "plan", str(path), *args])
    assert result.exit_code == exit_code, result.output
    return result.output


def test_topics_plan_shows_what_the_jobs_would_do_and_does_nothing(pair, topic_name):
    new, grown, edited = (f"{topic_name}-{x}" for x in ("new", "grown", "edited"))
    p = pair(topics=f"{topic_name}.*")
    p.create(p.source, grown, 1)
    p.create(p.source, edited, 1, {"retention.ms": "1000000"})
    p.mirrored(grown, edited)
    internal.ensure(p.config, p.source, p.target)
    wait_for(lambda: run_plan(p.path).strip() == "A->B: nothing to do")
    assert admin.create_partitions(p.source, {grown: 3}, 30_000) == {}
    p.create(p.source, new, 2, COMPACT)
    p.alter(p.source, edited, retention_ms="5", segment_bytes="1048576")
    wait_for(lambda: p.count(p.source, grown) == 3)
    [flow] = json.loads(run_plan(p.path, "-o", "json", "--flow", "A->B"))
    assert flow["flow"] == "A->B"
    assert flow["create"] == [
        {"topic": f"A.{new}", "partitions": 2, "replication_factor": 1, "configs": COMPACT}
    ]
    assert flow["grow"] == [{"topic": f"A.{grown}", "partitions": 1, "new_partitions": 3}]
    reason = f"set on source topic {edited}"
    edit = {"topic": f"A.{edited}", "reason": reason}
    default = p.entries(p.target, f"A.{edited}")["segment.bytes"].value
    assert flow["configs"] == [
        edit | {"property": "retention.ms", "old": "1000000", "new": "5"},
        edit | {"property": "segment.bytes", "old": default, "new": "1048576"},
    ]
    assert (flow["delete"], flow["keep"], flow["problems"]) == ([], [], [])
    table = run_plan(p.path)
    for text in (
        f"A.{new}", "2 partitions, replication factor 1", "cleanup.policy=compact",
        "1 -> 3 partitions", "retention.ms: 1000000 -> 5", reason,
    ):  # fmt: skip
        assert text in table
    assert p.count(p.target, f"A.{new}") == 0
    assert p.count(p.target, f"A.{grown}") == 1
    assert p.overrides(p.target, f"A.{edited}") == {"retention.ms": "1000000"}


def test_topics_plan_says_what_the_target_would_refuse(pair, topic_name):
    p = pair(**{"topics": topic_name, "A->B.replication.factor": "3"})
    p.create(p.source, topic_name)
    output = run_plan(p.path, exit_code=1)
    assert "create" in output
    assert "problem" in output
    assert "replication.factor=3" in output
    assert "cluster B has 1 broker(s)" in output


@pytest.mark.full
def test_topics_plan_needs_no_mirror_to_have_run(lab_factory, tmp_path):
    fresh = lab_factory()
    p = Pair(fresh, tmp_path, topics="orders")
    p.create(p.source, "orders")
    p.create(p.target, "A.orders", 1, {"segment.bytes": "1048576"})
    assert p.count(p.target, ledger_topic("A")) == 0
    [flow] = json.loads(run_plan(p.path, "-o", "json"))
    assert [(t["cluster"], t["topic"]) for t in flow["internal"]] == [
        ("B", "heartbeats"), ("B", ledger_topic("A")), ("B", "A.checkpoints.internal"),
        ("A", "mm2-offset-syncs.B.internal"),
    ]  # fmt: skip
    assert not any(flow[what] for what in ("create", "grow", "configs", "problems"))
    assert "internal topic of the flow, on A" in run_plan(p.path)
    p.alter(p.source, "orders", retention_ms="5")
    assert "retention.ms: 604800000 -> 5" in run_plan(p.path)
    # While there is a cluster that nobody else uses: a dynamic default of all its brokers.
    kind = IncrementalAlterConfigsRequest.AlterConfigsResource
    value = kind.AlterableConfig(name="log.segment.bytes", config_operation=0, value="2097152")
    brokers = kind(resource_type=4, resource_name="", configs=[value])
    p.source.request(IncrementalAlterConfigsRequest(resources=[brokers], validate_only=False))
    origin = configs.ConfigSource.ALL_BROKERS
    wait_for(lambda: p.entries(p.source, "orders")["segment.bytes"].source is origin)
    assert "segment.bytes:" not in run_plan(p.path), "not copied, and the target's own is kept"
    p.path.write_text(p.path.read_text() + "\nheliograph.target.configs = overwrite\n")
    assert "segment.bytes: 1048576 -> 2097152" in run_plan(p.path)
    p.close()


def test_topics_plan_of_a_flow_that_is_not_there(pair, topic_name):
    p = pair(topics=topic_name)
    result = CliRunner().invoke(cli, ["topics", "plan", str(p.path), "--flow", "A->C"])
    assert result.exit_code != 0
    assert "A->B" in str(result.exception)


def test_topics_plan_of_a_cluster_that_is_down(lab, tmp_path):
    p = Pair(lab, tmp_path, **{"topics": "x", "A->B.admin.timeout.ms": "2000"})
    text = p.path.read_text().replace(settings(lab, "A").bootstrap_servers, "127.0.0.1:1")
    p.path.write_text(text)
    result = CliRunner().invoke(cli, ["topics", "plan", str(p.path)])
    assert result.exit_code != 0
    assert "no broker of cluster A answers" in str(result.exception)
    p.close()
