import pytest

from heliograph.config import ConfigErrors
from heliograph.connect.connectors import (
    ConnectorClass,
    connector_class,
    plan_connector,
    plugins,
)
from heliograph.connect.definitions import invalid
from heliograph.connect.worker_config import WorkerConfig
from heliograph.service.snapshot import CHECKPOINTS, COPYING, HEARTBEATS

PACKAGE = "org.apache.kafka.connect.mirror"
PROVIDER = "org.apache.kafka.common.config.provider"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
LOGIN = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.jaas.config": f'{SCRAM} required username="worker" password="hunter2";',
}
WORKER = {
    "bootstrap.servers": "w1:9092,w2:9092",
    "group.id": "g",
    "config.storage.topic": "c",
    "offset.storage.topic": "o",
    "status.storage.topic": "s",
}
SOURCE = {
    "connector.class": "MirrorSourceConnector",
    "source.cluster.alias": "A",
    "target.cluster.alias": "B",
    "source.cluster.bootstrap.servers": "a:9092",
}
BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
#: Bodies as tutorials print them.
TUTORIALS = [
    {
        "name": "mm2-msc", "connector.class": f"{PACKAGE}.MirrorSourceConnector",
        "clusters": "source,target", "source.cluster.alias": "source",
        "target.cluster.alias": "target", "source.cluster.bootstrap.servers": "kafka-src:9092",
        "target.cluster.bootstrap.servers": "kafka-dst:9092", "topics": ".*", "tasks.max": "4",
        "key.converter": BYTES, "value.converter": BYTES, "replication.factor": "3",
        "offset-syncs.topic.replication.factor": "3", "sync.topic.acls.enabled": "false",
        "refresh.topics.interval.seconds": "20", "refresh.groups.interval.seconds": "20",
        "replication.policy.separator": "_", "replication.policy.class":
        f"{PACKAGE}.IdentityReplicationPolicy", "consumer.group.id": "mm2-msc",
        "producer.enable.idempotence": "true", "errors.log.enable": "true",
        "source.cluster.security.protocol": "SSL", "source.consumer.auto.offset.reset": "latest",
    },
    {
        "name": "mm2-cpc", "connector.class": f"{PACKAGE}.MirrorCheckpointConnector",
        "clusters": "source,target", "source.cluster.alias": "source",
        "target.cluster.alias": "target", "source.cluster.bootstrap.servers": "kafka-src:9092",
        "target.cluster.bootstrap.servers": "kafka-dst:9092", "tasks.max": "1", "groups": ".*",
        "emit.checkpoints.interval.seconds": "20", "checkpoints.topic.replication.factor": "1",
        "sync.group.offsets.enabled": "true", "key.converter": BYTES, "value.converter": BYTES,
    },
    {
        "name": "mm2-hbc", "connector.class": f"{PACKAGE}.MirrorHeartbeatConnector",
        "clusters": "source,target", "source.cluster.alias": "source",
        "target.cluster.alias": "target", "source.cluster.bootstrap.servers": "kafka-src:9092",
        "target.cluster.bootstrap.servers": "kafka-dst:9092", "tasks.max": "1",
        "emit.heartbeats.interval.seconds": "1", "heartbeats.topic.replication.factor": "1",
        "consumer.group.id": "mm2-hbc", "key.converter": BYTES, "value.converter": BYTES,
    },
]  # fmt: skip


def worker(values=()):
    return WorkerConfig.from_mapping({**WORKER, **dict(values)})


def plan(values=(), of_worker=()):
    return plan_connector("mine", {**SOURCE, **dict(values)}, worker(of_worker))


def problems(values, of_worker=(), base=SOURCE):
    with pytest.raises(ConfigErrors) as caught:
        plan_connector("mine", {**base, **values}, worker(of_worker))
    return {problem.key: problem for problem in caught.value.problems}


@pytest.mark.parametrize("body", TUTORIALS, ids=lambda body: body["name"])
def test_bodies_of_tutorials_are_accepted_as_they_are(body):
    assert invalid(body["name"], body, worker()) is None
    made = plan_connector(body["name"], body, worker())
    assert str(made.flow.flow) == "source->target"
    assert made.flow.target_admin.bootstrap_servers == "kafka-dst:9092"
    assert {w.code for w in made.warnings} <= {"config.unknown-key", "config.no-effect"}


