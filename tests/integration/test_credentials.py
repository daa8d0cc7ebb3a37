"""Credentials that expire or are changed while a lease is held: it goes on, or says why not."""

from __future__ import annotations

import base64
import json
import threading
import time
from contextlib import ExitStack, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from holding import holding
from mirroring import Mirroring, wait_for
from sources import numbered

from heliograph.lab.security import PASSWORD, USER
from heliograph.model import ClientSettings
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.connection import Connection
from heliograph.wire.errors import AuthenticationFailed, ConnectionFailed
from heliograph.wire.security import Security

#: Whoever has not logged in again by then is cut off at the next request.
LOGIN_SECONDS = 20.0
#: Renewed as early as this: the rest is what a loaded machine may take for it.
RENEWED_AFTER = 0.25
#: With a mechanism that nothing but the tests of expired logins uses.
SHORT_LOGIN_SECONDS, SHORT = 6.0, "SCRAM-SHA-256"
FILE_PROVIDER = "org.apache.kafka.common.config.provider.FileConfigProvider"
SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="{}" password='
OAUTH = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
    ' clientId="mirror" clientSecret="hunter2";'
)


@pytest.fixture(scope="module")
def forgetful(module_lab_factory):
    """Clusters where a login counts for seconds."""
    key = "connections.max.reauth.ms"
    short = {
        key: str(int(LOGIN_SECONDS * 1000)),
        f"listener.name.client.{SHORT.lower()}.{key}": str(int(SHORT_LOGIN_SECONDS * 1000)),
    }
    return module_lab_factory(security="SASL_PLAINTEXT", settings={"*": short})


@pytest.fixture(autouse=True)
def renewed_early(monkeypatch):
    monkeypatch.setattr("heliograph.wire.connection.RENEWED_AFTER", RENEWED_AFTER)


@pytest.fixture
def logins(monkeypatch):
    """The mechanism of every login, the first ones and those that renew it."""
    seen = []
    real = Security.sasl

    def count(self, host):
        seen.append(self.mechanism)
        return real(self, host)

    monkeypatch.setattr(Security, "sasl", count)
    return seen


class Feed(threading.Thread):
    """Writes a little all the time."""

    def __init__(self, flow, topic):
        super().__init__(daemon=True)
        self._flow, self._topic = flow, topic
        self._stopping = threading.Event()
        self.written = 0

    def run(self):
        while not self._stopping.wait(0.05):
            self._flow.write(self._topic, numbered(20, f"v{self.written}"))
            self.written += 20

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._stopping.set()
        self.join()


class BackDoor:
    """A lab as the tests' own clients see it: through the listener where nobody logs in."""

    def __init__(self, cluster):
        self.bootstrap = cluster.back_door

    def client_properties(self):
        return {"bootstrap.servers": self.bootstrap}


def flow_of(lab, topic, **settings):
    """A flow whose leases come with the given settings, by side."""
    flow = Mirroring.of({alias: BackDoor(lab[alias]) for alias in "AB"})
    flow.create(topic)
    default = {
        side: ClientSettings(alias, lab[alias].client_properties())
        for side, alias in {"source": "A", "target": "B"}.items()
    }
    return flow.but(**(default | settings))


def copied(flow, topic):
    from heliograph.wire import admin

    return sum(flow.offsets(flow.target, f"A.{topic}", admin.LATEST).values())


def test_f28_logins_are_renewed_before_they_expire(forgetful, topic_name, logins):
    """With each mechanism, all at the same time."""
    mechanisms = ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"]
    flows = {}
    with ExitStack() as stack:
        for mechanism in mechanisms:
            topic = f"{topic_name}-{mechanism}"
            source = ClientSettings("A", forgetful["A"].client_properties(mechanism))
            target = ClientSettings("B", forgetful["B"].client_properties(mechanism))
            flow = flow_of(forgetful, topic, source=source, target=target)
            held = stack.enter_context(holding(flow, topic))
            stack.enter_context(Feed(flow, topic))
            flows[topic] = flow, held
        for topic, (flow, _) in flows.items():
            wait_for(lambda f=flow, t=topic: copied(f, t) > 0)
        opened = len(logins)

        def renewed():
            assert {held.why for _, held in flows.values()} == {""}
            # Two bulk connections at least, each twice.
            return all(logins[opened:].count(mechanism) >= 4 for mechanism in mechanisms)

        wait_for(renewed)
        reached = {topic: copied(flow, topic) for topic, (flow, _) in flows.items()}
        for topic, (flow, _) in flows.items():
            wait_for(lambda f=flow, t=topic: copied(f, t) > reached[t])
    for topic, (flow, held) in flows.items():
        assert held.receipt.resumes == 0, "nobody noticed"
        with holding(flow, topic) as last:
            last.in_step()
        flow.close()


@pytest.mark.full
def test_f28_a_login_that_is_not_renewed_is_cut_off(forgetful, monkeypatch):
    monkeypatch.setattr(Connection, "_begin_renewal", lambda self: None)
    settings = ClientSettings("A", forgetful["A"].client_properties(SHORT))
    with ClusterClient(settings, "test") as client:
        connection = client.connection(-1)
        assert client.cluster_id()
        time.sleep(SHORT_LOGIN_SECONDS + 0.5)
        with pytest.raises(ConnectionFailed, match="closed by the broker"):
            client.cluster_id()
        assert connection.closed


@pytest.mark.full
def test_f28_a_connection_that_was_idle_for_longer_than_its_login(forgetful):
    settings = ClientSettings("A", forgetful["A"].client_properties(SHORT))
    with ClusterClient(settings, "test") as client:
        connection = client.connection(-1)
        time.sleep(SHORT_LOGIN_SECONDS + 0.5)
        assert client.cluster_id()
        assert client.connection(-1) is connection


