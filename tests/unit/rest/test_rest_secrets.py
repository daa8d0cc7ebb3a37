"""A secret in every key that may hold one, posted by REST: where it is found, and where not.

Written into a config, it is shown where Connect shows configs, and stored with them; nowhere else
(docs/connect.md). Named by reference, it is found nowhere at all.
"""

from __future__ import annotations

import json
import logging
import re
import time
from typing import Any
from urllib.parse import quote

import pytest
from serving import serving
from stored import CONFIG, FileMirror, StoredWorker

from heliograph.config.key import Scope, Type
from heliograph.config.keys import CLIENT_PREFIXES, KEYS
from heliograph.connect.fleet import Fleet
from heliograph.connect.group import Assignment
from heliograph.connect.mirror_herder import MirrorHerder
from heliograph.rest.own_routes import Mirrored
from heliograph.rest.settings import Limits
from heliograph.service import flow as flow_service
from heliograph.service import mirror as service
from heliograph.service.listening import Place
from heliograph.service.snapshot import EngineSnapshot, EngineState

INLINE, REFERRED = "planted-inline-4711", "planted-by-reference-4712"
SECRETS = [key.name for key in KEYS if key.scope is Scope.CLIENT and key.type is Type.PASSWORD]
PREFIXES = ["", *(prefix for prefix, _ in CLIENT_PREFIXES)]
#: The table does not know these: they may be misspelt passwords.
UNKNOWN = ["source.cluster.sasl.pasword", "my.api.key", "basic.auth.user.info", "transformer.token"]
PROVIDER = "org.apache.kafka.common.config.provider.FileConfigProvider"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
CLASSES = ("MirrorSource", "MirrorCheckpoint", "MirrorHeartbeat")
#: Where configs are shown as they were given, as in Connect.
SHOWN = re.compile(
    r"(GET|PUT|PATCH) /connectors/[^/?]+/config|GET /connectors/[^/?]+(/tasks)?"
    r"|GET /connectors\?expand=.*info.*|POST /connectors"
)


def _jaas(value):
    return f'{PLAIN} required username="u" password="{value}";'


def _everywhere(value):
    """Every secret key, below every prefix; ``value`` makes it of the key's name."""
    return {p + key: value(key) for p in PREFIXES for key in SECRETS} | {
        key: value(key) for key in UNKNOWN
    }


def _login(value, **more):
    """Clients that would use it, and cannot connect."""
    made = {}
    for side in ("source.cluster.", "target.cluster."):
        made |= {
            f"{side}security.protocol": "SASL_PLAINTEXT", f"{side}sasl.mechanism": "PLAIN",
            f"{side}sasl.jaas.config": value,
        }  # fmt: skip
    return made | more


def _stores(value, key):
    """Clients with a store, or keys and certificates, that are not there or no such thing."""
    common = {"security.protocol": "SSL", "ssl.keystore.password": value, "ssl.key.password": value}
    more = (
        {"ssl.keystore.location": "/nowhere.p12", "ssl.keystore.type": "PKCS12"}
        if key == "location"
        else {"ssl.keystore.type": "PEM", "ssl.keystore.key": value,
              "ssl.keystore.certificate.chain": "none"}
    )  # fmt: skip
    return {f"{side}.cluster.{k}": v for side in ("source", "target")
            for k, v in {**common, **more}.items()}  # fmt: skip


class IdleEngine:
    """In Spark's place: nothing is copied, since no cluster answers."""

    place = Place(None)

    def __init__(self, *_): ...

    def begin(self): ...

    await_start = stop = begin

    def check_secrets(self, _clusters): ...

    def forget(self, _owner): ...

    cancel_rounds = forget

    def leases_per_flow(self, _flows):
        return 1

    def still_for(self):
        return 0.0

    def snapshot(self):
        return EngineSnapshot(EngineState.READY)


