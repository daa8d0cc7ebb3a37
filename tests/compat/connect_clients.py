"""What kafka-ui, AKHQ, Strimzi and readers of tutorials send, in their order.

Each function takes an `Api` without connectors, asks as that client does, and asserts what the
client reads of the answers: fields, types, statuses. At the end no connector is left. The orders
were read in the public sources of kafbat/kafka-ui (KafkaConnectService), tchiotludo/akhq with
SourceLabOrg/kafka-connect-client, and strimzi/strimzi-kafka-operator (KafkaConnectApiImpl).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from connect_cases import TOPIC, config, offsets_of, states, status
from connect_contract import JSON_TYPE, Answer, Api, Step

__all__ = ["CLIENTS"]

_ACCEPT = {"Accept": "application/json"}
_STATES = {"RUNNING", "FAILED", "PAUSED", "UNASSIGNED", "RESTARTING", "STOPPED"}
_TYPES = {"BOOLEAN", "CLASS", "DOUBLE", "INT", "LIST", "LONG", "PASSWORD", "SHORT", "STRING"}


class _Client:
    """Sends what one program would, with its headers."""

    def __init__(self, api: Api, headers: Mapping[str, str], body_headers: Mapping[str, str]):
        self._api = api
        self._headers = headers
        self._body_headers = body_headers

    def __call__(
        self,
        request: str,
        expected: int,
        body: Any = None,
        *,
        until: Callable[[Answer], bool] | None = None,
    ) -> Any:
        """The body of the answer, asked for until it is as wanted, and then of that status."""
        headers = self._headers if body is None else self._body_headers
        found = self._api.answer(Step("", request, expected, body, headers, until=until))
        assert found.status == expected and (until is None or until(found)), (request, found)
        if found.body is not None:
            assert found.headers["Content-Type"].startswith("application/json"), request
        return found.body


def _is_map_of_strings(found: Any) -> bool:
    return isinstance(found, dict) and all(isinstance(value, str) for value in found.values())


def _check_info(info: Any, name: str) -> None:
    assert info["name"] == name
    assert _is_map_of_strings(info["config"])
    assert info["type"] in {"source", "sink"}
    for task in info["tasks"]:
        assert (task["connector"], type(task["task"])) == (name, int)


def _check_state(found: Any) -> None:
    """What all three read of a connector's or a task's state."""
    assert found["state"] in _STATES
    assert isinstance(found["worker_id"], str)
    assert isinstance(found.get("trace", ""), str)


def _check_status(found: Any, name: str) -> None:
    assert found["name"] == name
    _check_state(found["connector"])
    for task in found["tasks"]:
        assert isinstance(task["id"], int)
        _check_state(task)
        # Clients know no such task.
        assert task["state"] != "STOPPED"


def _check_validation(found: Any, errors: int) -> None:
    assert isinstance(found["name"], str)
    assert found["error_count"] == errors
    assert all(isinstance(group, str) for group in found["groups"])
    for one in found["configs"]:
        definition, value = one["definition"], one["value"]
        # AKHQ breaks on a definition that is null.
        assert definition["type"] in _TYPES
        assert definition["importance"] in {"LOW", "MEDIUM", "HIGH"}
        assert definition["width"] in {"SHORT", "MEDIUM", "LONG", "NONE"}
        assert isinstance(definition["required"], bool)
        for name in ("name", "documentation", "display_name"):
            assert isinstance(definition[name], str)
        for name in ("default_value", "group"):
            assert definition[name] is None or isinstance(definition[name], str)
        assert isinstance(definition["dependents"], list)
        assert value["name"] == definition["name"]
        assert value["value"] is None or isinstance(value["value"], str)
        assert isinstance(value["visible"], bool)
        assert all(isinstance(text, str) for text in value["errors"])
        assert isinstance(value["recommended_values"], list)


def kafka_ui(api: Api) -> None:
    """Its client is generated from a description of Connect's API: states and types are enums."""
    ask = _Client(api, _ACCEPT, JSON_TYPE | _ACCEPT)
    name, made = "ui", config(topics=TOPIC, tasks__max=2)

    # A page to create a connector: the plugins, and what one of them says of each draft.
    plugins = ask("GET /connector-plugins", 200)
    assert all(isinstance(plugin["class"], str) for plugin in plugins)
    plugin = plugins[0]["class"]
    draft = {"name": name, "connector.class": plugin}
    path = f"PUT /connector-plugins/{plugin}/config/validate"
    _check_validation(ask(path, 200, draft), errors=1)

    # Whether the name is free, then the connector; it is shown at once, with or without a status.
    assert name not in ask("GET /connectors", 200)
    _check_info(ask("POST /connectors", 201, {"name": name, "config": made}), name)
    _check_info(ask(f"GET /connectors/{name}", 200), name)
    ask(f"GET /connectors/{name}/status", 200, until=states("RUNNING", 2))

    # The list: names, then all of each; and the two expansions that newer versions ask for.
    assert ask("GET /connectors", 200) == [name]
    for found in ask("GET /connectors?expand=info&expand=status", 200).values():
        _check_info(found["info"], name)
        _check_status(found["status"], name)
        assert found["status"]["type"] == "source"
    _check_info(ask(f"GET /connectors/{name}", 200), name)
    _check_status(ask(f"GET /connectors/{name}/status", 200), name)
    assert ask(f"GET /connectors/{name}/config", 200)["tasks.max"] == "2"
    _ui_tasks(ask, name)
    assert isinstance(ask(f"GET /connectors/{name}/topics", 200)[name]["topics"], list)

    # The buttons.
    changed = {**made, "offset.lag.max": 50}
    _check_info(ask(f"PUT /connectors/{name}/config", 200, changed), name)
    ask(f"POST /connectors/{name}/restart?includeTasks=false&onlyFailed=false", 204)
    for task in _ui_tasks(ask, name):
        ask(f"POST /connectors/{name}/tasks/{task}/restart", 204)
    ask(f"PUT /connectors/{name}/pause", 202)
    ask(f"GET /connectors/{name}/status", 200, until=states("PAUSED", 2))
    ask(f"PUT /connectors/{name}/resume", 202)
    ask(f"GET /connectors/{name}/status", 200, until=states("RUNNING", 2))
    # Positions: it tells one that is not stopped from one that is not there.
    ask(f"DELETE /connectors/{name}/offsets", 400)
    ask("DELETE /connectors/nobody/offsets", 404)
    ask(f"PUT /connectors/{name}/stop", 204)
    ask(f"GET /connectors/{name}/status", 200, until=states("STOPPED", 0))
    ask(f"DELETE /connectors/{name}/offsets", 200)
    ask(f"DELETE /connectors/{name}", 204)
    assert ask("GET /connectors", 200) == []


