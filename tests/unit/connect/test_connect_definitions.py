from ast import literal_eval
from pathlib import Path

import pytest

from heliograph.connect.api import ConnectError
from heliograph.connect.definitions import config_errors, definitions, invalid, validate
from heliograph.connect.worker_config import WorkerConfig

WORKER = {
    "bootstrap.servers": "b:9092",
    "group.id": "g",
    "config.storage.topic": "c",
    "offset.storage.topic": "o",
    "status.storage.topic": "s",
}
SOURCE = "org.apache.kafka.connect.mirror.MirrorSourceConnector"
GOOD = {"name": "n", "connector.class": SOURCE, "source.cluster.alias": "A"}
PROVIDER = "org.apache.kafka.common.config.provider"
GROUPS = [
    "Common", "Transforms", "Predicates", "Error Handling", "Topic Creation",
    "Exactly Once Support", "offsets.topic",
]  # fmt: skip
#: Defaults that differ on purpose: quicker, and without Kerberos.
OTHER_DEFAULTS = {
    "sasl.mechanism": None,
    "refresh.topics.interval.seconds": "5",
    "sync.topic.configs.interval.seconds": "60",
    "sync.topic.acls.interval.seconds": "60",
    "refresh.groups.interval.seconds": "5",
    "emit.checkpoints.interval.seconds": "2",
    "sync.group.offsets.interval.seconds": "2",
}


def recorded():
    """What a real worker shows, by section of the file."""
    sections = {}
    for line in Path(__file__).with_name("connect_keys.txt").read_text().splitlines():
        if line.startswith("["):
            rows = sections.setdefault(line.strip("[]"), [])
        elif not line.startswith("#"):
            name, kind, required, importance, group, order, width, display, default = line.split(
                "\t"
            )
            rows.append({
                "name": name, "type": kind, "required": required == "required",
                "default_value": None if default == "-" else literal_eval(default),
                "importance": importance, "group": None if group == "None" else group,
                "order_in_group": int(order), "width": width, "display_name": display,
                "dependents": [],
            })  # fmt: skip
    return sections


@pytest.fixture
def worker():
    return WorkerConfig.from_mapping(WORKER)


def judged(worker, config, plugin=None):
    infos = validate(plugin or config["connector.class"], config, worker)
    errors = {c["value"]["name"]: c["value"]["errors"] for c in infos["configs"]}
    return infos, {name: found for name, found in errors.items() if found}


def value_of(infos, name):
    return next(c["value"] for c in infos["configs"] if c["value"]["name"] == name)


@pytest.mark.parametrize("plugin", [
    "MirrorSourceConnector", "MirrorCheckpointConnector", "MirrorHeartbeatConnector",
])  # fmt: skip
def test_definitions_are_those_of_a_real_worker_and_ours_behind_them(plugin):
    sections = recorded()
    expected = [*sections["all"], *sections[plugin], *sections["sources"]]
    found = [{k: v for k, v in d.items() if k != "documentation"} for d in definitions(plugin)]
    for row in expected:
        row["default_value"] = OTHER_DEFAULTS.get(row["name"], row["default_value"])
    assert found[: len(expected)] == expected
    own = [row["name"] for row in found[len(expected) :]]
    assert all(name.startswith("heliograph.") for name in own)
    assert ("heliograph.on.data.loss" in own) == (plugin == "MirrorSourceConnector")
    assert all(d["documentation"] for d in definitions(plugin))


@pytest.mark.parametrize("name", [SOURCE, "MirrorSourceConnector", "MirrorSource"])
def test_a_plugin_has_three_names(name):
    assert definitions(name) == definitions("MirrorSourceConnector")


@pytest.mark.parametrize("name", ["Nope", "mirrorsourceconnector", "Source", "", "os.path"])
def test_unknown_plugins(name):
    with pytest.raises(ConnectError) as caught:
        definitions(name)
    assert (caught.value.status, caught.value.message) == (404, f"Unknown plugin {name}.")


@pytest.mark.parametrize("version", ["4.3.1", "latest", "[4.0,5.0)", "[4.3.1]", "(,5)", None])
def test_versions_that_there_are(version):
    assert definitions("MirrorSource", version)


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("1.0", f"Plugin {SOURCE} not found that matches the version range [1.0,1.0], available"
         " versions: [4.3.1]"),
        ("", f"Plugin {SOURCE} not found that matches the version range [,], available versions:"
         " [4.3.1]"),
        ("(4.3.1,5)", f"Plugin {SOURCE} not found that matches the version range (4.3.1,5),"
         " available versions: [4.3.1]"),
        ("[", "Invalid version specification: ["),
    ],
)  # fmt: skip
def test_versions_that_there_are_not(version, message):
    with pytest.raises(ConnectError) as caught:
        definitions("MirrorSource", version)
    assert (caught.value.status, caught.value.message) == (400, message)


