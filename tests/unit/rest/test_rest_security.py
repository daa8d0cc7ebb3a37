"""Who may do what: addresses, credentials, roles, hosts, origins, limits, audit."""

from __future__ import annotations

import base64
import json
import logging
from types import SimpleNamespace

import pytest
from serving import LOCAL, ScriptedHerder, serving
from test_rest_own import Lab

from heliograph.config.worker_keys import RestSettings as RestKeys
from heliograph.errors import ConfigError
from heliograph.rest import credentials, security
from heliograph.rest.app import RestApp
from heliograph.rest.credentials import hash_password, new_token
from heliograph.rest.health import Health
from heliograph.rest.security import Rates
from heliograph.rest.settings import Limits, Listener, ResponseHeader, RestSettings, Role

SECRET = "s3cret-of-alice"


def basic(user, password):
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


# -- addresses ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "listener", "local"),
    [
        ("http://127.0.0.1:8083", ("http", "127.0.0.1", 8083), True),
        ("HTTPS://[::1]:0", ("https", "::1", 0), True),
        ("http://localhost:8083", ("http", "localhost", 8083), True),
        ("http://:8083", ("http", "", 8083), False),
        ("http://0.0.0.0:8083", ("http", "0.0.0.0", 8083), False),
        ("http://connect-1.example.org:1", ("http", "connect-1.example.org", 1), False),
        ("http://[::]:8083", ("http", "::", 8083), False),
    ],
)
def test_listeners(text, listener, local):
    found = Listener.parse(text)
    assert found == listener
    assert found.is_local is local
    assert str(found) == text.replace("HTTPS", "https")


@pytest.mark.parametrize(
    "text", ["", "8083", "ftp://x:1", "http://x", "http://x:99999", "http://a b"]
)
def test_what_is_no_listener(text):
    with pytest.raises(ConfigError):
        Listener.parse(text)


def codes(**settings):
    settings.setdefault("listeners", (Listener("http", "0.0.0.0", 8083),))
    return [error.code for error in RestSettings(**settings).problems()]


def test_what_would_expose_it_is_refused(tmp_path):
    users = tmp_path / "users"
    safe = {"ssl.keystore.location": "x.p12"}
    everywhere = (Listener("https", "", 8083),)
    assert codes() == ["rest.exposed"]
    assert codes(insecure=True) == []
    assert codes(listeners=(LOCAL,)) == []
    assert codes(users_file=users) == ["rest.exposed"]
    assert codes(listeners=everywhere, tls=safe) == ["rest.exposed"]
    assert codes(listeners=everywhere, tls=safe, users_file=users) == []
    assert codes(listeners=everywhere, users_file=users) == ["rest.tls"]
    asks = {**safe, "ssl.client.auth": "required"}
    assert codes(listeners=everywhere, tls=asks, certificate_roles={"*": Role.VIEWER}) == []
    assert codes(listeners=everywhere, tls=safe, certificate_roles={"*": Role.VIEWER}) == [
        "rest.exposed", "rest.mtls",
    ]  # fmt: skip
    assert codes(listeners=(LOCAL,), admin_listeners=(Listener("http", "", 1),)) == ["rest.exposed"]
    error = RestSettings(listeners=(Listener("http", "0.0.0.0", 8083),)).problems()[0]
    for said in ("http://0.0.0.0:8083", "no TLS and no authentication", "heliograph.rest.insecure",
                 "https://0.0.0.0:8083", "heliograph.rest.users.file"):  # fmt: skip
        assert said in str(error)


def test_settings_from_keys():
    texts = {
        row.key.name: row.key.default for row in vars(RestKeys).values() if hasattr(row, "key")
    }
    keys = RestKeys({
        **texts, "heliograph.rest.mtls.roles": "alice=admin, *=viewer",
        "heliograph.rest.users.file": "/u", "heliograph.rest.allowed.hosts": "x.org",
    })  # fmt: skip
    made = RestSettings.of(
        keys, listeners=["http://127.0.0.1:1"], advertised_host="me.org",
        allow_origin="https://a.org, https://b.org", response_headers="set X: 1, add Y: 2",
    )  # fmt: skip
    assert made.certificate_roles == {"alice": Role.ADMIN, "*": Role.VIEWER}
    assert made.hosts == ("x.org", "me.org")
    assert made.origins == ("https://a.org", "https://b.org")
    assert (made.methods, made.admin_listeners) == (("GET", "POST", "HEAD"), None)
    assert made.headers == (ResponseHeader("X", "1", True), ResponseHeader("Y", "2", False))
    assert made.limits.body_bytes == 1 << 20
    with pytest.raises(ConfigError, match="names no role"):
        bad = RestKeys({**texts, "heliograph.rest.mtls.roles": "alice"})
        RestSettings.of(bad, listeners=["http://127.0.0.1:1"])
    for text in ("sat X: 1", "set X", "set X: a\nb"):
        with pytest.raises(ConfigError):
            ResponseHeader.parse_all(text)


