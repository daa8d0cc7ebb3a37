import pytest

from heliograph.config import KEYS, ConfigErrors, Status, load
from heliograph.config.key import Key, Scope, Type
from heliograph.config.properties import dump
from heliograph.errors import ConfigError
from heliograph.model import Flow

BASE = {
    "clusters": "A,B",
    "A.bootstrap.servers": "a:9092",
    "B.bootstrap.servers": "b:9092",
    "A->B.enabled": "true",
}
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
PROVIDERS = "org.apache.kafka.common.config.provider"
HOSTILE = "B-_~:?#[]@!$&'()*+=\"<>{}|^`"


@pytest.fixture
def file(tmp_path):
    def write(*dicts, **kwargs):
        path = tmp_path / "mm2.properties"
        path.write_text(dump({k: v for d in (*dicts, kwargs) for k, v in d.items()}))
        return path

    return write


def errors(path, **kwargs):
    with pytest.raises(ConfigErrors) as caught:
        load(path, **kwargs)
    return caught.value.problems


def only(problems):
    assert len(problems) == 1, [str(p) for p in problems]
    return problems[0]


def flow_of(config, name):
    return next(f for f in config.flows if str(f.flow) == name)


def test_defaults(file):
    config = load(file(BASE))
    assert config.clusters == ("A", "B")
    assert config.warnings == ()
    assert [(str(f.flow), f.enabled) for f in config.flows] == [("A->B", True), ("B->A", False)]
    flow = config.flows[0]
    assert flow.topics == (".*",)
    assert flow.topics_exclude == (r"mm2.*\.internal", r".*\.replica", "__.*")
    assert "min.insync.replicas" in flow.config_properties_exclude
    assert (flow.replication_factor, flow.tasks_max, flow.offset_lag_max) == (2, 0, 100)
    assert (flow.lease_seconds, flow.on_data_loss) == (30, "fail")
    assert (flow.auto_offset_reset, flow.isolation_level) == ("earliest", "read_committed")
    assert flow.source_client.bootstrap_servers == "a:9092"
    assert flow.target_client.bootstrap_servers == flow.target_admin.bootstrap_servers == "b:9092"
    assert flow.source_client.properties["auto.offset.reset"] == "earliest"


def test_origins(file):
    flow = flow_of(load(file(BASE, {"A->B.topics": "x", "ssl.provider": "p"})), "A->B")
    assert flow.origin("topics") == "mm2.properties:5 A->B.topics"
    assert flow.origin("tasks.max") == "default (MM2: 1)"
    assert flow.origin("source.consumer.ssl.provider") == "mm2.properties:6 ssl.provider"
    assert flow.origin("target.admin.security.protocol") == "default"
    with pytest.raises(KeyError):
        flow.origin("no.such.key")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, ["A->B", "B->A"]),
        ({"emit.heartbeats.enabled": "false"}, ["A->B"]),
        ({"B->A.emit.heartbeats.enabled": "false"}, ["A->B"]),
        ({"emit.heartbeats.enabled": "false", "B->A.emit.heartbeats.enabled": "true"},
         ["A->B", "B->A"]),
        ({"emit.heartbeats.enabled": "false", "enabled": "true"}, ["A->B"]),
    ],
)  # fmt: skip
def test_s93_pairs_exist_by_enabled_or_heartbeats(file, values, expected):
    assert [str(f.flow) for f in load(file(BASE, values)).flows] == expected


def test_s93_by_default_every_pair_exists(file):
    values = {"clusters": "A,B,C", "C.bootstrap.servers": "c:9092"}
    assert [str(f.flow) for f in load(file(BASE, values)).flows] == [
        "A->B", "A->C", "B->A", "B->C", "C->A", "C->B",
    ]  # fmt: skip


def test_clusters_keeps_flows_into_the_targets_named(file):
    assert [str(f.flow) for f in load(file(BASE), clusters=["B"]).flows] == ["A->B"]
    assert only(errors(file(BASE), clusters=["C"])).code == "config.unknown-alias"
    problem = only(errors(file(BASE, {"emit.heartbeats.enabled": "false"}), clusters=["A"]))
    assert (problem.key, problem.message) == ("--clusters", "no flow leads into A")


