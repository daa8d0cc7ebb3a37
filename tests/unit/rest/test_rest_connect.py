"""Connect's routes: codes, bodies and messages, by the cases of the contract (numbers in names)."""

from __future__ import annotations

import threading

import pytest
from serving import CLASS, ScriptedHerder, serving
from stored import StoredWorker

from heliograph.connect.api import ConnectError, Initial
from heliograph.errors import WireError
from heliograph.rest.settings import Limits

CONFIG = {"connector.class": CLASS, "source.cluster.alias": "A"}
ARROW = "/connectors/A-%3EB.MirrorSourceConnector"


@pytest.fixture(scope="module")
def shared():
    herder = ScriptedHerder()
    with serving(herder, limits=Limits(requests_per_second=0)) as client:
        yield herder, client


@pytest.fixture
def herder(shared):
    shared[0].__init__()
    return shared[0]


@pytest.fixture
def ask(shared, herder):
    return shared[1]


def test_root_and_health(ask, herder):  # 1, 2
    assert ask.get("/").json == {"version": "4.3.1", "commit": "abc", "kafka_cluster_id": "id"}
    assert ask.get("/health").json["status"] == "healthy"
    herder.healthy = (503, "starting", "wait")
    assert ask.get("/health").status == 503
    assert ask.get("/health").json == {"status": "starting", "message": "wait"}


def test_a_trailing_slash_is_optional(ask, herder):  # 3
    herder.add("C")
    for path in ("/connectors/", "/connectors"):
        assert ask.get(path).body == b'["C"]'
    assert ask.get("/connectors/C/tasks/").status == 200


def test_what_is_not_there(ask):  # 4
    for path in ("/nope", "/connectors/X/nope", "/connectors/X/tasks-config", "/admin",
                 "/connectors/C/tasks/0", "/heliograph/v1/flows"):  # fmt: skip
        reply = ask.get(path)
        assert (reply.status, reply.message) == (404, "HTTP 404 Not Found")
        assert reply.headers["Content-Type"] == "application/json"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/connectors/a%2Fb/status", "Ambiguous URI path separator"),
        ("/connectors/a%zz/status", "Bad Request"),
        ("/connectors//status", "Ambiguous URI empty segment"),
        ("/connectors/a%00b/status", "Bad Request"),
        ("/connectors/a%25b/status", "Ambiguous URI path encoding"),
        ("/connectors/%FF/status", "Bad UTF-8 encoding"),
        ("/connectors/a%5Cb/status", "Suspicious Path Character"),
        ("/connectors/A->B/status", "Illegal Path Character"),
    ],
)
def test_paths_that_could_mean_two_things(ask, path, text):
    reply = ask.get(path)
    assert (reply.status, reply.message) == (400, text)


@pytest.mark.parametrize(
    ("path", "name"),
    [("%C3%A4", "ä"), ("a%20b", "a b"), ("a+b", "a+b"), ("a;b=c", "a"), ("a%3Fb", "a?b"),
     ("..", "..")],
)  # fmt: skip
def test_names_in_paths(ask, path, name):
    reply = ask.get(f"/connectors/{path}/status")
    assert (reply.status, reply.message) == (404, f"No status found for connector {name}")


def test_methods(ask, herder):  # 5
    herder.add("C")
    for method, path in (("DELETE", "/connectors"), ("POST", "/"), ("PUT", "/health"),
                         ("GET", "/connectors/X/restart"), ("POST", "/connectors/X"),
                         ("FOO", "/connectors"), ("HEAD", "/connectors/C/pause"),
                         ("PUT", "/admin/loggers/")):  # fmt: skip
        reply = ask(method, path)
        assert reply.status == 405
        if method != "HEAD":
            assert reply.message == "HTTP 405 Method Not Allowed"
    reply = ask("HEAD", "/connectors")
    assert (reply.status, reply.headers["Content-Length"], reply.body) == (200, "5", b"")
    assert ask("HEAD", "/connectors/X").status == 404
    reply = ask("OPTIONS", "/connectors/C")
    assert reply.status == 200
    assert set(reply.headers["Allow"].split(",")) == {"HEAD", "DELETE", "GET", "OPTIONS"}