# -- roles ----------------------------------------------------------------------------------------

#: Every route, and who may use it. One that is added is added here.
ROLES = {
    "GET /": "viewer", "GET /health": "nobody", "GET /connectors": "viewer",
    "POST /connectors": "admin", "GET /connectors/{connector}": "viewer",
    "DELETE /connectors/{connector}": "admin", "GET /connectors/{connector}/config": "viewer",
    "PUT /connectors/{connector}/config": "admin", "PATCH /connectors/{connector}/config": "admin",
    "GET /connectors/{connector}/status": "viewer", "PUT /connectors/{connector}/pause": "operator",
    "PUT /connectors/{connector}/resume": "operator",
    "PUT /connectors/{connector}/stop": "operator",
    "POST /connectors/{connector}/restart": "operator",
    "GET /connectors/{connector}/tasks": "viewer",
    "GET /connectors/{connector}/tasks/{task}/status": "viewer",
    "POST /connectors/{connector}/tasks/{task}/restart": "operator",
    "GET /connectors/{connector}/topics": "viewer",
    "PUT /connectors/{connector}/topics/reset": "operator",
    "GET /connectors/{connector}/offsets": "viewer",
    "PATCH /connectors/{connector}/offsets": "admin",
    "DELETE /connectors/{connector}/offsets": "admin",
    "GET /connector-plugins": "viewer", "GET /connector-plugins/{plugin}/config": "viewer",
    "PUT /connector-plugins/{plugin}/config/validate": "viewer",
    "GET /admin/loggers": "viewer", "GET /admin/loggers/{logger}": "viewer",
    "PUT /admin/loggers/{logger}": "admin", "POST /connectors/{connector}/tasks": "admin",
    "PUT /connectors/{connector}/fence": "admin", "GET /heliograph/v1/snapshot": "viewer",
    "GET /heliograph/v1/flows": "viewer", "GET /heliograph/v1/flows/{flow}": "viewer",
    "GET /heliograph/v1/flows/stream": "viewer", "GET /heliograph/v1/me": "viewer",
    "GET /heliograph/v1/history": "viewer", "GET /heliograph/v1/config": "viewer",
    "GET /heliograph/v1/group": "viewer",
    "GET /heliograph/v1/flows/{flow}/partitions": "viewer", "GET /heliograph/v1/topics": "viewer",
    "GET /heliograph/v1/groups": "viewer", "GET /heliograph/v1/jobs": "viewer",
    "GET /heliograph/v1/events": "viewer", "GET /heliograph/v1/events/stream": "viewer",
    "POST /heliograph/v1/flows/{flow}/pause": "operator",
    "POST /heliograph/v1/flows/{flow}/resume": "operator",
    "POST /heliograph/v1/flows/{flow}/restart": "operator",
    "GET /heliograph/v1/flows/{flow}/failover": "operator",
    "POST /heliograph/v1/flows/{flow}/failover": "admin",
    "GET /heliograph/v1/flows/{flow}/handover": "viewer",
    "GET /openapi.json": "viewer", "GET /docs": "viewer", "GET /metrics": "viewer",
    "GET /health/live": "nobody", "GET /health/ready": "nobody",
}  # fmt: skip