class Lab:
    """A worker that runs connectors, its REST API, and all that came out of both."""

    def __init__(self, folder):
        vault = folder / "vault.properties"
        names = {*SECRETS, *UNKNOWN, "broken.jaas", "tasks.max", "topics", "servers"}
        values = {name: f"{REFERRED}-{name}" for name in names} | {
            "sasl.jaas.config": _jaas(f"{REFERRED}-jaas"),
            "broken.jaas": f'{PLAIN} required password="{REFERRED}',
            "topics": f"{REFERRED}(",
            "servers": f"{REFERRED}:no-port",
        }
        lines = (f"{k}={v}\n".replace("\\", "\\\\") for k, v in values.items())
        vault.write_text("".join(lines))
        self.reference = lambda key: f"${{file:{vault}:{key}}}"
        self.worker = StoredWorker(**{
            "config.providers": "file", "config.providers.file.class": PROVIDER,
            "config.providers.file.param.allowed.paths": str(folder),
        })  # fmt: skip
        storage: Any = self.worker.storage
        self.storage = storage
        self.client: Any = None
        self.mirror = service.Mirror(None)
        self.fleet = Fleet(self.worker.config, "w:8083", self.mirror, storage)
        #: What was asked, and the whole answer.
        self.answers: list[tuple[str, bytes]] = []

    def ask(self, method, path, body=None):
        kind = {"Content-Type": "application/json"}
        reply = self.client(method, path, body, {} if body is None else kind)
        text = b"%r %s" % (list(reply.headers.items()), reply.body)
        self.answers.append((f"{method} {path}", text))
        return reply

    def run(self):
        """Until every connector has been tried, and has failed."""
        deadline = time.monotonic() + 120
        names = frozenset(self.storage.view.connectors)
        while time.monotonic() < deadline:
            for request in self.storage.take_requests():
                self.fleet.restart(request)
            self.fleet.settle(self.storage.view, Assignment(1, names))
            found = [self.storage.view.statuses.get(name) for name in names]
            if all(s and s.connector and s.connector.state == "FAILED" for s in found):
                return
            time.sleep(0.05)  # between two looks, as the worker does
        raise AssertionError("not every connector has failed")

    def look_everywhere(self):
        """Every route that reads, about every connector and flow."""
        names = [quote(name) for name in self.storage.view.connectors]
        values = {"connector": names, "flow": names, "task": ["0"], "plugin": CLASSES,
                  "logger": ["root"]}  # fmt: skip
        document = self.ask("GET", "/openapi.json").json
        for path, operations in document["paths"].items():
            if "get" not in operations or path.endswith("/stream"):
                continue
            [name] = re.findall(r"\{(\w+)\}", path)[:1] or [""]
            for value in values.get(name, [""]):
                self.ask("GET", re.sub(r"\{task\}", "0", path).replace(f"{{{name}}}", value))
        self.ask("GET", "/connectors?expand=info&expand=status")
        self.ask("GET", "/connectors?expand=status")
        self.ask("GET", "/heliograph/v1/events?limit=1000")


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A lab in which everything was done that might tell a secret."""
    said: list[logging.LogRecord] = []
    handler = logging.Handler(logging.DEBUG)
    handler.emit = said.append
    logger = logging.getLogger()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service, "Engine", IdleEngine)
        patch.setattr(flow_service, "_START_PATIENCE_SECONDS", 0.1)
        made: Any = Lab(tmp_path_factory.mktemp("vault"))
        mirror = made.mirror
        mirrored = Mirrored(mirror.snapshot, mirror.events, mirror.supervisor, mirror.history)
        levels = {name: logging.getLogger(name).level for name in ("", "heliograph")}
        logger.addHandler(handler)
        for name in levels:
            logging.getLogger(name).setLevel(logging.DEBUG)
        try:
            with serving(made.worker.herder, mirrored,
                         limits=Limits(requests_per_second=0)) as made.client:  # fmt: skip
                _do_all(made)
            mirror.close()
        finally:
            logger.removeHandler(handler)
            for name, level in levels.items():
                logging.getLogger(name).setLevel(level)
        formatter = logging.Formatter("%(levelname)s %(message)s")
        made.lines = [formatter.format(record) for record in said]
        yield made


def _do_all(lab):
    inline, reference = (lambda key: f"{INLINE}-{key}"), lab.reference
    for kind in CLASSES:
        for how, value in (("inline", inline), ("reference", reference)):
            config = CONFIG | {"connector.class": kind} | _everywhere(value)
            name = f"{kind}-{how}"
            assert lab.ask("POST", "/connectors", {"name": name, "config": config}).status == 201
            assert lab.ask("PUT", f"/connectors/{name}/config", config).status == 200
            assert lab.ask("PATCH", f"/connectors/{name}/config", {"x": "1"}).status == 200
            _ask_in_vain(lab, kind, config)
    broken = f'{PLAIN} required password="{INLINE}'
    for name, config in {
        "login": _login(_jaas(INLINE)), "login-ref": _login(reference("sasl.jaas.config")),
        "broken": _login(broken), "broken-ref": _login(reference("broken.jaas")),
        "store": _stores(INLINE, "location"),
        "store-ref": _stores(reference("ssl.keystore.password"), "location"),
        "pem": _stores(INLINE, "key"), "pem-ref": _stores(reference("ssl.keystore.key"), "key"),
        "servers-ref": {"source.cluster.bootstrap.servers": reference("servers")},
        "no-alias": {"source.cluster.alias": "", **_login(_jaas(INLINE))},
        "number-ref": {"source.consumer.fetch.max.bytes": reference("tasks.max")},
    }.items():  # fmt: skip
        body = {"name": name, "config": CONFIG | config}
        assert lab.ask("POST", "/connectors", body).status == 201, name
    lab.run()
    lab.look_everywhere()
    for word in ("restart", "restart?includeTasks=true&onlyFailed=true"):
        for name in list(lab.storage.view.connectors):
            lab.ask("POST", f"/connectors/{name}/{word}")
    lab.run()
    for word in ("pause", "resume", "stop"):
        lab.ask("PUT", f"/connectors/login/{word}")
        lab.fleet.settle(lab.storage.view, Assignment(1, frozenset({"login", "broken"})))
    place = {"cluster": "A", "partition": 0, "topic": "orders"}
    lab.ask("PUT", "/connectors/broken/stop")
    body = {"offsets": [{"partition": place, "offset": {"offset": 1}}]}
    for name in ("login", "broken"):
        lab.ask("PATCH", f"/connectors/{name}/offsets", body)
        lab.ask("DELETE", f"/connectors/{name}/offsets")
    lab.ask("DELETE", "/connectors/pem")
    lab.fleet.settle(lab.storage.view, Assignment(1, frozenset()))


def _ask_in_vain(lab, kind, config):
    """Requests that are mostly refused, and what validation says."""
    validate = f"/connector-plugins/{kind}/config/validate"
    wrong = [
        {"tasks.max": "x"}, {"topics": lab.reference("topics")}, {"connector.class": "com.acme.X"},
        {"tasks.max": lab.reference("tasks.max")}, {"topcis": config["ssl.key.password"]},
        {"name": "another"},
        {"sasl.oauthbearer.token.endpoint.url": f"https://idp/t?key={INLINE}"},
    ]  # fmt: skip
    assert lab.ask("PUT", validate, config).status == 200
    for change in wrong:
        lab.ask("POST", "/connectors", {"name": "refused", "config": config | change})
        lab.ask("PUT", "/connectors/refused/config", config | change)
        lab.ask("PATCH", f"/connectors/{kind}-inline/config", change)
        lab.ask("PUT", validate, config | change)
    no_class = {key: value for key, value in config.items() if key != "connector.class"}
    for body in ({"name": "refused", "config": no_class}, {"name": "refused", **config}, [config],
                 {"name": "refused", "config": config, "initial_state": "x"},
                 {"name": "refused", "config": config | {"a": {"b": INLINE}}},
                 json.dumps(config).encode()[:-9]):  # fmt: skip
        lab.ask("POST", "/connectors", body)
        lab.ask("PUT", validate, body)
    # A key that only one of the three judges may have been let pass.
    lab.ask("DELETE", "/connectors/refused")


def test_what_was_done_could_have_told_secrets(lab):
    asked = {what.partition("?")[0] for what, _ in lab.answers}
    assert len(asked) > 100
    configs = b"".join(text for what, text in lab.answers if SHOWN.fullmatch(what))
    # Inline ones are shown where Connect shows them, references as they were given.
    for key in (*SECRETS, *UNKNOWN):
        assert f"{INLINE}-{key}".encode() in configs
        assert f":{key}}}".encode() in configs
    traces = [s.connector.trace for s in lab.storage.view.statuses.values() if s.connector]
    assert len(lab.lines) > 100 and any("cannot" in trace or "refused" in trace for trace in traces)


def test_a_secret_by_reference_is_found_nowhere(lab):
    assert [what for what, text in lab.answers if REFERRED.encode() in text] == []
    assert [line for line in lab.lines if REFERRED in line] == []
    assert [
        key for _, key, value in lab.storage.records if REFERRED.encode() in (value or b"")
    ] == []
    assert REFERRED not in repr(lab.mirror.events.history())


def test_a_secret_in_a_config_is_shown_and_stored_only_as_connect_does(lab):
    told = {what for what, text in lab.answers if INLINE.encode() in text}
    assert [what for what in sorted(told) if not SHOWN.fullmatch(what)] == []
    assert [line for line in lab.lines if INLINE in line] == []
    stored = {key for _, key, value in lab.storage.records if INLINE.encode() in (value or b"")}
    assert [key for key in stored if not key.startswith((b"connector-", b"task-"))] == []
    assert INLINE not in repr(lab.mirror.events.history())


def test_refusals_tell_no_secret(lab):
    """Also of routes that show configs: a refusal is no config."""
    refusals = [(what, text) for what, text in lab.answers if b'"error_code"' in text]
    assert len(refusals) > 50
    assert [what for what, text in refusals if INLINE.encode() in text] == []


def test_run_listen_shows_no_secret_of_its_file():
    jaas = {f"A.{p}sasl.jaas.config": _jaas(INLINE) for p in ("", "consumer.", "admin.")}
    stores = {f"A->B.{p}{key}": f"{INLINE}-{key}" for p in PREFIXES for key in SECRETS
              if p and key != "sasl.jaas.config"}  # fmt: skip
    mirror: Any = FileMirror(**jaas, **stores)
    herder = MirrorHerder(mirror, lambda: "w:8083", changeable=True)
    seen = b""
    with serving(
        herder, Mirrored(mirror.snapshot, mirror.events, mirror.supervisor, mirror.history)
    ) as ask:
        for name in herder.connectors():
            for more in ("", "/config", "/tasks", "/status", "/offsets"):
                seen += ask.get(f"/connectors/{quote(name)}{more}").body
        seen += ask.get("/connectors?expand=info").body
    assert b'"source.consumer.sasl.jaas.config":"[hidden]"' in seen
    assert INLINE.encode() not in seen