def change_password(cluster, password):
    """Returns when the broker, too, has heard of it."""
    admin = AdminClient({"bootstrap.servers": cluster.back_door})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    [changed] = admin.alter_user_scram_credentials(
        [UserScramCredentialUpsertion(USER, info, password.encode())]
    ).values()
    changed.result(60)
    jaas = SCRAM.format(USER) + f'"{password}";'
    # Under an alias of its own: after a refusal a whole cluster is left alone.
    settings = ClientSettings("probe", cluster.client_properties() | {"sasl.jaas.config": jaas})

    def accepted():
        with ClusterClient(settings, "test") as client, suppress(AuthenticationFailed):
            return bool(client.cluster_id())

    wait_for(accepted)


@pytest.mark.parametrize("side", ["source", "target"])
def test_f28_a_scram_password_is_changed_while_the_mirror_runs(
    forgetful, topic_name, tmp_path, side
):
    alias = "A" if side == "source" else "B"
    secrets = tmp_path / "secrets.properties"
    secrets.write_text(f"password={PASSWORD}\n")
    jaas = SCRAM.format(USER) + f'"${{file:{secrets}:password}}";'
    settings = ClientSettings(
        alias,
        forgetful[alias].client_properties() | {"sasl.jaas.config": jaas},
        {"file": {"class": FILE_PROVIDER, "allowed.paths": str(tmp_path)}},
    )
    flow = flow_of(forgetful, topic_name, **{side: settings})
    flow.write(topic_name, numbered(100))
    try:
        with holding(flow, topic_name) as held:
            wait_for(lambda: copied(flow, topic_name) == 100)
            change_password(forgetful[alias], "hunter2")
            # Connections may go on until their logins are to be renewed.
            written = 100
            while not held.why:
                assert written < 1000
                flow.write(topic_name, [b"more"])
                written += 1
                time.sleep(0.1)
            wait_for(lambda: "refused SASL SCRAM-SHA-512" in held.why)
            why = held.why
            secrets.write_text("password=hunter2\n")
            wait_for(lambda: copied(flow, topic_name) == written)
            assert held.why == ""
    finally:
        change_password(forgetful[alias], PASSWORD)
    held.in_step()
    flow.close()
    assert "what sasl.jaas.config names is read again" in why
    assert f"{forgetful[alias].bootstrap} refused" in why
    assert PASSWORD not in why
    assert "hunter2" not in why


def test_f28_a_secret_that_cannot_be_read_does_no_harm_while_the_old_one_is_good(
    forgetful, tmp_path
):
    secrets = tmp_path / "secrets.properties"
    secrets.write_text(f"password={PASSWORD}\n")
    jaas = SCRAM.format(USER) + f'"${{file:{secrets}:password}}";'
    settings = ClientSettings(
        "A",
        forgetful["A"].client_properties() | {"sasl.jaas.config": jaas},
        {"file": {"class": FILE_PROVIDER, "allowed.paths": str(tmp_path)}},
    )
    with ClusterClient(settings, "test") as client:
        assert client.cluster_id()
        secrets.unlink()
        client.close()
        assert client.cluster_id(), "the one that was read before"
        change_password(forgetful["A"], "hunter2")
        try:
            client.close()
            with pytest.raises(AuthenticationFailed) as info:
                client.retry(client.cluster_id, 60)
        finally:
            change_password(forgetful["A"], PASSWORD)
    assert "the newest credentials cannot be used" in str(info.value)
    assert str(secrets) in str(info.value)


class TokenEndpoint:
    """Gives out tokens that are to be renewed after ``seconds``; can be away.

    Brokers take them for longer: what a loaded machine may take to log in again.
    """

    def __init__(self, seconds):
        self.given, self.away = 0, False
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                if endpoint.away:
                    self.send_error(503)
                    return
                endpoint.given += 1
                now = time.time()
                parts = ({"alg": "none"}, {"sub": USER, "iat": now, "exp": now + LOGIN_SECONDS})
                encoded = [
                    base64.urlsafe_b64encode(json.dumps(p).encode()).decode().rstrip("=")
                    for p in parts
                ]
                token = ".".join([*encoded, ""])
                body = json.dumps({"access_token": token, "expires_in": seconds}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/token"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()


@pytest.mark.full
def test_f28_oauth_tokens_are_renewed_and_an_endpoint_that_is_away_is_named(forgetful, topic_name):
    endpoint = TokenEndpoint(5)
    properties = forgetful["A"].client_properties("OAUTHBEARER") | {
        "sasl.jaas.config": OAUTH,
        "sasl.oauthbearer.token.endpoint.url": endpoint.url,
    }
    flow = flow_of(forgetful, topic_name, source=ClientSettings("A", properties))
    with holding(flow, topic_name) as held, Feed(flow, topic_name):
        wait_for(lambda: endpoint.given >= 3)
        assert held.why == ""
        endpoint.away = True
        # At first it may only be said that there is no answer yet.
        why = wait_for(lambda: "503" in (said := held.why) and said)
        assert f"no token from {endpoint.url}" in why
        assert "hunter2" not in why
        endpoint.away = False
        wait_for(lambda: held.why == "")
    with holding(flow, topic_name) as last:
        last.in_step()
    endpoint.close()
    flow.close()


def test_f28_delegation_tokens_are_refused_by_name(forgetful):
    properties = forgetful["A"].client_properties()
    jaas = properties["sasl.jaas.config"].replace(";", ' tokenauth="true";')
    settings = ClientSettings("A", properties | {"sasl.jaas.config": jaas})
    with pytest.raises(AuthenticationFailed, match="delegation token") as info:
        ClusterClient(settings, "test").cluster_id()
    assert PASSWORD not in str(info.value)
