"""Certificates that are rotated, expired or for another host; and never a word in plain text."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import suppress

import pytest
from certificates import STORE_PASSWORD, Authority
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from holding import holding
from mirroring import Mirroring, wait_for
from sources import numbered

from heliograph.model import ClientSettings
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import AuthenticationFailed, WireError

LISTENER = "listener.name.client.ssl."
#: Each of a broker's three network threads takes a new certificate in its own time; connections go
#: to them in turn.
_CONNECTIONS = 12


class Guarded:
    """Cluster A behind TLS in both directions; B is the shared lab's."""

    def __init__(self, folder, make_lab, lab):
        self.folder = folder
        self.authority = Authority("first")
        self.authority.broker_store(folder / "broker.p12")
        (folder / "broker-trust.pem").write_text(self.authority.pem)
        self.reset()
        settings = {
            f"{LISTENER}client.auth": "required",
            f"{LISTENER}keystore.location": str(folder / "broker.p12"),
            f"{LISTENER}keystore.password": STORE_PASSWORD,
            f"{LISTENER}key.password": STORE_PASSWORD,
            f"{LISTENER}truststore.type": "PEM",
            f"{LISTENER}truststore.location": str(folder / "broker-trust.pem"),
            "ssl.allow.dn.changes": "true",
            "ssl.allow.san.changes": "true",
        }
        self.cluster = make_lab(clusters=("A",), security="SSL", settings={"A": settings})["A"]
        self._target = lab["B"]
        self._stores = 0

    def reset(self):
        """The client trusts the first authority, and has a certificate of it."""
        (self.folder / "trust.pem").write_text(self.authority.pem)
        self.authority.client_pem(self.folder / "client.pem")

    def __getitem__(self, alias):
        return self if alias == "A" else self._target

    @property
    def bootstrap(self):
        return self.cluster.back_door

    def client_properties(self):
        return {
            "bootstrap.servers": self.cluster.bootstrap,
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.folder / "trust.pem"),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.folder / "client.pem"),
        }

    def client(self, **properties):
        settings = ClientSettings("A", self.client_properties() | properties)
        return ClusterClient(settings, "test")

    def present(self, authority, **changes):
        """The broker has another certificate from now on; clients need one of the same issuer."""
        self._stores += 1
        store = self.folder / f"broker-{self._stores}.p12"
        trust = self.folder / f"broker-trust-{self._stores}.pem"
        authority.broker_store(store, **changes)
        trust.write_text(authority.pem)
        wanted = {
            f"{LISTENER}keystore.location": str(store),
            f"{LISTENER}keystore.password": STORE_PASSWORD,
            f"{LISTENER}key.password": STORE_PASSWORD,
            f"{LISTENER}truststore.location": str(trust),
        }
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in wanted.items()
        ]
        brokers = AdminClient({"bootstrap.servers": self.cluster.back_door})
        resource = ConfigResource("broker", "1", incremental_configs=entries)
        before = self._presented()
        for changed in brokers.incremental_alter_configs([resource]).values():
            changed.result(60)

        def presents_it():
            with suppress(OSError):  # it is not done with its change
                new = {self._presented() for _ in range(_CONNECTIONS)}
                return len(new) == 1 and before not in new

        wait_for(presents_it)

    def _presented(self):
        """The certificate that the broker shows to the next connection."""
        host, port = self.cluster.bootstrap.split(":")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with (
            socket.create_connection((host, int(port)), 60) as raw,
            context.wrap_socket(raw) as secured,
        ):
            return secured.getpeercert(binary_form=True)


@pytest.fixture(scope="module")
def guarded_by(module_lab_factory, lab, tmp_path_factory):
    return Guarded(tmp_path_factory.mktemp("certificates"), module_lab_factory, lab)


@pytest.fixture
def guarded(guarded_by):
    yield guarded_by
    guarded_by.reset()
    guarded_by.present(guarded_by.authority)
    with guarded_by.client() as client:
        wait_for(lambda: let_in(client))


def let_in(client):
    client.close()
    try:
        return bool(client.cluster_id())
    except WireError:
        return False


def refusal(client, part):
    """What the client says when it comes anew, as soon as it says ``part``."""
    said = []

    def refused():
        client.close()
        try:
            client.cluster_id()
        except AuthenticationFailed as error:
            said.append(str(error))
            return part in said[-1]
        except WireError:
            pass  # the broker is not done with its change
        return False

    wait_for(refused)
    return said[-1]


@pytest.mark.full
def test_f29_certificates_and_their_issuer_are_changed_while_the_mirror_runs(guarded, topic_name):
    flow = Mirroring.of(guarded)
    flow.create(topic_name)
    flow.write(topic_name, numbered(100))
    with holding(flow, topic_name) as held:
        wait_for(lambda: copied(flow, topic_name) == 100)
        second = Authority("second")
        guarded.present(second)
        guarded.cluster.broker(1).kill()
        guarded.cluster.broker(1).start()
        guarded.cluster.wait_ready()
        flow.write(topic_name, numbered(50, "later"))
        wait_for(lambda: "not accepted" in held.why)
        assert f"the certificate of {guarded.cluster.bootstrap} is not accepted" in held.why
        assert "add it to the truststore; what ssl.truststore.location names is read again" in (
            held.why
        )
        assert copied(flow, topic_name) == 100
        # It is trusted again, but does not trust us.
        (guarded.folder / "trust.pem").write_text(second.pem)
        wait_for(lambda: "ssl.keystore" in held.why)
        assert copied(flow, topic_name) == 100
        second.client_pem(guarded.folder / "client.pem")
        wait_for(lambda: copied(flow, topic_name) == 150)
        assert held.why == ""
        # Our own connections ended with the broker; the next ones come with the new certificate.
        flow.source.close()
        held.in_step()
    flow.close()


