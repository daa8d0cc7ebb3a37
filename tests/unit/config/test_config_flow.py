"""A flow's configuration as a value: from a file or a mapping, read by the table, compared."""

import inspect
import re
from pathlib import Path

import pytest

import heliograph
from heliograph.config import KEYS, ConfigErrors, MirrorMakerConfig, Scope, Status
from heliograph.config.flow_keys import FlowSettings
from heliograph.config.key import Setting
from heliograph.config.properties import dump

BASE = {
    "clusters": "A,B",
    "A.bootstrap.servers": "a:9092",
    "B.bootstrap.servers": "b:9092",
    "A->B.enabled": "true",
}
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required username=u password="


def flow(**more):
    return MirrorMakerConfig.from_mapping(BASE | more).flows[0]


def test_a_mapping_means_what_a_file_means(tmp_path):
    values = BASE | {"A->B.topics": "orders.*", "tasks.max": "3", "A.client.id": "x"}
    path = tmp_path / "mm2.properties"
    path.write_text(dump(values))
    from_file = MirrorMakerConfig.from_file(path)
    from_mapping = MirrorMakerConfig.from_mapping(values)
    assert from_mapping.flows == from_file.flows
    assert from_mapping.flows[0].topics == ("orders.*",)
    assert from_mapping.flows[0].origin("topics") == "configuration A->B.topics"


def test_a_mapping_gives_the_same_errors_as_a_file(tmp_path):
    values = BASE | {"A->B.tasks.max": "many", "A->B.topcs": "x", "A->D.enabled": "true"}
    path = tmp_path / "mm2.properties"
    path.write_text(dump(values))
    with pytest.raises(ConfigErrors) as of_file:
        MirrorMakerConfig.from_file(path)
    with pytest.raises(ConfigErrors) as of_mapping:
        MirrorMakerConfig.from_mapping(values, name="connector one")

    def texts(caught):
        return [(p.code, p.key, p.message, p.hint) for p in caught.value.problems]

    assert texts(of_mapping) == texts(of_file)
    assert {p.where for p in of_mapping.value.problems} == {"connector one"}


def test_a_connector_s_flat_config_is_a_flow_s_with_a_prefix():
    connector = {
        "source.cluster.alias": "A",
        "target.cluster.alias": "B",
        "source.cluster.bootstrap.servers": "a:9092",
        "target.cluster.bootstrap.servers": "b:9092",
        "topics": "orders",
        "tasks.max": "2",
        "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
    }
    values = {f"A->B.{key}": value for key, value in connector.items()}
    values |= {"clusters": "A,B", "A->B.enabled": "true", "emit.heartbeats.enabled": "false",
               "B.bootstrap.servers": "b:9092"}  # fmt: skip
    [config] = MirrorMakerConfig.from_mapping(values).flows
    assert (config.topics, config.tasks_max) == (("orders",), 2)
    assert config.source_client.bootstrap_servers == "a:9092"


def test_where_a_value_was_written_is_no_change(tmp_path):
    path = tmp_path / "mm2.properties"
    path.write_text(dump(BASE | {"A->B.topics": "x"}))
    before = MirrorMakerConfig.from_file(path).flows[0]
    path.write_text("# a comment\n" + dump({"topics": "x"} | BASE))
    assert MirrorMakerConfig.from_file(path).flows[0] == before


@pytest.mark.parametrize(
    ("changed", "names"),
    [
        ({}, ()),
        ({"A->B.tasks.max": "0", "A->B.topics.exclude": r"mm2.*\.internal, .*\.replica, __.*"}, ()),
        ({"A->B.topics": "x", "tasks.max": "3"}, ("tasks.max", "topics")),
        ({"A.consumer.isolation.level": "read_uncommitted"}, ("source.consumer.isolation.level",)),
        ({"replication.policy.separator": "."}, ("replication.policy.separator",)),
        ({"A->B.heliograph.plugin.teams": "x"}, ("heliograph.plugin.teams",)),
        ({"B.offset.storage.topic": "x"}, ("offset.storage.topic",)),
    ],
)  # fmt: skip
def test_changes_are_named_by_key(changed, names):
    before, after = flow(), flow(**changed)
    assert before.changes(after) == after.changes(before) == names
    assert (before == after) is (not names)


def test_a_changed_secret_is_a_change_that_is_not_shown():
    before, after = (
        flow(**{"A.security.protocol": "SASL_SSL", "A.sasl.mechanism": "SCRAM-SHA-512",
                "A.sasl.jaas.config": f'{SCRAM}"{password}";'})
        for password in ("first-secret", "second-secret")
    )  # fmt: skip
    assert before != after
    assert set(before.changes(after)) == {
        "source.consumer.sasl.jaas.config",
        "source.admin.sasl.jaas.config",
    }
    assert "secret" not in repr(before)


def _settings():
    return {n: row.key for n, row in vars(FlowSettings).items() if isinstance(row, Setting)}


def test_the_table_is_all_that_a_key_needs():
    read = {
        key.name
        for key in KEYS
        if key.scope is Scope.FLOW and key.status is Status.HONOURED and "*" not in key.name
    }
    assert {key.name for key in _settings().values()} == read


def test_every_setting_has_a_reader():
    package = Path(inspect.getfile(heliograph)).parent
    code = "".join(
        file.read_text() for file in package.rglob("*.py") if file.name != "flow_keys.py"
    )
    unread = [
        name
        for name, key in _settings().items()
        if not re.search(rf"\.{name}\b", code) and f'"{key.name}"' not in code
    ]
    assert unread == []