def _ui_tasks(ask: _Client, name: str) -> list[int]:
    """The tasks, then the status of each."""
    numbers = []
    for task in ask(f"GET /connectors/{name}/tasks", 200):
        assert task["id"]["connector"] == name
        assert _is_map_of_strings(task["config"])
        number = task["id"]["task"]
        found = ask(f"GET /connectors/{name}/tasks/{number}/status", 200)
        assert found["id"] == number
        _check_state(found)
        numbers.append(number)
    assert numbers == [0, 1]
    return numbers


def akhq(api: Api) -> None:
    """With kafka-connect-client: any 2xx is a success, and a body is always typed as JSON."""
    ask = _Client(api, JSON_TYPE | _ACCEPT, JSON_TYPE | _ACCEPT)
    name, made = "hq", config(topics=TOPIC)

    # The plugins, each validated with hardly anything: that must not fail.
    for plugin in ask("GET /connector-plugins", 200):
        assert {"class", "type", "version"} == set(plugin)
        draft = {"connector.class": plugin["class"], "topics": "getPlugins"}
        found = ask(f"PUT /connector-plugins/{plugin['class']}/config/validate", 200, draft)
        _check_validation(found, errors=2)

    # Created, and shown by two requests of which the second may come too early.
    _check_info(ask("POST /connectors", 201, {"name": name, "config": made}), name)
    _akhq_definition(ask, name)
    found = ask("GET /connectors?expand=info&expand=status", 200)
    _check_info(found[name]["info"], name)
    _check_status(found[name]["status"], name)

    # The form of a connector, and what it sends back: the config that it was shown.
    shown = ask(f"GET /connectors/{name}", 200)["config"]
    ask(f"PUT /connectors/{name}/config", 200, shown)
    _akhq_definition(ask, name)
    ask(f"GET /connectors/{name}/status", 200, until=states("RUNNING", 2))
    ask(f"PUT /connectors/{name}/pause", 202)
    ask(f"GET /connectors/{name}/status", 200, until=states("PAUSED", 2))
    ask(f"PUT /connectors/{name}/resume", 202)
    ask(f"GET /connectors/{name}/status", 200, until=states("RUNNING", 2))
    ask(f"POST /connectors/{name}/restart", 204)
    ask(f"POST /connectors/{name}/tasks/0/restart", 204)
    ask(f"DELETE /connectors/{name}", 204)
    message = ask(f"GET /connectors/{name}", 404)
    assert message == {"error_code": 404, "message": f"Connector {name} not found"}