@pytest.mark.parametrize(
    ("name", "kind", "part"),
    [
        (f"{PACKAGE}.MirrorSourceConnector", ConnectorClass.SOURCE, COPYING),
        ("MirrorSourceConnector", ConnectorClass.SOURCE, COPYING),
        ("MirrorSource", ConnectorClass.SOURCE, COPYING),
        ("MirrorCheckpoint", ConnectorClass.CHECKPOINT, CHECKPOINTS),
        (f"{PACKAGE}.MirrorHeartbeatConnector", ConnectorClass.HEARTBEAT, HEARTBEATS),
    ],
)
def test_names_of_connectors(name, kind, part):
    assert connector_class(name) is kind
    assert kind.part == part


@pytest.mark.parametrize("name", [None, "", "mirrorsource", "Source", "heliograph.Mirror"])
def test_names_of_nothing(name):
    assert connector_class(name) is None


def test_plugins_are_listed_as_connect_does():
    assert [plugin["class"] for plugin in plugins()] == [
        f"{PACKAGE}.MirrorCheckpointConnector",
        f"{PACKAGE}.MirrorHeartbeatConnector",
        f"{PACKAGE}.MirrorSourceConnector",
    ]
    assert plugins()[0] | {"class": ""} == {"class": "", "type": "source", "version": "4.3.1"}


def test_a_connector_that_is_not_mm2s():
    found = problems({"connector.class": "com.acme.Sink"})
    assert "'com.acme.Sink' is not a connector of MirrorMaker 2" in found["connector.class"].message


def test_defaults_are_connects():
    made = plan()
    assert (made.name, made.kind, made.part) == ("mine", ConnectorClass.SOURCE, COPYING)
    assert made.flow.enabled
    assert made.flow.tasks_max == 1
    assert made.offsets_topic == made.flow.mm2_offsets_topic == "o"
    assert made.flow.mm2_group == "A-mm2"
    assert not made.flow.replication_policy_separator_is_set
    assert made.flow.isolation_level == "read_committed"
    assert made.warnings == ()
    assert plan({"offsets.storage.topic": "own"}).offsets_topic == "own"
    default = {k: v for k, v in SOURCE.items() if k != "target.cluster.alias"}
    assert plan_connector("n", default, worker()).flow.flow.target == "target"


def test_values_go_through_the_table():
    flow = plan({"topics": "orders, pay.*", "replication.policy.separator": "_",
                 "heliograph.offsets": "dense", "heliograph.plugin.x": "1"}).flow  # fmt: skip
    assert flow.topics == ("orders", "pay.*")
    assert flow.replication_policy_separator == "_"
    assert flow.replication_policy_separator_is_set
    assert flow.offsets == "dense"
    assert flow.origin("topics") == "connector mine topics"
    assert flow.effective["heliograph.plugin.x"].value == "1"


def test_a_heartbeat_connector_needs_no_source_and_mirrors_nothing():
    config = {"connector.class": "MirrorHeartbeat", "source.cluster.alias": "A", "enabled": "true"}
    made = plan_connector("h", config, worker())
    assert not made.flow.enabled
    assert made.active
    assert made.task_configs() == [{**config, "task.class": f"{PACKAGE}.MirrorHeartbeatTask"}]
    silent = plan_connector("h", {**config, "emit.heartbeats.enabled": "false"}, worker())
    assert silent.task_configs() == []


def test_tasks_of_a_source_connector_are_dealt_in_turn():
    made = plan({"tasks.max": "2"})
    tasks = made.task_configs(["t-0", "t-1", "u-0"])
    assert tasks == [
        {**made.config, "task.class": f"{PACKAGE}.MirrorSourceTask", "task.index": "0",
         "task.assigned.partitions": "t-0,u-0"},
        {**made.config, "task.class": f"{PACKAGE}.MirrorSourceTask", "task.index": "1",
         "task.assigned.partitions": "t-1"},
    ]  # fmt: skip
    assert len(made.task_configs(["t-0"])) == 1
    assert made.task_configs([]) == []
    assert plan({"enabled": "false"}).task_configs(["t-0"]) == []


def test_tasks_of_a_checkpoint_connector_are_runs_of_groups():
    made = plan({"connector.class": "MirrorCheckpoint", "tasks.max": "3"})
    tasks = made.task_configs(["a", "b", "c", "d", "e"])
    assert [task["task.assigned.groups"] for task in tasks] == ["a,b", "c,d", "e"]
    assert tasks[2]["task.index"] == "2"
    off = plan({"connector.class": "MirrorCheckpoint", "emit.checkpoints.enabled": "false"})
    assert off.task_configs(["a"]) == []


