"""A REST server over real sockets, in front of a herder that does what a test says."""

from __future__ import annotations

import http.client
import json
import ssl
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from heliograph.connect.api import (
    ConnectError,
    ConnectorInfo,
    ConnectorStatus,
    Initial,
    PartitionOffset,
    State,
    TaskInfo,
    TaskStatus,
)
from heliograph.rest.app import RestApp
from heliograph.rest.server import RestServer
from heliograph.rest.settings import Listener, RestSettings

LOCAL = Listener("http", "127.0.0.1", 0)
CLASS = "org.apache.kafka.connect.mirror.MirrorSourceConnector"


@dataclass
class Connector:
    config: dict
    target: Initial = Initial.RUNNING
    offsets: list = field(default_factory=list)


class ScriptedHerder:
    """Keeps connectors in memory. ``calls`` is what was asked; ``fail`` is raised if it is set."""

    def __init__(self):
        self.changeable = True
        self.connectors_of = {}
        self.calls = []
        self.fail = None
        self.healthy = (200, "healthy", "Worker has completed startup.")
        self.waits_for = None

    def add(self, name, **config):
        self.connectors_of[name] = Connector({"connector.class": CLASS, **config, "name": name})
        return self.connectors_of[name]

    def _find(self, name, text="Connector {} not found"):
        if self.fail is not None:
            raise self.fail
        if name not in self.connectors_of:
            raise ConnectError(404, text.format(name))
        return self.connectors_of[name]

    def server_info(self):
        return {"version": "4.3.1", "commit": "abc", "kafka_cluster_id": "id"}

    def health(self):
        if self.waits_for is not None:
            self.waits_for.wait(60)
        return self.healthy

    def connectors(self):
        return list(self.connectors_of)

    def info(self, name):
        found = self._find(name)
        tasks = () if found.target is Initial.STOPPED else (0, 1)
        return ConnectorInfo(name, found.config, tasks)

    def status(self, name):
        found = self._find(name, "No status found for connector {}")
        state = State(str(found.target))
        tasks = tuple(TaskStatus(n, state, "w:8083", version="4.3.1") for n in (0, 1))
        tasks = () if state is State.STOPPED else (replace(tasks[0], trace="why"), tasks[1])
        return ConnectorStatus(name, state, "w:8083", tasks, version="4.3.1")

    def create(self, name, config, initial):
        self.calls.append(("create", name, config, initial))
        if self.fail is not None:
            raise self.fail
        if name in self.connectors_of:
            raise ConnectError(409, f"Connector {name} already exists")
        self.connectors_of[name] = Connector(dict(config), initial or Initial.RUNNING)
        return ConnectorInfo(name, config)

    def put_config(self, name, config):
        self.calls.append(("put", name, config))
        new = name not in self.connectors_of
        self.connectors_of[name] = Connector(dict(config))
        return new, ConnectorInfo(name, config)

    def patch_config(self, name, patch):
        merged = {**self._find(name).config, **patch}
        self.connectors_of[name].config = {k: v for k, v in merged.items() if v is not None}
        return self.info(name)

    def delete(self, name):
        self._find(name)
        del self.connectors_of[name]

    def set_target(self, name, target):
        self._find(name, "Unknown connector {}").target = target

    def restart(self, name, *, include_tasks, only_failed):
        self._find(name, "Unknown connector: {}")
        self.calls.append(("restart", include_tasks, only_failed))
        return self.status(name) if include_tasks or only_failed else None

    def tasks(self, name):
        return [TaskInfo(name, n, self._find(name).config) for n in (0, 1)]

    def task_status(self, name, task):
        if name not in self.connectors_of or task not in (0, 1):
            raise ConnectError(404, f"No status found for task {name}-{task}")
        return self.status(name).tasks[task]

    def restart_task(self, name, task):
        self._find(name, "Unknown connector: {}")
        if task not in (0, 1):
            raise ConnectError(404, f"Unknown task: {name}-{task}")

    def topics(self, name):
        return ["A.orders"] if name in self.connectors_of else []

    def reset_topics(self, name):
        self.calls.append(("reset topics", name))

    def offsets(self, name):
        return self._find(name).offsets

    def alter_offsets(self, name, offsets):
        self._find(name).offsets = [PartitionOffset(o.partition, o.offset) for o in offsets]
        return "The offsets for this connector have been altered successfully"

    def reset_offsets(self, name):
        self._find(name).offsets = []
        return "The offsets for this connector have been reset successfully"

    def plugins(self, *, connectors_only):
        found = [{"class": CLASS, "type": "source", "version": "4.3.1"}]
        return found if connectors_only else [*found, {"class": "c", "type": "converter"}]

    def plugin_config(self, plugin, version):
        if plugin != "MirrorSource":
            raise ConnectError(404, f"Unknown plugin {plugin}.")
        return [{"name": "topics", "version": version}]

    def validate(self, plugin, config):
        return {"name": plugin, "error_count": 0, "groups": [], "configs": [config]}

    def loggers(self):
        return {"root": {"level": "INFO", "last_modified": None}}

    def logger(self, name):
        if name != "root":
            raise ConnectError(404, f"Logger {name} not found.")
        return {"level": "INFO", "last_modified": None}

    def set_level(self, name, level, *, cluster, seconds=None):
        self.calls.append(("level", name, level, cluster, *([seconds] if seconds else [])))
        return [name]


@dataclass
class Reply:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def message(self):
        found = self.json
        assert set(found) == {"error_code", "message"}
        assert found["error_code"] == self.status
        return found["message"]


@dataclass
class Client:
    """Sends requests exactly as they are given."""

    listener: Listener
    context: ssl.SSLContext | None = None
    headers: dict = field(default_factory=dict)

    def connect(self):
        where = (self.listener.host or "127.0.0.1", self.listener.port)
        if self.listener.scheme == "https":
            return http.client.HTTPSConnection(*where, context=self.context, timeout=60)
        return http.client.HTTPConnection(*where, timeout=60)

    def __call__(self, method, path, body=None, headers=None, *, host=None):
        headers = {**self.headers, **(headers or {})}
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            headers.setdefault("Content-Type", "application/json")
        connection = self.connect()
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            if host != "":
                connection.putheader("Host", host or f"127.0.0.1:{self.listener.port}")
            for name, value in headers.items():
                connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            return Reply(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def get(self, path, **headers):
        return self("GET", path, headers=headers)


@contextmanager
def serving(herder=None, mirrored=None, health=None, **settings):
    """A client of a server; ``settings`` as of `RestSettings`."""
    settings.setdefault("listeners", (LOCAL,))
    made = RestSettings(**settings)
    server = RestServer(RestApp(herder or ScriptedHerder(), made, mirrored, health), made)
    server.start()
    try:
        yield Client(server.addresses[0])
    finally:
        server.close()