def _akhq_definition(ask: _Client, name: str) -> None:
    _check_info(ask(f"GET /connectors/{name}", 200), name)
    _check_status(ask(f"GET /connectors/{name}/status", 200, until=status(200)), name)


def strimzi(api: Api) -> None:
    """The operator of a KafkaMirrorMaker2: names with an arrow, and statuses to the letter."""
    ask = _Client(api, _ACCEPT, JSON_TYPE | _ACCEPT)
    # A DELETE has the type of a body, and none.
    delete = _Client(api, JSON_TYPE | _ACCEPT, JSON_TYPE | _ACCEPT)
    name = "src->dst.MirrorSourceConnector"
    path = "/connectors/src%2D%3Edst.MirrorSourceConnector"
    made = config(topics=TOPIC, tasks__max=2)

    # A reconciliation that finds nothing.
    assert ask("GET /connectors", 200) == []
    for plugin in ask("GET /connector-plugins", 200):
        assert all(isinstance(plugin[key], str) for key in ("class", "type", "version"))
    levels = ask("GET /admin/loggers/", 200)
    for level in levels.values():
        assert set(level) <= {"level", "last_modified"}
    for logger in ("root", "org.apache.kafka.connect"):
        ask(f"PUT /admin/loggers/{logger}?scope=cluster", 204, {"level": "INFO"})
    ask(f"GET {path}/config", 404)
    _check_info(ask("POST /connectors", 201, {"name": name, "config": made,
                                              "initial_state": "RUNNING"}), name)  # fmt: skip
    _check_status(ask(f"GET {path}/status", 200, until=status(200)), name)
    ask(f"GET {path}/status", 200, until=states("RUNNING", 2))
    assert all(isinstance(topic, str) for topic in ask(f"GET {path}/topics", 200)[name]["topics"])

    # Another one that finds it as it should be: else it would send it again each time.
    assert ask("GET /connectors", 200) == [name]
    wanted = {key: str(value) for key, value in made.items()} | {"name": name}
    assert ask(f"GET {path}/config", 200) == wanted

    # A change of the resource, then its states.
    changed = made | {"offset.lag.max": 10}
    _check_info(ask(f"PUT {path}/config", 200, changed), name)
    assert ask(f"GET {path}/config", 200) == wanted | {"offset.lag.max": "10"}
    for word, code, state, tasks in (("pause", 202, "PAUSED", 2), ("resume", 202, "RUNNING", 2),
                                     ("stop", 204, "STOPPED", 0)):  # fmt: skip
        assert ask(f"PUT {path}/{word}", code) is None
        ask(f"GET {path}/status", 200, until=states(state, tasks))

    # Positions, by annotation, of a connector that is stopped.
    place = {"cluster": "src", "partition": 0, "topic": TOPIC}
    ask(f"GET {path}/offsets", 200, until=offsets_of(9, 9, 9))
    change = {"offsets": [{"partition": place, "offset": {"offset": 3}}]}
    assert isinstance(ask(f"PATCH {path}/offsets", 200, change)["message"], str)
    ask(f"GET {path}/offsets", 200, until=offsets_of(3, 9, 9))
    assert isinstance(ask(f"DELETE {path}/offsets", 200)["message"], str)
    ask(f"PUT {path}/resume", 202)
    ask(f"GET {path}/status", 200, until=states("RUNNING", 2))

    # Restarts: by annotation, and by itself if something failed.
    ask(f"POST {path}/restart?includeTasks=false&onlyFailed=false", 204)
    found = ask(f"POST {path}/restart?includeTasks=true&onlyFailed=true", 202)
    _check_status(found, name)
    ask(f"POST {path}/tasks/0/restart", 204)

    # The resource is deleted: until the status is gone, the operator waits.
    assert delete(f"DELETE {path}", 204) is None
    gone = ask(f"GET {path}/status", 404, until=status(404))
    assert gone["error_code"] == 404
    assert ask("GET /connectors", 200) == []