# -- clusters ----------------------------------------------------------------------------------


def test_the_target_is_the_workers_cluster_unless_another_is_named():
    made = plan(of_worker={**LOGIN, "producer.compression.type": "zstd"})
    for client in (made.flow.target_client, made.flow.target_admin):
        assert client.alias == "B"
        assert client.bootstrap_servers == "w1:9092,w2:9092"
        assert client.properties["sasl.jaas.config"] == LOGIN["sasl.jaas.config"]
    assert made.flow.compression_type == "zstd"
    assert "sasl.jaas.config" not in made.flow.source_client.properties


@pytest.mark.parametrize(
    "values",
    [
        {"target.cluster.bootstrap.servers": "evil:9092"},
        {"target.cluster.bootstrap.servers": "evil:9092,w1:9092,w2:9092"},
        {"target.cluster.bootstrap.servers": "evil:9092",
         "producer.override.bootstrap.servers": "evil:9092"},
        {"target.cluster.bootstrap.servers": "w2:9092, w1:9092",
         "producer.override.bootstrap.servers": "evil:9092"},
        {"admin.bootstrap.servers": "evil:9092"},
        {"target.admin.bootstrap.servers": "evil:9092"},
    ],
)  # fmt: skip
def test_the_workers_login_goes_to_no_other_cluster(values):
    flow = plan(values, of_worker=LOGIN).flow
    for client in (flow.source_client, flow.source_admin, flow.target_client, flow.target_admin):
        if "evil" in client.bootstrap_servers or client.alias == "A":
            assert not [k for k in client.properties if k.startswith(("sasl.", "security."))]


def test_the_workers_cluster_by_name_has_the_workers_login():
    flow = plan({"target.cluster.bootstrap.servers": "w2:9092, w1:9092"}, of_worker=LOGIN).flow
    assert flow.target_client.properties["sasl.mechanism"] == "SCRAM-SHA-512"


def test_a_connectors_login_is_whole():
    values = {"target.cluster.security.protocol": "SSL"}
    flow = plan(values, of_worker=LOGIN).flow
    assert flow.target_admin.properties == {
        "bootstrap.servers": WORKER["bootstrap.servers"],
        "security.protocol": "SSL",
    }


def test_an_override_of_a_principal_goes_over_the_workers_login():
    jaas = f'{SCRAM} required username="team" password="x";'
    flow = plan({"producer.override.sasl.jaas.config": jaas}, of_worker=LOGIN).flow
    assert flow.target_client.properties["sasl.jaas.config"] == jaas
    assert flow.target_client.properties["sasl.mechanism"] == "SCRAM-SHA-512"
    assert flow.target_admin.properties["sasl.jaas.config"] == LOGIN["sasl.jaas.config"]
    strict = {**LOGIN, "connector.client.config.override.policy": "None"}
    found = problems({"producer.override.sasl.jaas.config": jaas}, strict)
    assert "'None' policy does not allow 'sasl.jaas.config'" in str(found.values())


def test_the_precedence_of_client_settings_is_mm2s():
    flow = plan({
        "source.cluster.ssl.truststore.location": "/1",
        "consumer.ssl.truststore.location": "/2",
        "source.consumer.ssl.truststore.location": "/3",
        "admin.ssl.truststore.location": "/4",
        "consumer.poll.timeout.ms": "5",
        "ssl.truststore.location": "/no",
        "consumer.isolation.level": "read_uncommitted",
    }).flow  # fmt: skip
    assert flow.source_client.properties["ssl.truststore.location"] == "/3"
    assert flow.source_admin.properties["ssl.truststore.location"] == "/4"
    assert "poll.timeout.ms" not in flow.source_client.properties
    assert flow.isolation_level == "read_uncommitted"


def test_connectors_meet_if_they_copy_between_the_same_clusters():
    made = plan()
    assert made.meets({**SOURCE, "source.cluster.bootstrap.servers": "x:1, a:9092"})
    assert made.meets({**SOURCE, "target.cluster.bootstrap.servers": "w2:9092"})
    assert not made.meets({**SOURCE, "target.cluster.bootstrap.servers": "other:9092"})
    assert not made.meets({**SOURCE, "source.cluster.bootstrap.servers": "other:9092"})
    assert not made.meets({**SOURCE, "connector.class": "MirrorHeartbeat"})
    assert not made.meets({})


