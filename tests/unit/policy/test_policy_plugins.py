"""Own filters and policies: the documented example, installed as a package, and what goes wrong."""

import re
from pathlib import Path
from typing import Any

import pytest

from heliograph.config import ConfigErrors, load
from heliograph.config.properties import dump
from heliograph.errors import ConfigError
from heliograph.policy import (
    DRILL_GROUPS,
    DefaultConfigPropertyFilter,
    DefaultGroupFilter,
    DefaultTopicFilter,
    TopicSelection,
    config_property_filter_from,
    group_filter_from,
    is_cycle,
    policy_from,
    topic_filter_from,
)

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "docs" / "examples" / "heliograph-teams"
BASE = {"clusters": "A,B", "A.bootstrap.servers": "a:1", "B.bootstrap.servers": "b:1",
        "A->B.enabled": "true"}  # fmt: skip
MIRROR = "org.apache.kafka.connect.mirror"


@pytest.fixture
def flow(tmp_path):
    """The flow A->B of a file with these values beside the necessary ones."""

    def read(values):
        path = tmp_path / "mm2.properties"
        path.write_text(dump({**BASE, **values}))
        return load(path).flows[0]

    return read


@pytest.fixture
def install(install_package, monkeypatch):
    """Installs a package for the time of the test."""

    def put(*arguments, **options):
        monkeypatch.syspath_prepend(install_package(*arguments, **options))

    return put


@pytest.fixture
def teams(example_package, monkeypatch):
    monkeypatch.syspath_prepend(example_package)


TEAMS = {"heliograph.plugin.teams": "payments, orders"}


def test_an_own_topic_filter_decides_but_not_over_internal_topics_and_cycles(flow, teams):
    selection = TopicSelection(flow({"topic.filter.class": "team-topics", **TEAMS}))
    topics = ["payments.in", "orders.out", "hr.staff", "payments", "heartbeats", "A.payments.in"]
    assert [t for t in topics if selection.includes(t)] == [
        "payments.in", "orders.out", "heartbeats",
    ]  # fmt: skip


def test_settings_of_one_flow_win_over_those_of_all(flow, teams):
    values = {"topic.filter.class": "team-topics", **TEAMS, "A->B.heliograph.plugin.teams": "hr"}
    config = flow(values)
    assert topic_filter_from(config).should_replicate_topic("hr.staff")
    assert not topic_filter_from(config).should_replicate_topic("orders.out")
    assert "A->B.heliograph.plugin.teams" in config.origin("heliograph.plugin.teams")


def test_own_group_and_property_filters(flow, teams):
    config = flow({"group.filter.class": "team-groups", **TEAMS,
                   "A->B.config.property.filter.class": "own-retention"})  # fmt: skip
    groups = group_filter_from(config)
    assert groups.should_replicate_group("payments-app")
    assert not groups.should_replicate_group("hr-app")
    assert not groups.should_replicate_group(f"{DRILL_GROUPS}1.payments-app")
    properties = config_property_filter_from(config)
    assert properties.should_replicate_config_property("cleanup.policy")
    assert not properties.should_replicate_config_property("retention.ms")
    assert not properties.should_replicate_source_default("cleanup.policy")


def test_an_own_policy_names_topics_and_finds_cycles(flow, teams):
    policy = policy_from(flow({"replication.policy.class": "suffix"}))
    assert policy.format_remote_topic("A", "orders") == "orders-from-A"
    assert policy.topic_source("orders-from-A-from-B") == "B"
    assert policy.original_topic("orders-from-A-from-B") == "orders"
    assert policy.topic_source("orders") is policy.upstream_topic("orders") is None
    assert is_cycle(policy, "orders-from-B", "A", "B")
    assert policy.is_heartbeats_topic("heartbeats-from-A")
    assert policy.checkpoints_topic("A") == "A.checkpoints.internal"
    assert policy.is_internal_topic(policy.offset_syncs_topic("B"))
    assert policy.is_internal_topic("mm2-ledger.A.internal")


def test_a_class_gets_all_values_of_its_flow(flow, install, monkeypatch):
    monkeypatch.setenv("KAFKA_SECRET", "s3cret")
    code = "class Seen(dict):\n    def should_replicate_topic(self, topic): return True\n"
    install("seen-all", {"heliograph.topic_filters": {"seen": "seen_all:Seen"}}, code=code)
    seen: Any = topic_filter_from(
        flow({"topic.filter.class": "seen", "A->B.topics": "x", "groups": "", "A.ssl.key.password":
              "p", "heliograph.plugin.key": "${env:KAFKA_SECRET}", "config.providers": "env",
              "config.providers.env.class":
              "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
              "config.providers.env.param.allowlist.pattern": "KAFKA_.*"})
    )  # fmt: skip
    assert seen["topics"] == "x"
    assert seen["groups"] == ""
    assert seen["refresh.topics.interval.seconds"] == "5"
    assert (seen["source.cluster.alias"], seen["target.cluster.alias"]) == ("A", "B")
    assert seen["heliograph.plugin.key"] == "s3cret"
    assert not any("ssl" in key or "bootstrap" in key for key in seen)