def test_media_types(ask, herder):  # 6, 7
    herder.add("C")
    body = b'{"name":"n","config":{}}'
    for kind in ("text/plain", "application/x-www-form-urlencoded", "text/json"):
        reply = ask("POST", "/connectors", body, {"Content-Type": kind})
        assert (reply.status, reply.message) == (415, "HTTP 415 Unsupported Media Type")
    assert ask("POST", "/connectors", body).status == 415
    assert ask("POST", "/connectors", body, {"Content-Type": "nonsense"}).status == 400
    json = {"Content-Type": "application/json; charset=utf-8"}
    assert ask("POST", "/connectors", body, json).status == 201
    for method, path in (("PUT", "/connectors/C/pause"), ("GET", "/connectors"),
                         ("DELETE", "/connectors/C")):  # fmt: skip
        assert ask(method, path, headers={"Content-Type": "text/plain"}).status == 415
    assert ask("PUT", "/connectors/C/pause", {"a": 1}).status == 202
    assert ask("PUT", "/connectors/C/pause").status == 202
    assert ask.get("/", **{"Content-Type": "text/plain"}).status == 200
    for accept, status in (("text/html", 406), ("application/xml", 406), ("*/*", 200),
                           ("text/html,*/*;q=0.1", 200), ("application/*", 200),
                           ("application/json;q=0", 406)):  # fmt: skip
        assert ask.get("/connectors", Accept=accept).status == status


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", 'Cannot invoke "org.apache.kafka.connect.runtime.rest.entities.CreateConnector'),
        (b"null", 'Cannot invoke "org.apache.kafka.connect.runtime.rest.entities.CreateConnector'),
        (b"{", "Unexpected end-of-input"),
        (b"name=x", "Unrecognized token"),
        (b"[]", "Cannot deserialize value of type `org.apache.kafka.connect.runtime.rest.entities"),
        (b'"x"', "Cannot construct instance of `org.apache.kafka.connect.runtime.rest.entities"),
        (b'{"name":"X"} x', "Unrecognized token"),
        (b'{"name":"\xff","config":{}}', "Invalid UTF-8 start byte 0xff"),
        (b'{"name":"n","config":{},"foo":1}', 'Unrecognized field "foo" (class org.apache'),
        (b'{"name":"n","config":{"a":{}}}', "Cannot deserialize value of type `java.lang.String`"),
        (b'{"name":"n","config":{"a":[1]}}', "Cannot deserialize value of type `java.lang.String`"),
        (b'{"name":"n","config":"x"}', "Cannot construct instance of `java.util.LinkedHashMap`"),
        (b'{"name":"n","config":[]}', "Cannot deserialize value of type `java.util.LinkedHashMap"),
        (b'{"name":"n"}', 'Cannot invoke "java.util.Map.get(Object)" because "connectorConfig"'),
        (b'{"name":"n","config":{},"initial_state":"x"}', "Cannot construct instance of `org.ap"),
        (b'{"name":"n","config":{"a":NaN}}', "Non-standard token 'NaN'"),
        (b'{"name":"n","config":{"a":"\\ud800"}}', "Incomplete surrogate pair"),
        (b"[" * 100_000, "Document nesting depth exceeds"),
    ],
)
def test_bodies_that_cannot_be_read(ask, herder, body, text):  # 8, 9, 10, 18
    reply = ask("POST", "/connectors", body, {"Content-Type": "application/json"})
    assert reply.status == 500
    assert reply.message.startswith(text)
    assert herder.calls == []


def test_create(ask, herder):  # 11, 12, 13, 17
    reply = ask("POST", "/connectors", {"name": " C ", "config": CONFIG})
    assert reply.status == 201
    port = ask.listener.port
    assert reply.headers["Location"] == f"http://127.0.0.1:{port}/connectors/C"
    expected = {"name": "C", "config": {**CONFIG, "name": "C"}, "tasks": [], "type": "source"}
    assert reply.json == expected
    reply = ask("POST", "/connectors", {"name": "C", "config": CONFIG})
    assert (reply.status, reply.message) == (409, "Connector C already exists")
    reply = ask("POST", "/connectors", {"name": "y", "config": {**CONFIG, "name": "x"}})
    assert reply.status == 400
    assert reply.message == (
        "Connector name configuration (x) doesn't match connector name in the URL (y)"
    )
    body = {"name": "S", "config": CONFIG, "initial_state": "stopped"}
    assert ask("POST", "/connectors", body).status == 201
    assert herder.calls[-1] == ("create", "S", {**CONFIG, "name": "S"}, Initial.STOPPED)
    assert ask.get("/connectors/S/status").json["tasks"] == []
    assert ask("POST", "/connectors", {"config": CONFIG}).json["name"] == ""


def test_a_null_is_an_invalid_config(ask, herder):
    reply = ask("POST", "/connectors", {"name": "n", "config": {**CONFIG, "topics": None}})
    assert reply.status == 400
    assert reply.message == (
        "Connector configuration is invalid and contains the following 1 error(s):\n"
        "Null value can not be supplied as the configuration value.\n"
        "You can also find the above list of errors at the endpoint"
        " `/connector-plugins/{connectorType}/config/validate`"
    )
    assert herder.calls == []