#: As they are printed, spaces and all; only addresses and the topic are those of the test.
_TUTORIALS = {
    "mm2-source": """{
      "name" : "mm2-source",
      "config": {
        "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
        "source.cluster.alias": "primary",
        "target.cluster.alias": "backup",
        "source.cluster.bootstrap.servers": "{source}",
        "target.cluster.bootstrap.servers": "{target}",
        "topics": "{topic}",
        "tasks.max": "1",
        "replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "replication.policy.separator": "_",
        "refresh.topics.enabled": "true",
        "refresh.topics.interval.seconds": "30",
        "sync.topic.configs.enabled": "true",
        "sync.topic.acls.enabled": "false",
        "consumer.group.id": "mm2-source",
        "producer.enable.idempotence": "true",
        "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        "value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        "clusters": "primary,backup",
        "heartbeats.replication.enabled": false
      }
    }\n""",
    "mm2-checkpoint": """{"name": "mm2-checkpoint", "config": {
        "connector.class": "MirrorCheckpointConnector",
        "clusters": "primary,backup",
        "source.cluster.alias": "primary", "target.cluster.alias": "backup",
        "source.cluster.bootstrap.servers": "{source}",
        "target.cluster.bootstrap.servers": "{target}",
        "tasks.max": 1, "groups": "contract-.*", "topics": ".*",
        "replication.policy.separator": "_",
        "checkpoints.topic.replication.factor": 1,
        "emit.checkpoints.interval.seconds": "1",
        "refresh.groups.interval.seconds": "20",
        "sync.group.offsets.enabled": true}}""",
    "mm2-heartbeat": """
    {"name":"mm2-heartbeat","config":{"connector.class":"MirrorHeartbeat","tasks.max":"1",
     "source.cluster.alias":"primary","target.cluster.alias":"backup",
     "source.cluster.bootstrap.servers":"{source}","target.cluster.bootstrap.servers":"{target}",
     "heartbeats.topic.replication.factor":"1","emit.heartbeats.interval.seconds":"1"}}""",
}


def tutorials(api: Api) -> None:
    """``curl -X POST -H 'Content-Type: application/json' --data @file``."""
    curl = {"Accept": "*/*", "User-Agent": "curl/8.5.0"}
    ask = _Client(api, curl, curl | JSON_TYPE)
    for name, text in _TUTORIALS.items():
        _check_info(ask("POST /connectors", 201, text.replace("{topic}", TOPIC)), name)
    for name in _TUTORIALS:
        ask(f"GET /connectors/{name}/status", 200, until=_runs)
    remote = f"primary_{TOPIC}"
    ask("GET /connectors/mm2-source/topics", 200,
        until=lambda found: found.body == {"mm2-source": {"topics": [remote]}})  # fmt: skip
    assert ask("GET /connectors/mm2-source/config", 200)["replication.policy.separator"] == "_"
    for name in _TUTORIALS:
        ask(f"DELETE /connectors/{name}", 204)
        ask(f"GET /connectors/{name}/status", 404, until=status(404))


def _runs(found: Answer) -> bool:
    return found.status == 200 and found.body["connector"]["state"] == "RUNNING"


CLIENTS = (kafka_ui, akhq, strimzi, tutorials)