def test_every_role_against_every_route(tmp_path):
    lab, tokens, lines = Lab(), {}, []
    for role in Role:
        tokens[role.name.lower()], line = new_token(f"a {role.name}", role)
        lines.append(line)
    (tmp_path / "tokens").write_text("# of the tests\n" + "\n".join(lines))
    settings = {"tokens_file": tmp_path / "tokens", "limits": Limits(requests_per_second=0)}
    health = Health(list, list)
    app = RestApp(lab.herder, RestSettings(**settings), lab.mirrored, health)
    served = {
        f"{r.method} {r.path}": r.role.name.lower() if r.role else "nobody" for r in app.routes
    }
    # The page's own files: as many as it has.
    files = {route for route in served if route.startswith("GET /dashboard")}
    assert served == ROLES | dict.fromkeys(files, "nobody")
    order = ["nobody", "viewer", "operator", "admin"]
    with serving(lab.herder, lab.mirrored, health, **settings) as ask:
        for route, needed in ROLES.items():
            method, path = route.split(" ")
            for name, value in (("connector", "X"), ("task", "0"), ("plugin", "P"), ("flow", "F"),
                                ("logger", "L")):  # fmt: skip
                path = path.replace(f"{{{name}}}", value)
            body = b"{}" if method in ("POST", "PUT", "PATCH") else None
            for who in order:
                headers = {"Content-Type": "application/json"}
                if who != "nobody":
                    headers["Authorization"] = f"Bearer {tokens[who]}"
                # A stream would not end.
                asked = "HEAD" if path.endswith("/stream") else method
                status = ask(asked, path, body, headers).status
                if who == "nobody" and needed != "nobody":
                    assert status == 401, route
                elif order.index(who) < order.index(needed):
                    assert status == 403, (route, who)
                else:
                    assert status not in (401, 403), (route, who)


# -- credentials ----------------------------------------------------------------------------------


def test_basic_authentication(tmp_path):
    herder = ScriptedHerder()
    herder.add("C")
    users = tmp_path / "users"
    users.write_text(f"alice:operator:{hash_password(SECRET)}\n")
    passwords = tmp_path / "connect.password"
    passwords.write_text("bob=pass word\n")
    passwords.chmod(0o600)
    with serving(herder, users_file=users, passwords_file=passwords) as ask:
        reply = ask.get("/connectors")
        assert (reply.status, reply.body) == (401, b"User cannot access the resource.")
        assert reply.headers["WWW-Authenticate"].startswith("Basic realm=")
        assert ask.get("/nope").status == 401
        assert ask.get("/connectors", **basic("alice", SECRET)).status == 200
        assert ask("PUT", "/connectors/C/pause", headers=basic("alice", SECRET)).status == 202
        reply = ask("DELETE", "/connectors/C", headers=basic("alice", SECRET))
        assert reply.message == "This needs the role admin; alice has the role operator"
        for wrong in (basic("alice", "x"), basic("nobody", SECRET), {"Authorization": "Basic !"},
                      {"Authorization": f"Bearer {SECRET}"}, basic("alice", "")):  # fmt: skip
            assert ask.get("/connectors", **wrong).status == 401
        assert ask("DELETE", "/connectors/C", headers=basic("bob", "pass word")).status == 204


def test_guesses_are_limited_and_those_who_are_known_are_not_kept_out(tmp_path, monkeypatch):
    monkeypatch.setattr(security, "time", SimpleNamespace(monotonic=lambda: 100.0))
    monkeypatch.setattr(security, "_REFUSED_SECONDS", 0.0)
    users = tmp_path / "users"
    users.write_text(f"alice:viewer:{hash_password(SECRET)}\n")
    with serving(users_file=users, limits=Limits(failures=3)) as ask:
        assert ask.get("/connectors", **basic("alice", SECRET)).status == 200
        statuses = [ask.get("/connectors", **basic("alice", str(n))).status for n in range(4)]
        # The first of all was a guess, too, until it was right.
        assert statuses == [401, 401, 429, 429]
        assert ask.get("/connectors", **basic("alice", SECRET)).status == 200


