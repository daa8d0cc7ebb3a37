"""Secure and insecure clusters in every combination, and what is said to those kept out."""

from __future__ import annotations

import subprocess

import pytest
from mirroring import Mirroring, settings

from heliograph.errors import ConfigError
from heliograph.jvm.java import find_java
from heliograph.lab.security import PASSWORD
from heliograph.model import ClientSettings
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import AuthenticationFailed, NotKafka, WireError

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]


@pytest.fixture(scope="module")
def secure(module_lab_factory):
    """SSL on A; SASL_SSL on B."""
    return module_lab_factory(security={"A": "SSL", "B": "SASL_SSL"})


@pytest.fixture(scope="module")
def other(module_lab_factory):
    """SASL without TLS on A; SASL_SSL, with another certificate, on B."""
    return module_lab_factory(security={"A": "SASL_PLAINTEXT", "B": "SASL_SSL"})


def reach(properties):
    with ClusterClient(ClientSettings("east", properties), "test", request_timeout=10) as client:
        return client.cluster_id()


def refusal(properties, kind=WireError):
    with pytest.raises(kind) as info:
        reach(properties)
    text = str(info.value)
    assert PASSWORD not in text
    assert "hunter2" not in text
    return text


def test_tls_with_a_pem_truststore(secure):
    assert reach(secure["A"].client_properties())


def test_tls_with_the_certificate_itself(secure):
    properties = secure["A"].client_properties()
    del properties["ssl.truststore.location"]
    properties["ssl.truststore.certificates"] = secure["A"].security.certificate.read_text()
    assert reach(properties)


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_tls_with_java_truststores(secure, tmp_path, monkeypatch, kind):
    bin_folder = find_java().resolve().parent
    monkeypatch.setenv("PATH", str(bin_folder), prepend=":")
    store = tmp_path / ("trust.jks" if kind == "JKS" else "trust.p12")
    subprocess.run(
        [
            str(bin_folder / "keytool"), "-importcert", "-noprompt", "-alias", "ca",
            "-file", str(secure["A"].security.certificate), "-keystore", str(store),
            "-storetype", kind, "-storepass", "hunter2",
        ],
        check=True, capture_output=True,
    )  # fmt: skip
    properties = secure["A"].client_properties() | {
        "ssl.truststore.type": kind,
        "ssl.truststore.location": str(store),
        "ssl.truststore.password": "hunter2",
    }
    assert reach(properties)
    del properties["ssl.truststore.type"]
    assert reach(properties), "by its suffix"
    text = refusal(properties | {"ssl.truststore.password": "hunter2-wrong"}, AuthenticationFailed)
    assert "password" in text


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_sasl_mechanisms(secure, mechanism):
    assert reach(secure["B"].client_properties(mechanism))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_sasl_without_tls(other, mechanism):
    assert reach(other["A"].client_properties(mechanism))


@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
def test_a_wrong_password(secure, mechanism):
    properties = secure["B"].client_properties(mechanism)
    jaas = properties["sasl.jaas.config"].replace(PASSWORD, "hunter2")
    text = refusal(properties | {"sasl.jaas.config": jaas}, AuthenticationFailed)
    assert f"refused SASL {mechanism}" in text
    assert "127.0.0.1:" in text


def test_a_mechanism_that_the_broker_does_not_offer(module_lab_factory, other):
    properties = other["A"].client_properties("PLAIN") | {"sasl.mechanism": "SCRAM-SHA-1024"}
    text = refusal(properties)
    assert "SCRAM-SHA-1024" in text


def test_missing_credentials_are_named(secure):
    properties = secure["B"].client_properties("PLAIN")
    properties["sasl.jaas.config"] = (
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice";'
    )
    text = refusal(properties, ConfigError)
    assert "sasl.jaas.config: option password is missing" in text


def test_f29_an_untrusted_certificate(secure, other):
    properties = secure["B"].client_properties()
    properties["ssl.truststore.location"] = str(other["B"].security.certificate)
    text = refusal(properties, AuthenticationFailed)
    assert "certificate of 127.0.0.1:" in text
    assert "not accepted" in text