def test_errors_of_the_herder_are_passed_on(ask, herder):  # 14, 15, 16
    herder.fail = ConnectError(400, "Connector configuration is invalid ...\nline")
    reply = ask("POST", "/connectors", {"name": "n", "config": CONFIG})
    assert (reply.status, reply.message) == (400, "Connector configuration is invalid ...\nline")
    herder.fail = WireError("no broker answers")
    assert ask.get("/connectors/C").message == "no broker answers"


def test_what_others_raise_is_not_shown(ask, herder, caplog):
    herder.fail = RuntimeError("s3cret")
    reply = ask.get("/connectors/C")
    assert (reply.status, reply.message) == (500, "An error inside Heliograph; its log says more")
    assert "GET /connectors/C" in caplog.text


def test_configs(ask, herder):  # 19, 20, 21, 22, 23
    reply = ask("PUT", "/connectors/P/config", CONFIG)
    assert reply.status == 201
    assert reply.headers["Location"].endswith("/connectors/P")
    raw = b'{"tasks.max":3,"a":1.50,"b":1e3,"c":-0,"d":true,"e":12345678901234567890,"n":"x"}'
    reply = ask("PUT", "/connectors/P/config", raw, {"Content-Type": "application/json"})
    assert (reply.status, reply.headers["Location"]) == (200, None)
    assert ask.get("/connectors/P/config").json == {
        "tasks.max": "3", "a": "1.50", "b": "1e3", "c": "-0", "d": "true",
        "e": "12345678901234567890", "n": "x", "name": "P",
    }  # fmt: skip
    reply = ask("PATCH", "/connectors/P/config", {"a": None, "b": "1", "zz": 5})
    assert reply.status == 200
    assert "a" not in reply.json["config"]
    assert (reply.json["config"]["b"], reply.json["config"]["zz"]) == ("1", "5")
    assert ask("PATCH", "/connectors/X/config", {}).message == "Connector X not found"
    for method, name in (("PUT", "connectorConfig"), ("PATCH", "patch")):
        reply = ask(method, "/connectors/P/config", b"", {"Content-Type": "application/json"})
        assert reply.status == 500
        assert reply.message.endswith(f'because "{name}" is null')
    reply = ask("PUT", "/connectors/P/config", {"name": "x"})
    assert (reply.status, reply.message.partition("(")[0]) == (400, "Connector name configuration ")


def test_templates_are_shown_as_they_are(ask, herder):
    herder.add("C", **{"source.cluster.sasl.jaas.config": "${file:/etc/secrets:jaas}"})
    for path in ("/connectors/C", "/connectors/C/config", "/connectors?expand=info"):
        assert b"${file:/etc/secrets:jaas}" in ask.get(path).body


def test_texts_of_what_is_missing(ask):  # 24
    for path in ("", "/config", "/tasks", "/offsets"):
        assert ask.get(f"/connectors/X{path}").message == "Connector X not found"
    assert ask.get("/connectors/X/status").message == "No status found for connector X"
    assert ask("DELETE", "/connectors/X").message == "Connector X not found"


def test_expand(ask, herder):  # 25
    herder.add("C")
    both = ask.get("/connectors?expand=info&expand=status").json
    assert set(both["C"]) == {"info", "status"}
    assert both["C"]["status"] == {
        "name": "C",
        "connector": {"state": "RUNNING", "worker_id": "w:8083", "version": "4.3.1"},
        "tasks": [
            {"id": 0, "state": "RUNNING", "worker_id": "w:8083", "trace": "why",
             "version": "4.3.1"},
            {"id": 1, "state": "RUNNING", "worker_id": "w:8083", "version": "4.3.1"},
        ],
        "type": "source",
    }  # fmt: skip
    assert both["C"]["info"]["tasks"] == [
        {"connector": "C", "task": 0}, {"connector": "C", "task": 1},
    ]  # fmt: skip
    for query in ("bogus", "", "INFO"):
        assert ask.get(f"/connectors?expand={query}").json == {"C": {}}
    herder.fail = ConnectError(404, "gone")
    assert ask.get("/connectors?expand=info").json == {}


def test_pause_resume_stop(ask, herder):  # 26 to 29
    connector = herder.add("C")
    for word, status, target in (("pause", 202, Initial.PAUSED), ("resume", 202, Initial.RUNNING),
                                 ("stop", 204, Initial.STOPPED)):  # fmt: skip
        for _ in range(2):
            reply = ask("PUT", f"/connectors/C/{word}")
            assert (reply.status, reply.body) == (status, b"")
            assert reply.headers["Content-Type"] is None
        assert connector.target is target
        assert ask("PUT", f"/connectors/X/{word}").message == "Unknown connector X"