def copied(flow, topic):
    return sum(flow.offsets(flow.target, f"A.{topic}", admin.LATEST).values())


def test_f29_an_expired_certificate(guarded):
    guarded.present(guarded.authority, days=-1)
    with guarded.client() as client:
        text = refusal(client, "expired")
    assert f"the certificate of {guarded.cluster.bootstrap} is not accepted" in text
    assert "the broker needs a new one, unless the clock of this machine is wrong" in text


def test_f29_a_certificate_for_another_host(guarded):
    guarded.present(guarded.authority, host="kafka.example")
    with guarded.client() as client:
        text = refusal(client, "not valid for '127.0.0.1'")
    assert "address the broker by a name in its certificate" in text
    # Only if somebody says so, as with Kafka's own clients:
    with guarded.client(**{"ssl.endpoint.identification.algorithm": ""}) as client:
        assert client.cluster_id()


def test_f29_with_a_truststore_the_systems_authorities_do_not_count(guarded, monkeypatch):
    system = Authority("one of the system's")
    (guarded.folder / "system.pem").write_text(system.pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(guarded.folder / "system.pem"))
    guarded.present(system)
    system.client_pem(guarded.folder / "client.pem")
    with guarded.client() as client:
        refusal(client, "self-signed certificate in certificate chain")
    # Without one they do.
    with guarded.client(**{"ssl.truststore.location": ""}) as client:
        assert client.cluster_id()


@pytest.mark.parametrize(
    ("keys", "version", "suite"),
    [
        ({"ssl.enabled.protocols": "TLSv1.2"}, "TLSv1.2", None),
        ({"ssl.enabled.protocols": "TLSv1.3, TLSv1.2, TLSv1.1"}, "TLSv1.3", None),
        ({"ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"}, "TLSv1.2",
         "ECDHE-ECDSA-AES128-GCM-SHA256"),
        ({"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384,TLS_AES_128_GCM_SHA256,"
          "TLS_CHACHA20_POLY1305_SHA256"}, "TLSv1.3", "TLS_AES_256_GCM_SHA384"),
    ],
)  # fmt: skip
def test_protocols_and_suites_are_honoured(guarded_by, keys, version, suite):
    with guarded_by.client(**keys) as client:
        client.metadata(())
        spoken = client.connection(-1)._socket
        assert spoken.version() == version
        assert suite is None or spoken.cipher()[0] == suite


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"ssl.enabled.protocols": "TLSv1.1,SSLv3"}, "names neither TLSv1.2 nor TLSv1.3"),
        ({"ssl.cipher.suites": "TLS_NULL_WITH_NOTHING"}, "does not know TLS_NULL_WITH_NOTHING"),
        ({"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"}, "add TLS_AES_128_GCM_SHA256, TLS_CHACHA"),
    ],
)
def test_protocols_and_suites_that_cannot_be_honoured_are_refused(guarded_by, keys, text):
    with guarded_by.client(**keys) as client:
        refusal(client, text)


def test_a_private_key_is_written_to_no_disk(guarded_by, monkeypatch):
    store = guarded_by.folder / "client.p12"
    guarded_by.authority.client_store(store)
    monkeypatch.setattr("tempfile.mkdtemp", lambda *_, **__: pytest.fail("a temporary file"))
    keys = {
        "ssl.keystore.type": "PKCS12", "ssl.keystore.location": str(store),
        "ssl.keystore.password": STORE_PASSWORD,
    }  # fmt: skip
    with guarded_by.client(**keys) as client:
        assert client.cluster_id()


def test_f29_a_truststore_that_is_half_written_does_no_harm_while_the_old_one_is_good(guarded):
    with guarded.client() as client:
        assert client.cluster_id()
        (guarded.folder / "trust.pem").write_text(guarded.authority.pem[:100])
        client.close()
        assert client.cluster_id(), "what was read before"
        guarded.present(Authority("third"))
        text = refusal(client, "not accepted")
    assert "the newest credentials cannot be used: the ssl.* settings cannot be used" in text


def test_f29_nothing_is_ever_said_in_plain_text(guarded):
    heard = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            while True:
                try:
                    link, _ = listener.accept()
                except OSError:
                    return
                with link:
                    heard.append(link.recv(4096))
                    link.sendall(b"\0\0\0\4\0\0\0\1")
                    link.settimeout(60)
                    with suppress(ConnectionResetError):
                        while more := link.recv(4096):
                            heard[-1] += more

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with guarded.client(**{"bootstrap.servers": address}) as client:
            for _ in range(3):
                with pytest.raises(AuthenticationFailed, match="no TLS handshake"):
                    client.cluster_id()
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(60)
    assert len(heard) == 3
    for said in heard:
        records = tls_records(said)
        assert records[0] == HANDSHAKE
        assert set(records) <= {HANDSHAKE, ALERT}


HANDSHAKE, ALERT = 22, 21


def tls_records(said):
    """The types of the TLS records that make up ``said``, which holds nothing else."""
    types = []
    while said:
        types.append(said[0])
        assert said[1] == 3, "the version"
        said = said[5 + int.from_bytes(said[3:5]) :]
    return types