def test_f29_a_host_name_that_is_not_in_the_certificate(secure, monkeypatch):
    import socket

    real = socket.getaddrinfo

    def lookup(host, *args, **kwargs):
        return real("127.0.0.1" if host == "kafka.example" else host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    port = secure["A"].bootstrap.rsplit(":", 1)[1]
    properties = secure["A"].client_properties() | {"bootstrap.servers": f"kafka.example:{port}"}
    text = refusal(properties, AuthenticationFailed)
    assert "kafka.example" in text
    assert "not accepted" in text
    # Kafka's own way to switch the check off:
    assert reach(properties | {"ssl.endpoint.identification.algorithm": ""})


def test_a_truststore_that_is_not_there(secure, tmp_path):
    properties = secure["A"].client_properties()
    properties["ssl.truststore.location"] = str(tmp_path / "none.pem")
    text = refusal(properties, AuthenticationFailed)
    assert "ssl." in text
    assert "none.pem" in text


def test_a_tls_listener_addressed_in_plain_text(secure):
    text = refusal({"bootstrap.servers": secure["A"].bootstrap}, NotKafka)
    assert "TLS" in text or "does not speak PLAINTEXT" in text


def test_a_plain_listener_addressed_with_tls(lab, secure):
    properties = secure["A"].client_properties() | {"bootstrap.servers": lab["A"].bootstrap}
    text = refusal(properties, AuthenticationFailed)
    assert "no TLS handshake" in text
    assert "PLAINTEXT" in text


def test_a_sasl_listener_addressed_without_credentials(other):
    text = refusal({"bootstrap.servers": other["A"].bootstrap})
    assert "does this listener want SASL?" in text


def test_a_plain_listener_addressed_with_sasl(lab, other):
    properties = other["A"].client_properties("PLAIN") | {"bootstrap.servers": lab["A"].bootstrap}
    text = refusal(properties)
    assert "SASL" in text


@pytest.fixture
def four(lab, secure):
    return {"insecure": lab, "secure": secure}


@pytest.mark.parametrize("here", ["insecure", "secure"])
@pytest.mark.parametrize("there", ["insecure", "secure"])
def test_every_combination_of_secure_and_insecure(four, topic_name, here, there):
    class Both:
        """Cluster A of one lab and B of another."""

        def __getitem__(self, alias):
            return four[here if alias == "A" else there][alias]

    mirroring = Mirroring.of(Both())
    mirroring.create(topic_name, partitions=2)
    source = settings(four[here], "A").properties
    producer = mirroring.producer(**librdkafka(source))
    for n in range(200):
        producer.produce(topic_name, b"%d" % n, b"k", n % 2, timestamp=1000 + n)
    assert producer.flush(60) == 0
    mirroring.copy(topic_name)
    proof = mirroring.proof(topic_name)
    assert (proof.identical, proof.compared) == (True, 200)
    mirroring.close()


def test_sasl_ssl_to_sasl_ssl(secure, other, topic_name):
    class Both:
        def __getitem__(self, alias):
            return (other if alias == "A" else secure)["B"]

    mirroring = Mirroring.of(Both())
    mirroring.create(topic_name)
    producer = mirroring.producer(**librdkafka(other["B"].client_properties("SCRAM-SHA-256")))
    for n in range(2000):
        producer.produce(topic_name, b"x" * 500, b"%d" % n, 0, timestamp=1000 + n)
    assert producer.flush(60) == 0
    mirroring.copy(topic_name)
    proof = mirroring.proof(topic_name)
    assert (proof.identical, proof.compared) == (True, 2000)
    mirroring.close()


def librdkafka(properties):
    """Kafka client keys in librdkafka's words."""
    config = {"security.protocol": properties["security.protocol"]}
    if "ssl.truststore.location" in properties:
        config["ssl.ca.location"] = properties["ssl.truststore.location"]
    if "sasl.mechanism" in properties:
        config |= {
            "sasl.mechanism": properties["sasl.mechanism"],
            "sasl.username": "alice",
            "sasl.password": PASSWORD,
        }
    return config