def test_a_good_config(worker):
    infos, errors = judged(worker, {
        **GOOD, "tasks.max": " 3 ", "refresh.topics.enabled": "TRUE", "topics": "a, b ,c",
        "sasl.jaas.config": "secret", "replication.policy.separator": "_", "unknown": "x",
    })  # fmt: skip
    assert (infos["name"], infos["error_count"], infos["groups"]) == (SOURCE, 0, GROUPS)
    assert errors == {}
    names = [c["value"]["name"] for c in infos["configs"]]
    assert names == [c["definition"]["name"] for c in infos["configs"]]
    assert names[:3] == ["name", "connector.class", "connector.plugin.version"]
    assert names[19:26] == [
        "topic.creation.groups", "exactly.once.support", "transaction.boundary",
        "transaction.boundary.interval.ms", "offsets.storage.topic", "enabled",
        "source.cluster.alias",
    ]  # fmt: skip
    expected = {"tasks.max": "3", "refresh.topics.enabled": "true", "topics": "a,b,c",
                "sasl.jaas.config": "[hidden]", "replication.policy.separator": "_",
                "target.cluster.alias": "target", "enabled": "true"}  # fmt: skip
    assert {name: value_of(infos, name)["value"] for name in expected} == expected
    assert value_of(infos, "topics") == {
        "name": "topics", "value": "a,b,c", "recommended_values": [], "errors": [],
        "visible": True,
    }  # fmt: skip


def test_versions_of_converters_show_with_their_converters(worker):
    converter = {"key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter"}
    infos, _ = judged(worker, {**GOOD, **converter})
    assert value_of(infos, "key.converter.plugin.version")["visible"]
    assert not value_of(infos, "value.converter.plugin.version")["visible"]


def said(key, value, reason):
    return f"Invalid value {value} for configuration {key}: {reason}"


@pytest.mark.parametrize(
    ("key", "value", "errors"),
    [
        ("tasks.max", "abc", ["abc|Not a number of type INT", "null|Value must be non-null"]),
        ("tasks.max", "0", ["0|Value must be at least 1"]),
        ("tasks.max", "2147483648", ["2147483648|Not a number of type INT",
                                     "null|Value must be non-null"]),
        ("tasks.max.enforce", "x", ["x|Expected value to be either true or false"]),
        ("enabled", "maybe", ["maybe|Expected value to be either true or false"]),
        ("replication.factor", "x", ["x|Not a number of type INT"]),
        ("offset-syncs.topic.replication.factor", "99999", ["99999|Not a number of type SHORT"]),
        ("refresh.topics.interval.seconds", "x", ["x|Not a number of type LONG"]),
        ("offset.lag.max", "1.5", ["1.5|Not a number of type LONG"]),
        ("admin.timeout.ms", "", ["|Not a number of type LONG"]),
        ("offset-syncs.topic.location", "moon", ["moon|String must be one of: source, target"]),
        ("config.action.reload", "x", ["x|String must be one of: none, restart"]),
        ("errors.tolerance", "some", ["some|String must be one of: none, all"]),
        ("exactly.once.support", "bla",
         ["bla|String must be one of (case insensitive): REQUIRED, REQUESTED"]),
        ("transaction.boundary", "zzz",
         ["zzz|String must be one of (case insensitive): INTERVAL, POLL, CONNECTOR"]),
        ("transaction.boundary.interval.ms", "-1", ["-1|Value must be at least 0"]),
        ("offsets.storage.topic", "", ["|String must be non-empty"]),
        ("name", "", ["|String may not be empty"]),
        ("name", "a\ab", ["a\ab|String may not contain control sequences but had the following"
                          " ASCII chars: 7"]),
        ("key.converter", "NoSuch", ["NoSuch|Class NoSuch could not be found."]),
        ("sasl.login.refresh.min.period.seconds", "x",
         ["x|Not a number of type SHORT", "null|Value must be non-null"]),
        ("sasl.login.refresh.window.factor", "7", ["7|Value must be no more than 1.0"]),
    ],
)  # fmt: skip
def test_errors_are_in_connects_words(worker, key, value, errors):
    _, found = judged(worker, {**GOOD, key: value})
    assert found == {key: [said(key, *error.split("|", 1)) for error in errors]}


