"""What works and is dangerous: named once, or bounded."""

from __future__ import annotations

import time

import pytest

from heliograph.config import load, redact
from heliograph.config.key import compile_pattern
from heliograph.config.providers import has_template, resolve
from heliograph.errors import ConfigError
from heliograph.jvm.archive import load_flags
from heliograph.policy.filters import PatternFilter

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required username=u password=p;"
OAUTH = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required clientId=c"
    " clientSecret=s;"
)
FLOW = "clusters=A,B\nA->B.enabled=true\nA.bootstrap.servers=a:1\nB.bootstrap.servers=b:1\n"


def warnings(tmp_path, mode, *lines):
    path = tmp_path / "mm2.properties"
    path.write_text(FLOW + "\n".join(lines))
    path.chmod(mode)
    return [w.message for w in load(path).warnings if w.code == "config.weak"]


def test_each_weak_setting_has_one_warning(tmp_path):
    found = warnings(
        tmp_path, 0o600,
        "A.security.protocol=SASL_PLAINTEXT", "A.sasl.mechanism=PLAIN",
        f"A.sasl.jaas.config={PLAIN}",
        "B.security.protocol=SASL_SSL", "B.sasl.mechanism=OAUTHBEARER",
        f"B.sasl.jaas.config={OAUTH}", "B.ssl.endpoint.identification.algorithm=",
        "B.sasl.oauthbearer.token.endpoint.url=http://idp/token",
    )  # fmt: skip
    assert sorted(found) == [
        "PLAIN without TLS shows the password of cluster A to the network",
        "host names of cluster B are not checked: anybody with a certificate of the same authority"
        " can take a broker's place",
        "the client's secret of cluster B and its tokens travel without TLS",
    ]


@pytest.mark.parametrize(("mode", "count"), [(0o600, 0), (0o640, 1), (0o644, 1)])
def test_secrets_in_a_file_that_others_can_read(tmp_path, mode, count):
    assert len(warnings(tmp_path, mode, "A.ssl.key.password=x", "B.ssl.key.password=y")) == count


def test_strong_settings_have_none(tmp_path):
    secure = [
        "security.protocol=SASL_SSL", "sasl.mechanism=SCRAM-SHA-512",
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required"
        " username=u password=p;",
    ]  # fmt: skip
    assert warnings(tmp_path, 0o600, *secure) == []


def test_a_pattern_that_takes_forever_is_given_up_and_named():
    started = time.monotonic()
    with pytest.raises(ConfigError, match="takes more than 1 s for the name"):
        PatternFilter([r"(a|aa)+\\1b"])("a" * 249)
    assert time.monotonic() - started < 60
    assert compile_pattern("orders.*").fullmatch("orders-7")


@pytest.mark.parametrize("value", ["${" + ":" * 20_000, "${" * 20_000, "${a:b" * 10_000])
def test_templates_are_read_in_one_pass(value):
    started = time.monotonic()
    assert not has_template(value)
    assert resolve(value, {}) == value
    assert has_template(value + ":x}")
    assert time.monotonic() - started < 20


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("sasl.oauthbearer.token.endpoint.url", "https://idp/t?key=hunter2&a=b",
         "https://idp/t?[hidden]"),
        ("sasl.oauthbearer.token.endpoint.url", "https://u:hunter2@idp/t", "https://[hidden]@idp/t"),
        ("ssl.truststore.certificates", "-----BEGIN PRIVATE KEY----- hunter2", "[hidden]"),
        ("client.id", 'username="u" password="hunter2"', "[hidden]"),
        ("bootstrap.servers", "a:1,b:2", "a:1,b:2"),
    ],
)  # fmt: skip
def test_secrets_in_the_wrong_place_are_hidden(key, value, text):
    assert redact(key, value) == text


def test_a_class_archive_that_others_may_write_is_not_loaded(tmp_path):
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    archive = folder / "x.jsa"
    archive.touch(mode=0o600)
    assert load_flags(archive)
    archive.chmod(0o620)
    assert load_flags(archive) == []
    archive.chmod(0o600)
    folder.chmod(0o777)
    assert load_flags(archive) == []
