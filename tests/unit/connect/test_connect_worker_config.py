import socket

import pytest

from heliograph.config import ConfigErrors, MirrorMakerConfig
from heliograph.config.properties import dump
from heliograph.config.worker_keys import RestSettings
from heliograph.connect.worker_config import WorkerConfig
from heliograph.errors import ConfigError

BASE = {
    "bootstrap.servers": "b1:9092,b2:9092",
    "group.id": "connect-cluster",
    "config.storage.topic": "connect-configs",
    "offset.storage.topic": "connect-offsets",
    "status.storage.topic": "connect-status",
}
PROVIDER = "org.apache.kafka.common.config.provider"
BASIC = "org.apache.kafka.connect.rest.basic.auth.extension.BasicAuthSecurityRestExtension"
#: The file that Kafka comes with, as far as it is not commented out.
STOCK = {
    "bootstrap.servers": "localhost:9092",
    "group.id": "connect-cluster",
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "key.converter.schemas.enable": "true",
    "value.converter.schemas.enable": "true",
    "offset.storage.topic": "connect-offsets",
    "offset.storage.replication.factor": "1",
    "config.storage.topic": "connect-configs",
    "config.storage.replication.factor": "1",
    "status.storage.topic": "connect-status",
    "status.storage.replication.factor": "1",
    "offset.flush.interval.ms": "10000",
}


def of(values):
    return WorkerConfig.from_mapping({**BASE, **values})


def problems(values, base=BASE):
    with pytest.raises(ConfigErrors) as caught:
        WorkerConfig.from_mapping({**base, **values})
    return {problem.key: problem for problem in caught.value.problems}


def warned(config, code):
    return [w for w in config.warnings if w.code == code]


def test_defaults_are_connects_but_for_the_listener():
    config = of({})
    assert config.group_id == "connect-cluster"
    storage = config.storage
    assert [(t.name, t.partitions, t.replication_factor)
            for t in (storage.configs, storage.offsets, storage.statuses)] == [
        ("connect-configs", 1, 3), ("connect-offsets", 25, 3), ("connect-status", 5, 3),
    ]  # fmt: skip
    assert storage.create
    assert config.listeners == ("http://127.0.0.1:8083",)
    assert config.admin_addresses is None
    assert config.topic_tracking_enable
    assert config.topic_tracking_allow_reset
    assert config.override_policy == "All"
    assert not config.rest.insecure
    assert config.client.alias == "connect"
    assert config.client.bootstrap_servers == "b1:9092,b2:9092"
    assert config.warnings == ()


def test_kafkas_own_file_is_accepted_and_what_means_nothing_is_named_once():
    config = WorkerConfig.from_mapping(STOCK)
    (warning,) = config.warnings
    assert warning.code == "config.no-effect"
    assert warning.message == (
        "mean nothing to Heliograph and are ignored: key.converter, value.converter,"
        " key.converter.schemas.enable, value.converter.schemas.enable, offset.flush.interval.ms"
    )
    assert config.storage.configs.replication_factor == 1


def test_a_file_is_read_with_the_lines_of_its_errors(tmp_path):
    path = tmp_path / "connect-distributed.properties"
    path.write_text(dump({**BASE, "status.storage.partitions": "many", "listeners": "nowhere"}))
    with pytest.raises(ConfigErrors) as caught:
        WorkerConfig.from_file(path)
    assert [(p.where, p.key) for p in caught.value.problems] == [
        (f"{path}:6", "status.storage.partitions"),
        (f"{path}:7", "listeners"),
    ]
    with pytest.raises(ConfigError) as missing:
        WorkerConfig.from_file(tmp_path / "none.properties")
    assert "connect-distributed.sh" in missing.value.hint


def test_all_that_is_missing_is_named_at_once():
    found = problems({}, base={"key.converter": "x.Y"})
    assert set(found) == {*BASE}
    assert found["group.id"].hint == "add a line such as: group.id=connect-cluster"


def test_the_storage_topics_are_three():
    found = problems({"offset.storage.topic": "connect-configs"})
    assert "different" in found["config.storage.topic"].message


