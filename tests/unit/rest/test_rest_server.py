"""Listening: ports, TLS, certificates of callers, ends."""

from __future__ import annotations

import socket
import ssl
import threading

import pytest
from certificates import STORE_PASSWORD, Authority
from serving import LOCAL, Client, ScriptedHerder, serving

from heliograph.errors import ConfigError, StartError
from heliograph.rest import server as rest_server
from heliograph.rest.app import RestApp
from heliograph.rest.server import RestServer
from heliograph.rest.settings import Limits, Listener, RestSettings, Role

HTTPS = Listener("https", "127.0.0.1", 0)


def server(**settings):
    made = RestSettings(**settings)
    return RestServer(RestApp(ScriptedHerder(), made), made)


def test_a_port_that_is_taken():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartError, match=f"http://127.0.0.1:{port}.*in use") as raised:
            server(listeners=(LOCAL, Listener("http", "127.0.0.1", port))).start()
    assert "another program listens there" in str(raised.value)


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_an_address_of_elsewhere(host):
    with pytest.raises(StartError, match="cannot listen on"):
        server(listeners=(Listener("http", host, 0),), insecure=True).start()


def test_what_would_be_exposed_is_not_started():
    with pytest.raises(ConfigError, match=r"rest\.exposed"):
        server(listeners=(Listener("http", "", 0),)).start()


def test_insecure_says_so(caplog):
    with serving(listeners=(Listener("http", "", 0),), insecure=True) as ask:
        assert ask.get("/connectors").status == 200
    assert "whoever reaches http://" in caplog.text


def test_several_listeners_and_an_end():
    made = server(listeners=(LOCAL, Listener("http", "localhost", 0)))
    made.start()
    clients = [Client(address) for address in made.addresses]
    assert [client.get("/").status for client in clients] == [200, 200]
    # One that is kept alive does not hold the end up.
    waiting = clients[0].connect()
    waiting.request("GET", "/")
    waiting.getresponse().read()
    made.close()
    waiting.close()
    assert not any(thread.name == "rest" for thread in threading.enumerate())
    with pytest.raises(OSError, match="refused"):
        clients[0].get("/")


def test_logging_is_left_as_it_is():
    import logging

    before = list(logging.getLogger("uvicorn").handlers), logging.getLogger().level
    with serving() as ask:
        ask.get("/")
    assert (list(logging.getLogger("uvicorn").handlers), logging.getLogger().level) == before


def test_connections_that_never_ask_are_closed(monkeypatch):
    monkeypatch.setattr(rest_server, "_HEAD_SECONDS", 0.2)
    with serving() as ask, socket.create_connection(("127.0.0.1", ask.listener.port)) as silent:
        silent.sendall(b"GET / HTTP/1.1\r\nHost:")
        silent.settimeout(60)
        assert silent.recv(1) == b""


def test_connections_are_limited():
    with serving(limits=Limits(connections=2)) as ask:
        held = [socket.create_connection(("127.0.0.1", ask.listener.port)) for _ in range(3)]
        held[2].settimeout(60)
        assert held[2].recv(1) == b""
        for connection in held:
            connection.close()


def test_forwarded_headers_change_nothing(caplog):
    caplog.set_level("INFO", "heliograph.rest.audit")
    with serving() as ask:
        ask("PUT", "/connectors/X/pause", headers={"X-Forwarded-For": "9.9.9.9"})
    assert "127.0.0.1" in caplog.text
    assert "9.9.9.9" not in caplog.text


# -- TLS ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority("rest")
    authority.broker_store(folder / "server.p12")
    authority.client_pem(folder / "client.pem")
    Authority("elsewhere").client_pem(folder / "stranger.pem")
    (folder / "ca.pem").write_text(authority.pem)
    values = {
        "ssl.keystore.location": str(folder / "server.p12"),
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.password": STORE_PASSWORD,
        "ssl.truststore.location": str(folder / "ca.pem"),
    }
    return folder, values


def trusting(folder, certificate=None):
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    if certificate is not None:
        context.load_cert_chain(folder / certificate)
    return context


def test_https(tls):
    folder, values = tls
    with serving(listeners=(HTTPS, LOCAL), tls=values) as ask:
        ask.context = trusting(folder)
        reply = ask("PUT", "/connectors/C/config", {})
        assert reply.headers["Location"].startswith(f"https://127.0.0.1:{ask.listener.port}/")
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        with pytest.raises((ssl.SSLError, OSError, ValueError)):
            old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_2
            old.set_ciphers("NULL")
            Client(ask.listener, old).get("/")


def test_callers_with_certificates(tls):
    folder, values = tls
    roles = {"mirror": Role.OPERATOR}
    asks = {**values, "ssl.client.auth": "requested"}
    with serving(listeners=(HTTPS,), tls=asks, certificate_roles=roles) as ask:
        ask.context = trusting(folder, "client.pem")
        assert ask.get("/connectors").status == 200
        reply = ask("DELETE", "/connectors/C")
        assert reply.message == "This needs the role admin; mirror has the role operator"
        ask.context = trusting(folder)
        assert ask.get("/connectors").status == 401
        assert ask.get("/health").status == 200
        ask.context = trusting(folder, "stranger.pem")
        with pytest.raises((ssl.SSLError, OSError)):
            ask.get("/connectors")
    required = {**values, "ssl.client.auth": "required"}
    with serving(listeners=(HTTPS,), tls=required, certificate_roles={"x": Role.ADMIN}) as ask:
        ask.context = trusting(folder, "client.pem")
        assert ask.get("/connectors").status == 401


@pytest.mark.parametrize(
    "change",
    [{"ssl.keystore.location": "/nowhere.p12"}, {"ssl.keystore.password": "wrong"},
     {"ssl.client.auth": "required", "ssl.truststore.location": ""}],
)  # fmt: skip
def test_tls_that_cannot_be_used(tls, change):
    with pytest.raises(StartError, match="https cannot be served"):
        server(listeners=(HTTPS,), tls={**tls[1], **change}).start()