@pytest.mark.parametrize(
    ("key", "value", "part"),
    [
        ("topics", "(", "pattern '(' does not compile"),
        ("replication.factor", "0", "except 0"),
        ("refresh.topics.interval.seconds", "0", "Value must be at least 1"),
        ("transforms", "mask", "Until then it must be empty"),
        ("replication.policy.class", "no.such.Class", "Class no.such.Class could not be found."),
        ("topic.filter.class", "os.system", "classes named in a file are never loaded"),
        ("topcis", "orders", "did you mean topics?"),
        ("topics.blacklist", "secret", "write topics.exclude instead"),
        ("config.providers", "mine", "not declared in the worker's file"),
        ("source.cluster.sasl.oauthbearer.token.endpoint.url", "http://169.254.169.254/",
         "the worker's file does not allow this URL"),
    ],
)  # fmt: skip
def test_errors_of_our_own(worker, key, value, part):
    infos, found = judged(worker, {**GOOD, key: value})
    assert list(found) == [key]
    assert part in found[key][0]
    assert infos["error_count"] == 1


def test_missing_keys(worker):
    infos, found = judged(worker, {"connector.class": "MirrorSource", "topics": ""})
    assert infos["error_count"] == 2
    assert found == {
        name: [f'Missing required configuration "{name}" which has no default value.']
        for name in ("name", "source.cluster.alias")
    }


def test_null_is_no_value(worker):
    infos, found = judged(worker, {**GOOD, "topics": None, "foo": None})
    null = ["Null value can not be supplied as the configuration value."]
    assert found == {"foo": null, "topics": null}
    assert infos["configs"][0]["definition"] is None
    assert infos["configs"][0]["value"]["name"] == "foo"


@pytest.mark.parametrize(
    ("values", "errors"),
    [
        ({"connector.class": "MirrorSource", "emit.offset-syncs.enabled": "false"}, {}),
        ({"connector.class": "MirrorSource", "emit.offset-syncs.enabled": "false",
          "offset-syncs.topic.location": "target"},
         {"emit.offset-syncs.enabled": ["MirrorSourceConnector can't setup offset-syncs feature"
                                        " while emit.offset-syncs.enabled set to false"]}),
        ({"connector.class": "MirrorSource", "exactly.once.support": "required"}, {}),
        ({"connector.class": "MirrorSource", "exactly.once.support": "required",
          "consumer.isolation.level": "read_uncommitted"},
         {"exactly.once.support": ["exactly once needs isolation.level=read_committed"]}),
        ({"connector.class": "MirrorCheckpoint", "emit.checkpoints.enabled": "false",
          "emit.offset-syncs.enabled": "false"},
         {"emit.checkpoints.enabled": ["MirrorCheckpointConnector can't run with"
                                       " emit.checkpoints.enabled set to false"],
          "emit.offset-syncs.enabled": ["MirrorCheckpointConnector can't run without offset"
                                        " syncs"]}),
        ({"connector.class": "MirrorCheckpoint", "enabled": "false",
          "emit.checkpoints.enabled": "false"}, {}),
        ({"connector.class": "MirrorHeartbeat", "emit.heartbeats.enabled": "false"}, {}),
    ],
)  # fmt: skip
def test_what_mm2_checks_of_several_keys(worker, values, errors):
    assert judged(worker, {**GOOD, **values})[1] == errors


def test_a_version_that_there_is_not(worker):
    _, found = judged(worker, {**GOOD, "connector.plugin.version": "1.0"})
    assert set(found) == {"connector.class", "connector.plugin.version"}


def test_overrides_are_shown_and_judged_by_the_policy(worker):
    config = {**GOOD, "producer.override.acks": "1", "producer.override.sasl.jaas.config": "hush"}
    infos, found = judged(worker, config)
    assert found == {}
    acks, jaas = infos["configs"][-2:]
    assert (acks["definition"]["name"], acks["definition"]["display_name"]) == (
        "producer.override.acks", "acks",
    )  # fmt: skip
    assert (acks["value"]["value"], jaas["value"]["value"]) == ("1", "[hidden]")
    strict = WorkerConfig.from_mapping(
        {**WORKER, "connector.client.config.override.policy": "Principal"}
    )
    assert judged(strict, config)[1] == {
        "producer.override.acks": ["The 'Principal' policy does not allow 'acks' to be overridden"
                                   " in the connector configuration."],
    }  # fmt: skip