def test_other_settings_of_storage_topics_are_topic_properties():
    values = {
        "config.storage.min.insync.replicas": "2",
        "config.storage.cleanup.policy": "delete",
        "offset.storage.partitions": "-1",
        "offset.storage.replication.factor": "-1",
        "internal.topics.automatic.creation.enable": "false",
    }
    storage = of(values).storage
    assert storage.configs.settings == {"min.insync.replicas": "2"}
    assert storage.configs.new.configs["cleanup.policy"] == "compact"
    assert (storage.offsets.partitions, storage.offsets.replication_factor) == (-1, -1)
    assert not storage.create
    assert set(problems({"status.storage.partitions": "0"})) == {"status.storage.partitions"}


@pytest.mark.parametrize(
    ("values", "worker_id"),
    [
        ({"listeners": "http://h:1"}, "h:1"),
        ({"listeners": "HTTPS://h:1"}, "h:1"),
        ({"listeners": "https://h:1,http://g:2"}, "g:2"),
        ({"listeners": "https://h:1,http://g:2", "rest.advertised.listener": "https"}, "h:1"),
        ({"listeners": "http://[::1]:8083"}, "[::1]:8083"),
        ({"listeners": "http://127.0.0.1:8083"}, "127.0.0.1:8083"),
        ({"listeners": "http://:8083"}, "me:8083"),
        ({"listeners": "http://0.0.0.0:8083"}, "me:8083"),
        ({"listeners": "http://0.0.0.0:8083", "rest.advertised.host.name": "x",
          "rest.advertised.port": "99"}, "x:99"),
        ({}, "me:8083"),
        ({"rest.advertised.host.name": "x"}, "x:8083"),
        ({"rest.port": "8084"}, "me:8084"),
        ({"rest.host.name": "old", "rest.port": "8084"}, "old:8084"),
    ],
)  # fmt: skip
def test_who_a_worker_is(monkeypatch, values, worker_id):
    monkeypatch.setattr(socket, "getfqdn", lambda: "me")
    assert of(values).worker_id == worker_id


def test_a_port_that_is_left_open_is_the_bound_one():
    config = of({"listeners": "http://127.0.0.1:0"})
    assert config.served_on(4711).worker_id == "127.0.0.1:4711"


def test_an_old_listener_serves_all_addresses_as_it_did():
    assert of({"rest.port": "8084"}).listeners == ("http://:8084",)


@pytest.mark.parametrize("text", ["nowhere", "ftp://h:1", "http://h", "http://h:70000", ""])
def test_what_is_no_listener(text):
    assert set(problems({"listeners": text})) == {"listeners"}


def test_admin_listeners_have_three_meanings():
    assert of({}).admin_addresses is None
    assert of({"admin.listeners": ""}).admin_addresses == ()
    assert of({"admin.listeners": "http://127.0.0.1:9"}).admin_addresses == ("http://127.0.0.1:9",)


def test_tls_of_listeners_is_all_or_nothing(tmp_path):
    secrets = tmp_path / "secrets.properties"
    secrets.write_text("pw=open sesame\n")
    shared = {
        "config.providers": "file",
        "config.providers.file.class": f"{PROVIDER}.FileConfigProvider",
        "config.providers.file.param.allowed.paths": str(tmp_path),
        "ssl.keystore.location": "/shared.p12",
        "ssl.keystore.password": f"${{file:{secrets}:pw}}",
        "ssl.client.auth": "required",
    }
    config = of(shared)
    assert config.tls() == {
        "ssl.client.auth": "required",
        "ssl.keystore.location": "/shared.p12",
        "ssl.keystore.password": "open sesame",
    }
    assert "open sesame" not in repr(config)
    own = of({**shared, "listeners.https.ssl.keystore.location": "/own.p12"})
    assert own.tls() == {"ssl.client.auth": "required", "ssl.keystore.location": "/own.p12"}
    assert problems({"listeners.https.ssl.keystore.type": "ZIP"})


def test_clients_of_the_worker(tmp_path):
    config = of({
        "security.protocol": "ssl",
        "ssl.truststore.location": "/t.pem",
        "producer.compression.type": "zstd",
        "producer.ssl.truststore.location": "/p.pem",
        "consumer.max.poll.records": "1",
    })  # fmt: skip
    assert config.client.properties == {
        "bootstrap.servers": "b1:9092,b2:9092",
        "security.protocol": "SSL",
        "ssl.truststore.location": "/t.pem",
    }
    values = {n: e.value for n, e in config.client_effective["producer"].items()}
    assert values["ssl.truststore.location"] == "/p.pem"
    assert values["compression.type"] == "zstd"
    assert "compression.type" not in config.client_effective["admin"]