# -- errors ------------------------------------------------------------------------------------


def test_errors_come_all_at_once_and_name_the_keys_as_written():
    found = problems({
        "source.cluster.bootstrap.servers": "nowhere", "topics": "(", "tasks.max": "x",
        "source.cluster.security.protocol": "TLS", "topics.blacklist": "x", "gruops": "x",
    })  # fmt: skip
    assert set(found) == {
        "source.cluster.bootstrap.servers", "topics", "tasks.max", "topics.blacklist", "gruops",
        "source.cluster.security.protocol",
    }  # fmt: skip
    assert found["topics"].where == "connector mine"


def test_a_source_that_is_not_named():
    base = {k: v for k, v in SOURCE.items() if "bootstrap" not in k}
    found = problems({}, base=base)["source.cluster.bootstrap.servers"]
    assert "source.cluster.bootstrap.servers=" in found.hint


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"source.cluster.alias": ""}, "source.cluster.alias"),
        ({"source.cluster.alias": "B"}, "target.cluster.alias"),
        ({"source.cluster.alias": "a/b"}, "a/b->B"),
        ({"tasks.max": "0"}, "tasks.max"),
        ({"producer.override.bootstrap.servers": "x:1"}, "target.cluster.bootstrap.servers"),
        ({"replication.policy.separator": "/"}, "replication.policy.separator"),
    ],
)
def test_what_cannot_run(values, key):
    assert set(problems(values)) == {key}


def test_unknown_keys_are_warnings():
    warnings = plan({"confluent.topic": "x", "confluent.topic.replication.factor": "1",
                     "source.consumer.foo": "1", "ssl.provider": "p",
                     "use.incremental.alter.configs": "true",
                     "value.converter": "org.apache.kafka.connect.json.JsonConverter",
                     "config.providers.x.class": "os.Path"}).warnings  # fmt: skip
    assert {w.key for w in warnings} == {
        "confluent.topic", "confluent.topic.replication.factor", "source.consumer.foo",
        "ssl.provider", "use.incremental.alter.configs",
        "value.converter", "config.providers.x.class",
    }  # fmt: skip


def test_connectors_use_the_workers_providers_and_no_others(tmp_path):
    (tmp_path / "s.properties").write_text("alias=A\nservers=a:9092\n")
    allowed = {
        "config.providers": "file",
        "config.providers.file.class": f"{PROVIDER}.FileConfigProvider",
        "config.providers.file.param.allowed.paths": str(tmp_path),
    }
    file = f"${{file:{tmp_path}/s.properties"
    values = {"source.cluster.alias": f"{file}:alias}}", "config.providers": "file",
              "source.cluster.bootstrap.servers": f"{file}:servers}}"}  # fmt: skip
    made = plan(values, allowed)
    assert made.flow.flow.source == "A"
    assert made.config["source.cluster.alias"] == f"{file}:alias}}"
    assert made.flow.source_client.bootstrap_servers == f"{file}:servers}}"
    own = {
        "config.providers": "file,env",
        "config.providers.env.class": f"{PROVIDER}.EnvVarConfigProvider",
        "config.providers.env.param.allowlist.pattern": ".*",
        "config.providers.file.param.allowed.paths": "/",
        "topics": "${env:PATH}",
        "groups": "${file:/etc/passwd:root}",
    }
    found = problems(own, allowed)
    assert set(found) == {"config.providers", "topics", "groups"}
    assert found["groups"].code == "config.provider-denied"


def test_urls_and_login_modules_are_not_the_callers_to_choose():
    key = "source.cluster.sasl.oauthbearer.token.endpoint.url"
    url = "http://169.254.169.254/latest"
    assert set(problems({key: url})) == {key}
    plan({key: url}, {"heliograph.connector.allowed.urls": url})
    jndi = 'com.sun.security.auth.module.JndiLoginModule required password="hunter2";'
    found = problems({"source.cluster.sasl.jaas.config": jndi})
    assert set(found) == {"source.cluster.sasl.jaas.config"}
    assert "hunter2" not in str(found)


def test_a_plan_shows_no_secret():
    made = plan({"source.cluster.ssl.key.password": "hunter2"}, LOGIN)
    assert "hunter2" not in repr(made)