@pytest.mark.parametrize("heartbeats", ["true", "false"])
def test_a_file_that_mirrors_nothing_is_an_error(file, heartbeats):
    values = {"A->B.enabled": "false", "emit.heartbeats.enabled": heartbeats}
    problem = only(errors(file(BASE, values)))
    assert problem.message == "no flow is enabled: nothing would be mirrored"
    assert problem.hint == "enable one with a line such as: A->B.enabled=true"


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("A->B.topcis", "did you mean A->B.topics?"),
        ("A->B.topisc", "did you mean A->B.topics?"),
        ("A->B.tpoics", "did you mean A->B.topics?"),
        ("A->B.Topics", "did you mean A->B.topics?"),
        ("A->B.topic", "did you mean A->B.topics?"),
        ("A->B.topics.regex", "did you mean A->B.topics?"),
        ("A->B.topics.whitelist", "did you mean A->B.topics?"),
        ("TOPICS", "did you mean topics?"),
        ("A->B.gruops", "did you mean A->B.groups?"),
        ("A->B.Groups", "did you mean A->B.groups?"),
        ("A->B.enabeld", "did you mean A->B.enabled?"),
        ("A->B.ENABLED", "did you mean A->B.enabled?"),
        ("A->B.enable", "did you mean A->B.enabled?"),
        ("A->B.disabled", "did you mean A->B.enabled?"),
        ("A->B.topics.exlcude", "did you mean A->B.topics.exclude?"),
        ("A->B.topics_exclude", "did you mean A->B.topics.exclude?"),
        ("A->B.exclude.topics", "did you mean A->B.topics.exclude?"),
        ("topic.exclude", "did you mean topics.exclude?"),
        ("groups.exclued", "did you mean groups.exclude?"),
        ("A->B.config.property.exclude", "did you mean A->B.config.properties.exclude?"),
        ("A->B.Topic.Filter.Class", "did you mean A->B.topic.filter.class?"),
        ("A->B.groups.filter.class", "did you mean A->B.group.filter.class?"),
        ("A.B.topics", "did you mean <source>-><target>.topics?"),
        ("A_B.topics", "a setting of a flow: write it as <source>-><target>.topics"),
        ("A.topics", "a setting of a flow: write it as <source>-><target>.topics"),
        ("B.groups.exclude", "a setting of a flow: write it as <source>-><target>.groups.exclude"),
    ],
)  # fmt: skip
def test_a_line_that_was_meant_to_select_and_does_not_is_an_error(file, key, meant):
    problem = only(errors(file(BASE, {key: "x"})))
    assert (problem.key, problem.hint) == (key, meant)


@pytest.mark.parametrize(
    "line",
    ["A -> C.enabled = true", "A ->C.enabled = true", "A-> C.enabled=true", "A->C .enabled: true",
     "A->C. enabled = true", "A=>C.enabled=true", "A => C.enabled = true"],
)  # fmt: skip
def test_a_flow_s_key_with_blanks_is_an_error(tmp_path, line):
    path = tmp_path / "mm2.properties"
    path.write_text(dump(BASE | {"clusters": "A,B,C", "C.bootstrap.servers": "c:1"}) + line)
    problem = only(errors(path))
    assert problem.code == "config.unknown-key"
    assert problem.hint == "write the key without blanks: A->C.enabled"


@pytest.mark.parametrize("key", ["audit.log", "monitoring.enabled", "A->B.group.id", "my.own"])
def test_what_selects_nothing_is_only_warned_of(file, key):
    assert [w.key for w in load(file(BASE, {key: "x"})).warnings] == [key]


def test_s13_an_alias_with_strange_characters(file):
    values = {
        "clusters": f"A,{HOSTILE}",
        "A.bootstrap.servers": "a:1",
        f"{HOSTILE}.bootstrap.servers": "b:1",
        f"A->{HOSTILE}.enabled": "true",
        f"A->{HOSTILE}.topics": "x",
        "offset-syncs.topic.location": "target",
    }
    config = load(file(values))
    assert config.warnings == ()
    assert config.flows[0].flow == Flow("A", HOSTILE)
    assert config.flows[0].topics == ("x",)
    assert config.flows[0].target_client.bootstrap_servers == "b:1"


@pytest.mark.parametrize(
    ("flow", "named_by"), [("A->B!", "mm2-offset-syncs"), ("B!->A", "internal topics")]
)
def test_s13_an_alias_that_must_name_a_topic(file, flow, named_by):
    values = {"clusters": "A,B!", "A.bootstrap.servers": "a:1", "B!.bootstrap.servers": "b:1"}
    problem = only(errors(file(values, {f"{flow}.enabled": "true"})))
    assert problem.code == "config.alias-not-topic-name"
    assert named_by in problem.message