def test_files_are_read_again(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(credentials, "_LOOK_SECONDS", -1.0)
    users = tmp_path / "users"
    users.write_text(f"alice:viewer:{hash_password(SECRET)}\n")
    with serving(users_file=users) as ask:
        assert ask.get("/connectors", **basic("alice", SECRET)).status == 200
        users.write_text(f"carol:viewer:{hash_password('other')}\n# longer\n")
        assert ask.get("/connectors", **basic("alice", SECRET)).status == 401
        assert ask.get("/connectors", **basic("carol", "other")).status == 200
        users.write_text("carol:viewer:other\n")
        assert ask.get("/connectors", **basic("carol", "other")).status == 200
        assert "line 1 has no hash of a password; what it said before still holds" in caplog.text
        users.unlink()
        assert ask.get("/connectors", **basic("carol", "other")).status == 200


@pytest.mark.parametrize(
    "line",
    ["alice", "alice:admin", "alice:king:x", f"alice:admin:{SECRET}", ":admin:x",
     "alice:admin:scrypt$1073741824$8$1$AAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAA"],
)  # fmt: skip
def test_a_wrong_file_is_refused_and_not_quoted(tmp_path, line):
    (tmp_path / "users").write_text(f"# x\n{line}\n")
    with pytest.raises(ConfigError, match="line 2") as raised:
        RestApp(ScriptedHerder(), RestSettings(users_file=tmp_path / "users"))
    assert SECRET not in str(raised.value)
    with pytest.raises(ConfigError, match="No such file"):
        RestApp(ScriptedHerder(), RestSettings(tokens_file=tmp_path / "none"))


# -- where requests come from ---------------------------------------------------------------------


def test_hosts():
    with serving(hosts=("connect.example.org", "*.example.net")) as ask:
        for host in ("127.0.0.1", "localhost:8083", "[::1]:8083", "connect-1:8083",
                     "my-connect-api.kafka.svc:8083", "x.svc.cluster.local", "10.0.0.5:8083",
                     "connect.example.org", "CONNECT.EXAMPLE.ORG:1", "a.example.net"):  # fmt: skip
            assert ask("GET", "/connectors", host=host).status == 200, host
        for host in ("evil.example.com", "example.net", "connect.example.org.evil.com",
                     "localhost.evil.com", "127.0.0.1.evil.com"):  # fmt: skip
            reply = ask("GET", "/connectors", host=host)
            assert reply.status == 403, host
            assert "heliograph.rest.allowed.hosts" in reply.message
        for host in ("a b", "x/y", "user@localhost", "localhost:x"):
            assert ask("GET", "/connectors", host=host).status == 400, host
    with serving(hosts=("*",)) as ask:
        assert ask("GET", "/connectors", host="any.example.com").status == 200


def test_web_pages_of_elsewhere_change_nothing():
    herder = ScriptedHerder()
    herder.add("C")
    restart = "/connectors/C/restart"
    with serving(herder) as ask:
        own = f"http://127.0.0.1:{ask.listener.port}"
        assert ask("POST", restart, headers={"Origin": own}).status == 204
        for headers in ({"Origin": "https://evil.com"}, {"Origin": "null"},
                        {"Sec-Fetch-Site": "cross-site"}):  # fmt: skip
            assert ask("POST", restart, headers=headers).status == 403
        reply = ask.get("/connectors", Origin="https://evil.com")
        assert reply.headers["Access-Control-Allow-Origin"] is None
    assert [call[0] for call in herder.calls] == ["restart"]


def test_cors_as_configured():
    herder = ScriptedHerder()
    herder.add("C")
    page = "https://ui.example.org"
    asks = {"Origin": page, "Access-Control-Request-Method": "POST"}
    with serving(herder, origins=(page,), methods=("GET", "POST")) as ask:
        reply = ask("OPTIONS", "/connectors", headers=asks)
        assert reply.status == 200
        assert reply.headers["Access-Control-Allow-Origin"] == page
        assert reply.headers["Access-Control-Allow-Methods"] == "GET,POST"
        assert "Authorization" in reply.headers["Access-Control-Allow-Headers"]
        reply = ask.get("/connectors", Origin=page)
        assert reply.headers["Access-Control-Allow-Origin"] == page
        assert reply.headers["Vary"] == "Origin"
        assert reply.headers["Access-Control-Allow-Credentials"] is None
        assert ask("POST", "/connectors/C/restart", headers={"Origin": page}).status == 204
        assert ask("DELETE", "/connectors/C", headers={"Origin": page}).status == 403
        other = {**asks, "Origin": "https://ui.example.org.evil.com"}
        reply = ask("OPTIONS", "/connectors", headers=other)
        assert reply.headers["Access-Control-Allow-Origin"] is None
        assert reply.headers["Access-Control-Allow-Methods"] is None


def test_preflights_need_no_credentials(tmp_path):
    (tmp_path / "tokens").write_text(new_token("x", Role.ADMIN)[1])
    asks = {"Origin": "https://a.org", "Access-Control-Request-Method": "PUT"}
    with serving(tokens_file=tmp_path / "tokens", origins=("*",)) as ask:
        assert ask("OPTIONS", "/connectors", headers=asks).status == 200
        assert ask("OPTIONS", "/connectors").status == 401


def test_headers_of_every_answer():
    text = 'set X-Frame-Options: DENY, add Cache-Control: "no-cache", setDate Expires: 0'
    headers = ResponseHeader.parse_all(text)
    with serving(headers=headers) as ask:
        for path in ("/connectors", "/nope", "/connectors/a%2Fb"):
            reply = ask.get(path)
            assert reply.headers["X-Frame-Options"] == "DENY"
            assert reply.headers["Expires"].endswith("GMT")
            assert len(reply.headers.get_all("Cache-Control")) == 2
        assert reply.headers["Server"] is None


def test_admin_on_listeners_of_its_own():
    def statuses(admin):
        made = RestSettings(listeners=(LOCAL,), admin_listeners=admin)
        with serving(listeners=(LOCAL,), admin_listeners=admin) as ask:
            found = [ask.get("/admin/loggers").status, ask.get("/connectors").status]
        assert made.problems() == []
        return found

    assert statuses(None) == [200, 200]
    assert statuses(()) == [404, 200]
    assert statuses((Listener("http", "localhost", 0),)) == [404, 200]


# -- limits and the audit -------------------------------------------------------------------------


def test_bodies_are_limited():
    herder = ScriptedHerder()
    with serving(herder, limits=Limits(body_bytes=2000)) as ask:
        config = {"a": "x" * 3000}
        reply = ask("PUT", "/connectors/C/config", config)
        assert (reply.status, reply.message) == (413, "The body is longer than 2000 bytes")
        connection = ask.connect()
        body = json.dumps(config).encode()
        pieces = iter([body[:1500], body[1500:]])
        connection.request("PUT", "/connectors/C/config", pieces, encode_chunked=True, headers={
            "Transfer-Encoding": "chunked", "Content-Type": "application/json",
        })  # fmt: skip
        assert connection.getresponse().status == 413
        connection.close()
    assert herder.calls == []


def test_requests_are_limited(monkeypatch):
    monkeypatch.setattr(security, "_REFUSED_SECONDS", 0.0)
    with serving(limits=Limits(requests_per_second=0.001, burst=5)) as ask:
        replies = [ask.get("/connectors") for _ in range(7)]
        assert [reply.status for reply in replies] == [200] * 5 + [429] * 2
        assert replies[-1].headers["Retry-After"] == "1"
        assert replies[-1].message == "Too many requests from this address"


def test_rates(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(security, "time", SimpleNamespace(monotonic=lambda: now[0]))
    rates = Rates(2.0, 3)
    assert [rates.take("a") for _ in range(4)] == [True, True, True, False]
    assert rates.take("b")
    now[0] += 0.5
    assert [rates.take("a"), rates.take("a")] == [True, False]
    now[0] += 100
    assert [rates.take("a") for _ in range(4)] == [True, True, True, False]
    assert all(Rates(0, 1).take("a") for _ in range(10))


def test_every_change_leaves_a_line_without_values(tmp_path, caplog):
    herder = ScriptedHerder()
    herder.add("C")
    lines = []
    for role in Role:
        token, line = new_token(f"{role.name.lower()}\x1b[2J", role)
        lines.append((token, line))
    (tmp_path / "tokens").write_text("\n".join(line for _, line in lines))
    caplog.set_level(logging.INFO, "heliograph.rest.audit")
    headers = [{"Authorization": f"Bearer {token}"} for token, _ in lines]
    with serving(herder, tokens_file=tmp_path / "tokens") as ask:
        ask("PUT", "/connectors/C/config", {"x.password": SECRET, "bad\nkey": "v"}, headers[2])
        ask("PUT", "/connectors/C%0Ax/stop", headers=headers[2])
        ask("PUT", "/connectors/C/pause?forward=a%0Ab", headers=headers[1])
        ask("DELETE", "/connectors/C", headers=headers[0])
        ask("DELETE", "/connectors/C")
        ask("GET", "/connectors/C", headers=headers[0])
    found = [record.getMessage() for record in caplog.records]
    assert len(found) == 4
    assert found[0] == (
        "admin\\x1b[2J (admin, 127.0.0.1) PUT /connectors/C/config: 200"
        " (keys x.password, bad\\nkey)"
    )
    assert "(operator, 127.0.0.1) PUT /connectors/C/pause" in found[1]
    assert found[1].endswith(": 202")
    assert "(viewer, 127.0.0.1) DELETE /connectors/C: 403" in found[2]
    assert "without valid credentials, was refused: DELETE /connectors/C" in found[3]
    assert SECRET not in caplog.text
    assert all(token not in caplog.text for token, _ in lines)
    assert "\x1b" not in caplog.text