def test_a_login_is_checked():
    found = problems({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"})
    assert "sasl.jaas.config" in found


def test_a_provider_needs_an_allow_list_and_a_strange_one_is_only_warned_of():
    declared = {"config.providers": "vault,file", "config.providers.vault.class": "com.acme.Vault"}
    file = {"config.providers.file.class": f"{PROVIDER}.FileConfigProvider"}
    found = problems({**declared, **file})
    assert set(found) == {"config.providers.file.param.allowed.paths"}
    allowed = {"config.providers.file.param.allowed.paths": "/etc/secrets"}
    config = of({**declared, **file, **allowed})
    (warning,) = warned(config, "config.provider-class")
    assert warning.key == "config.providers.vault.class"
    assert set(config.providers) == {"vault", "file"}


def test_a_key_nobody_knows_is_a_warning_but_one_of_ours_an_error():
    (warning,) = of({"confluent.license": "x", "group.id": "g"}).warnings
    assert (warning.code, warning.key) == ("config.unknown-key", "confluent.license")
    found = problems({"heliograph.rest.insecrue": "false"})
    assert found["heliograph.rest.insecrue"].hint == "did you mean heliograph.rest.insecure?"


def test_an_extension_that_may_guard_the_api_is_not_left_out():
    assert set(problems({"rest.extension.classes": "com.acme.Guard"})) == {"rest.extension.classes"}
    insecure = {"rest.extension.classes": "com.acme.Guard", "heliograph.rest.insecure": "true"}
    assert warned(of(insecure), "config.rest-extension")
    basic = {"rest.extension.classes": BASIC}
    assert set(problems(basic)) == {"heliograph.rest.property.login.file"}
    config = of({**basic, "heliograph.rest.property.login.file": "/etc/users"})
    assert config.rest.property_login_file == "/etc/users"
    assert config.rest.property_login_role == "admin"


@pytest.mark.parametrize(
    ("values", "allowed", "refused"),
    [
        ({}, "acks", None),
        ({"connector.client.config.override.policy": "None"}, None, "acks"),
        ({"connector.client.config.override.policy": "Principal"}, "sasl.jaas.config", "acks"),
        ({"connector.client.config.override.policy":
          "org.apache.kafka.connect.connector.policy.NoneConnectorClientConfigOverridePolicy"},
         None, "acks"),
        ({"connector.client.config.override.policy": "Allowlist",
          "connector.client.config.override.allowlist": "acks,linger.ms"}, "acks", "batch.size"),
        ({"connector.client.config.override.policy": "Allowlist"}, None, "acks"),
    ],
)  # fmt: skip
def test_what_a_connector_may_override(values, allowed, refused):
    config = of(values)
    assert allowed is None or config.allows_override(allowed)
    assert refused is None or not config.allows_override(refused)


def test_an_unknown_override_policy_is_an_error():
    key = "connector.client.config.override.policy"
    assert set(problems({key: "com.acme.Policy"})) == {key}


def test_urls_that_connectors_may_name():
    key = "sasl.oauthbearer.token.endpoint.url"
    config = of({key: "https://own/token", "heliograph.connector.allowed.urls": "https://a/t"})
    assert config.allows_url("https://own/token")
    assert config.allows_url("https://a/t")
    assert not config.allows_url("https://a/t2")
    assert not of({}).allows_url("https://own/token")


def test_a_file_of_mm2_may_say_who_uses_the_api():
    values = {
        "clusters": "A,B", "A.bootstrap.servers": "a:1", "B.bootstrap.servers": "b:1",
        "A->B.enabled": "true", "heliograph.rest.users.file": "/users",
    }  # fmt: skip
    config = MirrorMakerConfig.from_mapping(values)
    assert config.warnings == ()
    rest = RestSettings.of({k: e.value for k, e in config.entries.items()}, config.providers)
    assert (rest.users_file, rest.insecure, rest.body_max_bytes) == ("/users", False, 1 << 20)


def test_secrets_are_in_no_message():
    values = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": 'com.sun.JndiLoginModule required password="hunter2";',
        "listeners.https.ssl.keystore.password": "hunter2",
        "status.storage.partitions": "hunter2 password=hunter2",
    }
    found = problems(values)
    assert set(found) == {"sasl.jaas.config", "status.storage.partitions"}
    assert "hunter2" not in "".join(map(str, found.values()))