def test_an_alias_with_dots(file):
    values = {
        "clusters": "a,a.b",
        "a.bootstrap.servers": "x:1",
        "a.b.bootstrap.servers": "y:1",
        "a->a.b.enabled": "true",
    }
    config = load(file(values))
    assert config.warnings == ()
    assert config.flows[0].target_client.bootstrap_servers == "y:1"
    assert "b.bootstrap.servers" not in config.flows[0].source_client.properties


@pytest.mark.parametrize(
    ("key", "value", "code", "says"),
    [
        ("A->B.enabled", "yes", "config.bad-value", "true or false"),
        ("tasks.max", "many", "config.bad-value", "whole number"),
        ("tasks.max", "-1", "config.bad-value", "at least 0"),
        ("tasks.max", "3000000000", "config.bad-value", "whole number"),
        ("replication.factor", "0", "config.bad-value", "except 0"),
        ("offset-syncs.topic.location", "both", "config.bad-value", "source, target"),
        ("heliograph.on.data.loss", "ignore", "config.bad-value", "fail, continue, restart-topic"),
        ("replication.policy.class", "com.acme.Policy", "config.bad-value", "one of"),
        ("replication.policy.separator", "", "config.bad-value", "topic name"),
        ("replication.policy.separator", "/", "config.bad-value", "topic name"),
        ("topics", "ok, [a", "config.bad-value", "'[a' does not compile: unterminated"),
        ("topics", "[[a]b]", "config.bad-value", "ambiguous"),
        ("topics.exclude", "*", "config.bad-value", "at position 0"),
        ("topics", "a" * 10_001, "config.bad-value", "longer than 10000"),
        ("A->B.topics.blacklist", "x", "config.removed-key", "removed this key"),
        ("use.incremental.alter.configs", "x", "config.removed-key", "removed this key"),
        ("topcs", "x", "config.unknown-key", "unknown key"),
        ("A->B.topic", "x", "config.unknown-key", "unknown key"),
        ("A.consumer.isolation.levl", "x", "config.unknown-key", "unknown key"),
        ("A.boostrap.servers", "a:1", "config.unknown-key", "unknown key"),
        ("A->C.enabled", "true", "config.unknown-alias", "'C' is not one of clusters"),
        ("X->Y.enabled", "true", "config.unknown-alias", "'X' and 'Y'"),
        ("A.security.protocol", "TLS", "config.bad-value", "one of PLAINTEXT"),
        ("A.sasl.mechanism", "GSSAPI", "config.bad-value", "one of PLAIN"),
        ("A.bootstrap.servers", "a", "config.bad-value", "host:port"),
        ("A.bootstrap.servers", "a:1,b:70000", "config.bad-value", "'b:70000'"),
        ("A.bootstrap.servers", "", "config.bootstrap-missing", "has no bootstrap.servers"),
        ("A.sasl.jaas.config", "com.sun.JndiLoginModule required;", "config.jaas", "JndiLogin"),
        ("A.consumer.auto.offset.reset", "none", "config.bad-value", "earliest, latest"),
        ("A.ssl.key.password", "${file:/x:y}", "config.provider-unknown", "'file' is not declared"),
        ("A->B.transforms", "mask", "config.bad-value", "expected nothing"),
        ("topic.filter.class", "com.acme.F", "config.bad-value", "DefaultTopicFilter"),
        ("A->B.source.cluster.alias", "Z", "config.bad-value", "expected 'A'"),
        ("clusters", "", "config.clusters-missing", "no cluster"),
    ],
)
def test_each_error(file, key, value, code, says):
    path = file(BASE, {key: value})
    problem = only(errors(path))
    assert problem.code == code
    assert says in str(problem)
    assert problem.key == key
    line = list({**BASE, key: value}).index(key) + 1
    assert problem.where == f"{path}:{line}"


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("topcs", "did you mean topics?"),
        ("A->B.topic", "did you mean A->B.topics?"),
        ("A.consumer.isolation.levl", "did you mean A.consumer.isolation.level?"),
        ("A->B.topics.blacklist", "write A->B.topics.exclude instead"),
    ],
)
def test_hints(file, key, hint):
    assert only(errors(file(BASE, {key: "x"}))).hint == hint


@pytest.mark.parametrize(
    ("key", "code"),
    [
        ("my.own.thing", "config.unknown-key"),
        ("A->B.my.own.thing", "config.unknown-key"),
        ("D.bootstrap.servers", "config.unknown-alias"),
        ("consumer.isolation.level", "config.no-effect"),
        ("use.defaults.from", "config.no-effect"),
        ("A->B.security.protocol", "config.no-effect"),
        ("A->A.enabled", "config.no-effect"),
        ("A->B.metric.names.formats", "config.later-key"),
    ],
)
def test_each_warning(file, key, code):
    value = "true" if key.endswith("enabled") else "hunter2"
    warning = only(load(file(BASE, {key: value})).warnings)
    assert (warning.code, warning.key) == (code, key)
    assert "hunter2" not in str(warning)