@pytest.mark.parametrize("package", ["", f"{MIRROR}."])
def test_mm2s_class_names_are_the_built_in_ones(flow, package):
    config = flow({
        "topic.filter.class": f"{package}DefaultTopicFilter",
        "group.filter.class": f"{package}DefaultGroupFilter",
        "config.property.filter.class": f"{package}DefaultConfigPropertyFilter",
        "topics": "a", "groups": "g", "A->B.use.defaults.from": "source",
    })  # fmt: skip
    topics, groups = topic_filter_from(config), group_filter_from(config)
    properties = config_property_filter_from(config)
    assert isinstance(topics, DefaultTopicFilter)
    assert isinstance(groups, DefaultGroupFilter)
    assert isinstance(properties, DefaultConfigPropertyFilter)
    assert (topics.should_replicate_topic("a"), topics.should_replicate_topic("b")) == (True, False)
    everything = group_filter_from(flow({"groups": ".*"}))
    assert everything.should_replicate_group("g")
    assert not everything.should_replicate_group(f"{DRILL_GROUPS}1.g")
    assert (groups.should_replicate_group("g"), groups.should_replicate_group("h")) == (True, False)
    assert not properties.should_replicate_config_property("min.insync.replicas")
    assert properties.should_replicate_source_default("retention.ms")


KEYS = ["topic.filter.class", "group.filter.class", "config.property.filter.class",
        "replication.policy.class"]  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("name", ["com.acme.F", "os:system", "heliograph_teams:TeamTopics", "no"])
def test_any_other_name_is_an_error_that_lists_what_is_installed(flow, teams, key, name):
    with pytest.raises(ConfigErrors) as caught:
        flow({key: name})
    (problem,) = caught.value.problems
    assert problem.code == "config.bad-value"
    installed = {"topic": "team-topics", "group": "team-groups", "config": "own-retention",
                 "replication": "suffix"}[key.partition(".")[0]]  # fmt: skip
    assert f"(installed: {installed})" in problem.message
    assert "docs/extending.md" in problem.hint


def test_without_any_package_it_says_so(flow):
    with pytest.raises(ConfigErrors, match=r"heliograph.topic_filters \(installed: none\)"):
        flow({"topic.filter.class": "team-topics"})


def test_a_name_of_two_packages_is_an_error(flow, teams, install):
    install("other-teams", {"heliograph.topic_filters": {"team-topics": "os:getcwd"}})
    with pytest.raises(ConfigErrors, match=r"heliograph-teams 1\.0 and other-teams 1\.0"):
        flow({"topic.filter.class": "team-topics"})


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("broken:Missing", "has no attribute 'Missing'"),
        ("broken_not_there:X", "No module named 'broken_not_there'"),
        ("broken:Raises", "KeyError: 'heliograph.plugin.teams'"),
        ("broken:Empty", "is no TopicFilter: it lacks should_replicate_topic"),
    ],
)
def test_a_class_that_cannot_be_made_is_named_with_its_package(flow, install, target, says):
    code = (
        "class Raises:\n    def __init__(self, p): p['heliograph.plugin.teams']\n"
        "class Empty:\n    def __init__(self, p): pass\n"
    )
    install("broken", {"heliograph.topic_filters": {"broken": target}}, code=code)
    config = flow({"topic.filter.class": "broken"})
    with pytest.raises(ConfigError) as caught:
        topic_filter_from(config)
    assert caught.value.code == "config.plugin"
    text = str(caught.value)
    assert f"topic.filter.class=broken: {target} of broken 1.0" in text
    assert says in text


def test_settings_of_plugins_are_no_unknown_keys(tmp_path):
    path = tmp_path / "mm2.properties"
    path.write_text(dump({**BASE, **TEAMS, "A->B.heliograph.plugin.x": "1"}))
    assert not load(path).warnings


def test_the_page_shows_the_example_as_it_is():
    page = (ROOT / "docs" / "extending.md").read_text()
    files = [(EXAMPLE / name).read_text() for name in ("heliograph_teams.py", "pyproject.toml")]
    blocks = re.findall(r"```(?:python|toml)\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        assert any(block in text for text in files)