def test_restart(ask, herder):  # 30, 31
    herder.add("C")
    for query, status, flags in (
        ("", 204, (False, False)), ("?includeTasks=true", 202, (True, False)),
        ("?onlyFailed=TRUE&forward=x", 202, (False, True)),
        ("?includeTasks=yes", 204, (False, False)),
    ):  # fmt: skip
        reply = ask("POST", f"/connectors/C/restart{query}")
        assert reply.status == status
        assert herder.calls[-1] == ("restart", *flags)
        assert bool(reply.body) == (status == 202)
    assert ask("POST", "/connectors/X/restart").message == "Unknown connector: X"


def test_tasks(ask, herder):  # 32, 33
    herder.add("C")
    assert ask.get("/connectors/C/tasks").json[1]["id"] == {"connector": "C", "task": 1}
    assert ask.get("/connectors/C/tasks/00/status").json["id"] == 0
    assert ask.get("/connectors/C/tasks/99/status").message == "No status found for task C-99"
    assert ask.get("/connectors/C/tasks/-1/status").message == "No status found for task C--1"
    for number in ("abc", "99999999999", "1.0", "%D9%A1"):
        assert ask.get(f"/connectors/C/tasks/{number}/status").message == "HTTP 404 Not Found"
        reply = ask("POST", f"/connectors/C/tasks/{number}/restart")
        assert reply.message == "HTTP 404 Not Found"
    assert ask("POST", "/connectors/C/tasks/0/restart").status == 204
    assert ask("POST", "/connectors/C/tasks/99/restart").message == "Unknown task: C-99"


def test_offsets(ask, herder):  # 34, 35
    herder.add("C")
    path = "/connectors/C/offsets"
    for body in ({}, {"offsets": []}, {"offsets": None}):
        reply = ask("PATCH", path, body)
        assert (reply.status, reply.message) == (
            400, "Partitions / offsets need to be provided for an alter offsets request",
        )  # fmt: skip
    rows = [
        {"partition": {"cluster": "A", "partition": 0, "topic": "t"}, "offset": {"offset": 3}},
        {"partition": {"cluster": "A", "partition": 1, "topic": "t"}, "offset": None},
    ]
    reply = ask("PATCH", path, {"offsets": rows})
    message = "The offsets for this connector have been altered successfully"
    assert (reply.status, reply.json) == (200, {"message": message})
    assert ask.get(path).json == {"offsets": rows}
    for body, text in (
        ({"offsets": [None]}, "Cannot invoke"), ({"foo": 1}, 'Unrecognized field "foo"'),
        ({"offsets": [{"offset": {}}]}, "Source partitions may not be null"),
        ({"offsets": [{"partition": 1}]}, "Cannot construct instance"),
        ({"offsets": {}}, "Cannot deserialize"), ({"offsets": [{"x": 1}]}, "Unrecognized field"),
    ):  # fmt: skip
        reply = ask("PATCH", path, body)
        assert reply.status == 500
        assert reply.message.startswith(text)
    for _ in range(2):
        assert ask("DELETE", path).status == 200
    assert ask.get(path).json == {"offsets": []}


def test_topics(ask, herder):  # 36
    herder.add("C")
    assert ask.get("/connectors/C/topics").json == {"C": {"topics": ["A.orders"]}}
    assert ask.get("/connectors/X/topics").json == {"X": {"topics": []}}
    assert ask("PUT", "/connectors/X/topics/reset").status == 202


def test_plugins(ask):  # 37, 38
    assert len(ask.get("/connector-plugins").json) == 1
    for query in ("false", "maybe"):
        assert len(ask.get(f"/connector-plugins?connectorsOnly={query}").json) == 2
    path = "/connector-plugins/MirrorSource/config"
    assert ask.get(path).json == [{"name": "topics", "version": None}]
    assert ask.get(f"{path}?version=").json[0]["version"] == ""
    assert ask.get("/connector-plugins/Nope/config").message == "Unknown plugin Nope."
    reply = ask("PUT", f"{path}/validate", {"a": None, "b": 1})
    assert reply.json["configs"] == [{"a": None, "b": "1"}]
    reply = ask("PUT", f"{path}/validate", b"", {"Content-Type": "application/json"})
    assert (
        reply.message
        == 'Cannot invoke "java.util.Map.get(Object)" because "connectorConfig" is null'
    )