@pytest.mark.parametrize("plugin", ["MirrorSource", "SourceConnector", "Source", SOURCE])
def test_the_plugin_of_the_path_is_a_suffix(worker, plugin):
    assert judged(worker, GOOD, plugin)[0]["error_count"] == 0


@pytest.mark.parametrize(
    ("plugin", "config", "status", "message"),
    [
        ("MirrorCheckpoint", GOOD, 400,
         f"Included connector type {SOURCE} does not match request type MirrorCheckpoint"),
        ("MirrorSource", {"name": "x", "sasl.jaas.config": "hush"}, 500,
         "org.apache.kafka.connect.runtime.rest.errors.BadRequestException: Connector config"
         " contains no connector type"),
        ("Nope", {"connector.class": "Nope"}, 500,
         "org.apache.kafka.connect.runtime.rest.errors.BadRequestException: Failed to find any"
         " class that implements Connector and which name matches Nope, available connectors are:"
         " PluginDesc{klass=class org.apache.kafka.connect.mirror.MirrorCheckpointConnector,"),
    ],
)  # fmt: skip
def test_configs_that_cannot_be_judged(worker, plugin, config, status, message):
    with pytest.raises(ConnectError) as caught:
        validate(plugin, config, worker)
    assert caught.value.status == status
    assert caught.value.message.startswith(message)
    assert "hush" not in caught.value.message


def test_the_message_of_a_refusal(worker):
    assert invalid("n", GOOD, worker) is None
    assert invalid("n", {"connector.class": SOURCE, "source.cluster.alias": "A"}, worker) is None
    assert invalid("n", {**GOOD, "tasks.max": "abc"}, worker) == (
        "Connector configuration is invalid and contains the following 2 error(s):\n"
        "Invalid value abc for configuration tasks.max: Not a number of type INT\n"
        "Invalid value null for configuration tasks.max: Value must be non-null\n"
        "You can also find the above list of errors at the endpoint"
        " `/connector-plugins/{connectorType}/config/validate`"
    )
    assert invalid("n", {}, worker) == "Connector config contains no connector type"
    assert invalid("n", {"connector.class": "com.acme.X"}, worker).startswith(
        "Failed to find any class that implements Connector and which name matches com.acme.X,"
    )
    assert config_errors(validate("MirrorSource", GOOD, worker)) is None


def test_templates_are_checked_but_never_shown_resolved(tmp_path):
    secrets = tmp_path / "s.properties"
    secrets.write_text("good=orders\nbad=hunter2(\nnumber=hunter2\n")
    worker = WorkerConfig.from_mapping({
        **WORKER, "config.providers": "file",
        "config.providers.file.class": f"{PROVIDER}.FileConfigProvider",
        "config.providers.file.param.allowed.paths": str(tmp_path),
    })  # fmt: skip
    config = {
        **GOOD, "topics": f"${{file:{secrets}:good}}", "topics.exclude": f"${{file:{secrets}:bad}}",
        "tasks.max": f"${{file:{secrets}:number}}", "offset.lag.max": "${file:/etc/passwd:root}",
        "replication.factor": "${vault:a:b}", "config.providers": "file",
        "sasl.jaas.config": f"${{file:{secrets}:bad}}",
    }  # fmt: skip
    infos, found = judged(worker, config)
    assert set(found) == {"topics.exclude", "tasks.max", "offset.lag.max", "replication.factor"}
    assert value_of(infos, "topics")["value"] == config["topics"]
    assert value_of(infos, "sasl.jaas.config")["value"] == "[hidden]"
    assert "outside allowed.paths" in found["offset.lag.max"][0]
    assert "not declared" in found["replication.factor"][0]
    assert "hunter2" not in str(infos)


def test_secrets_are_in_no_message(worker):
    config = {**GOOD, "tasks.max": "password=hunter2", "ssl.keystore.password": "hunter2",
              "ssl.truststore.certificates": "hunter2",
              "source.cluster.sasl.jaas.config": "hunter2",
              "consumer.ssl.key.password": "hunter2", "topcis": "hunter2"}  # fmt: skip
    assert "hunter2" not in str(validate(SOURCE, config, worker))


def test_expressions_that_blow_up_are_refused(worker):
    _, found = judged(worker, {**GOOD, "topics": "orders,(a+)+b"})
    assert list(found) == ["topics"]
    [error] = found["topics"]
    assert error.startswith(
        "Invalid value orders,(a+)+b for configuration topics: pattern '(a+)+b'"
    )
    assert "takes exponential time, for example for 'aaaaa'" in error