def test_worker_and_client_keys_of_mm2_give_no_warning(file):
    values = {
        "offset.storage.replication.factor": "1",
        "tasks.max": "4",
        "B.offset.flush.interval.ms": "1000",
        "B.exactly.once.source.support": "enabled",
        "dedicated.mode.enable.internal.rest": "true",
        "listeners": "http://localhost:8083",
        "A.consumer.fetch.max.bytes": "1",
        "B.producer.linger.ms": "5",
        "A->B.producer.override.batch.size": "5",
        "sasl.login.refresh.window.factor": "0.8",
        "sync.group.offsets.enabled": "false",
    }
    assert load(file(BASE, values)).warnings == ()


def test_duplicates_are_a_warning(tmp_path):
    path = tmp_path / "mm2.properties"
    path.write_text(dump(BASE) + "topics=a\ntopics=b\n")
    config = load(path)
    assert only(config.warnings).code == "config.duplicate-key"
    assert config.flows[0].topics == ("b",)


def test_all_errors_come_together(file):
    problems = errors(file(BASE, {"tasks.max": "x", "topics": "[", "A->Q.topics": "x"}))
    assert [p.where.rpartition(":")[2] for p in problems] == ["5", "6", "7"]


def test_an_error_in_a_secret_does_not_show_it(file):
    values = {"A.sasl.jaas.config": f'{SCRAM} required username="hunter1" password="hunter2"'}
    with pytest.raises(ConfigErrors) as caught:
        load(file(BASE, values))
    assert "hunter" not in str(caught.value)


@pytest.mark.parametrize("protocol", ["sasl_ssl", "SASL_PLAINTEXT"])
def test_s96_security_protocol_ignores_case(file, protocol):
    values = {
        "A.security.protocol": protocol,
        "A.sasl.mechanism": "SCRAM-SHA-512",
        "A.sasl.jaas.config": f'{SCRAM} required username="a" password="b";',
    }
    flow = flow_of(load(file(BASE, values)), "A->B")
    assert flow.source_client.properties["security.protocol"] == protocol.upper()
    assert "security.protocol" not in flow.target_client.properties


def test_s96_an_invalid_security_protocol_is_named(file):
    problem = only(errors(file(BASE, {"A.security.protocol": "TLS"})))
    assert problem.key == "A.security.protocol"
    assert "'TLS': expected one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL" in problem.message


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, {"config.missing"}),
        ({"A.sasl.mechanism": "PLAIN",
          "A.sasl.jaas.config": f"{SCRAM} required username=a password=b;"},
         {"config.jaas"}),
        ({"A.sasl.mechanism": "OAUTHBEARER",
          "A.sasl.jaas.config": f"{OAUTH} required;",
          "A.sasl.oauthbearer.token.endpoint.url": "file:///etc/passwd"}, {"config.bad-value"}),
    ],
)  # fmt: skip
def test_login_must_be_complete(file, values, expected):
    problems = errors(file(BASE, {"A.security.protocol": "SASL_SSL"}, values))
    assert {p.code for p in problems} == expected


def test_s95_templates_stay_in_client_settings(file, tmp_path):
    (tmp_path / "k.properties").write_text("pw=hunter2\nboot=h:1\n")
    template = f"${{file:{tmp_path}/k.properties:pw}}"
    provider = {
        "config.providers": "file",
        "config.providers.file.class": f"{PROVIDERS}.FileConfigProvider",
        "config.providers.file.param.allowed.paths": str(tmp_path),
    }
    boot = f"${{file:{tmp_path}/k.properties:boot}}"
    values = {"A.ssl.key.password": template, "A.bootstrap.servers": boot}
    flow = flow_of(load(file(BASE, provider, values)), "A->B")
    assert flow.source_client.properties["ssl.key.password"] == template
    assert flow.source_client.bootstrap_servers == boot
    assert flow.source_client.providers["file"]["allowed.paths"] == str(tmp_path)

    missing = {"A.ssl.key.password": template.replace(":pw", ":nope")}
    problem = only(errors(file(BASE, provider, missing)))
    assert problem.code == "config.provider-key-missing"
    assert "hunter2" not in str(problem)

    del provider["config.providers.file.param.allowed.paths"]
    problem = errors(file(BASE, provider))[0]
    assert "config.providers.file.param.allowed.paths=" in problem.hint