def test_loggers(ask, herder):  # 39
    assert ask.get("/admin/loggers/").json == {"root": {"level": "INFO", "last_modified": None}}
    assert ask.get("/admin/loggers/x").message == "Logger x not found."
    reply = ask("PUT", "/admin/loggers/a.b?scope=planet", {"level": "debug"})
    assert (reply.status, reply.json) == (200, ["a.b"])
    assert herder.calls[-1] == ("level", "a.b", "DEBUG", False)
    reply = ask("PUT", "/admin/loggers/a.b?scope=CLUSTER", {"level": "WARN"})
    assert (reply.status, reply.body) == (204, b"")
    reply = ask("PUT", "/admin/loggers/a.b", {"level": "LOUD"})
    assert (reply.status, reply.message) == (404, "invalid log level 'LOUD'.")
    for body in ({}, {"level": None}):
        reply = ask("PUT", "/admin/loggers/a.b", body)
        assert (reply.status, reply.message) == (
            400, "Desired 'level' parameter was not specified in request.",
        )  # fmt: skip


def test_names_with_arrows(ask, herder):  # 40
    name = "A->B.MirrorSourceConnector"
    reply = ask("POST", "/connectors", {"name": name, "config": CONFIG})
    assert reply.headers["Location"].endswith(ARROW)
    for path in (ARROW, "/connectors/A%2D%3EB.MirrorSourceConnector"):
        assert ask.get(f"{path}/config").json["name"] == name
    assert ask("PUT", f"{ARROW}/stop").status == 204
    assert ask("DELETE", ARROW).status == 204
    assert ask.get(f"{ARROW}/status").message == f"No status found for connector {name}"
    reply = ask("POST", "/connectors", {"name": "ä b+c%d?é", "config": CONFIG})
    assert reply.headers["Location"].endswith("/connectors/%C3%A4%20b+c%25d%3F%C3%A9")


def test_between_workers(ask):
    reply = ask("POST", "/connectors/C/tasks", [])
    assert (reply.status, reply.message) == (400, "Internal request missing required signature")
    reply = ask("PUT", "/connectors/C/fence", headers={"X-Connect-Authorization": "AAAA"})
    assert (reply.status, reply.message) == (403, "Internal request contained invalid signature.")


def test_a_herder_that_hangs_ends_in_500_and_holds_up_no_one_else():
    herder = ScriptedHerder()
    herder.waits_for = threading.Event()
    try:
        with serving(herder, limits=Limits(health_seconds=0.2)) as ask:
            assert ask.get("/health").message == "Request timed out"
            assert ask.get("/").status == 200
    finally:
        herder.waits_for.set()


def test_where_nothing_may_be_changed(ask, herder):
    herder.changeable = False
    herder.add("C")
    for method, path in (("PUT", "/connectors/C/pause"), ("DELETE", "/connectors/C")):
        reply = ask(method, path)
        assert reply.status == 403
        assert "heliograph.rest.changes=true" in reply.message
    assert ask("PUT", "/connector-plugins/x/config/validate", {}).status == 200
    assert ask.get("/connectors").json == ["C"]


def test_the_documents_need_nothing_from_elsewhere(ask):
    document = ask.get("/openapi.json").json
    assert document["openapi"].startswith("3.")
    assert document["paths"]["/connectors/{connector}/pause"]["put"]["x-role"] == "operator"
    assert "422" not in str(document)
    page = ask.get("/docs")
    assert page.headers["Content-Type"].startswith("text/html")
    assert b"PUT /connectors/{connector}/pause" in page.body
    assert b"http" not in page.body.replace(b"http_", b"")
    assert b"<script" not in page.body
    assert page.headers["Content-Security-Policy"].startswith("default-src 'none'")


def test_nothing_is_measured_for_others(monkeypatch, caplog):
    """FastAPI would send spans and metrics to whoever the environment names."""
    monkeypatch.setenv("FASTAPI_OTEL_AUTO_CONFIGURE", "true")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    with serving() as ask:
        assert ask.get("/").status == 200
    assert "telemetry" not in caplog.text


def test_a_connector_whose_flow_is_being_handed_over_is_not_resumed():
    worker = StoredWorker()
    worker.seed()
    worker.handed_over.add("C")
    with pytest.raises(ConnectError, match="C must not go on now") as caught:
        worker.herder.set_target("C", Initial.RUNNING)
    assert caught.value.status == 409
    assert not worker.told
    worker.herder.set_target("C", Initial.PAUSED)
    worker.handed_over.clear()
    worker.herder.set_target("C", Initial.RUNNING)