def test_missing_clusters(tmp_path):
    path = tmp_path / "mm2.properties"
    path.write_text("A->B.enabled=true\n")
    problem = only(errors(path))
    assert (problem.code, problem.hint) == (
        "config.clusters-missing",
        "add a line such as: clusters=A,B",
    )


def test_the_file_itself(tmp_path):
    with pytest.raises(ConfigError, match=r"config\.file-missing"):
        load(tmp_path / "nope")
    with pytest.raises(ConfigError, match=r"config\.file-unreadable"):
        load(tmp_path)
    bad = tmp_path / "bad"
    bad.write_text("a=\\u1")
    with pytest.raises(ConfigError, match="line 1"):
        load(bad)


def test_java_encodings(tmp_path):
    path = tmp_path / "mm2.properties"
    for encoding in ("utf-8", "utf-8-sig", "iso-8859-1"):
        path.write_bytes((dump(BASE) + "A->B.topics=é").encode(encoding))
        assert load(path).flows[0].topics == ("é",)


def test_the_table_is_consistent():
    names = [(key.scope, key.name, key.roles) for key in KEYS]
    assert len(names) == len(set(names))
    for key in KEYS:
        assert key.doc.endswith(".")
        if key.default is not None:
            assert key.problem(key.default) is None, key
        if key.status is Status.REMOVED and key.replacement:
            assert any(other.name == key.replacement for other in KEYS)


def test_long_and_double_values():
    assert Key("x", Type.LONG, "", Scope.FLOW).problem(str(2**63 - 1)) is None
    assert Key("x", Type.LONG, "", Scope.FLOW).problem(str(2**63)) is not None
    assert Key("x", Type.DOUBLE, "", Scope.FLOW).problem("0.5") is None
    assert Key("x", Type.DOUBLE, "", Scope.FLOW).problem("half") is not None


@pytest.mark.parametrize(
    "key",
    ["A.bootstrap.servers", "topics", "tasks.max", "A.sasl.jaas.config", "A.security.protocol",
     "replication.policy.separator", "A->B.enabled"],
)  # fmt: skip
def test_what_a_provider_gave_is_never_shown(file, key, monkeypatch):
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter2[!")
    provider = {
        "config.providers": "env",
        "config.providers.env.class": f"{PROVIDERS}.EnvVarConfigProvider",
        "config.providers.env.param.allowlist.pattern": "KAFKA_.*",
    }
    with pytest.raises(ConfigErrors) as caught:
        load(file(BASE, provider, {key: "${env:KAFKA_PASSWORD}"}))
    assert "hunter2" not in str(caught.value)
    assert key in str(caught.value)


@pytest.mark.parametrize(
    "keys",
    [
        {"A->B.emit.offset-syncs.enabled": "false"},
        {"A->B.emit.checkpoints.enabled": "false", "A->B.sync.group.offsets.enabled": "true"},
        {"A->B.emit.offset-syncs.enabled": "false", "A->B.sync.group.offsets.enabled": "true"},
    ],
)
def test_s79_checkpoints_and_group_sync_need_no_offset_syncs(file, keys):
    """MM2 refuses these: its checkpoints live on offset syncs. Ours come from the ledger."""
    config = next(f for f in load(file(BASE, keys)).flows if f.enabled)
    assert config.emit_checkpoints_enabled == ("A->B.emit.checkpoints.enabled" not in keys)
    assert config.sync_group_offsets_enabled == ("A->B.sync.group.offsets.enabled" in keys)


def test_a_buffer_that_is_smaller_than_its_fetches_gives_a_warning(tmp_path):
    path = tmp_path / "mm2.properties"
    lines = [
        "clusters = A, B",
        "A.bootstrap.servers = a:1",
        "B.bootstrap.servers = b:1",
        "A->B.enabled = true",
        "A->B.heliograph.buffer.max.bytes = 1000000",
    ]
    path.write_text("\n".join(lines))
    [warning] = [w for w in load(path).warnings if w.code == "config.small-buffer"]
    assert warning.key == "A->B.heliograph.buffer.max.bytes"
    assert "heliograph.fetch.max.bytes=4194304" in warning.message
    path.write_text("\n".join([*lines[:-1], "A->B.heliograph.buffer.max.bytes = 100000000"]))
    config = load(path)
    assert not config.warnings
    [flow] = [f for f in config.flows if f.enabled]
    assert flow.buffer_max_bytes == 100_000_000
