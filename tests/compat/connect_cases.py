"""The contract of Connect's REST API as data: requests in their order, and accepted differences.

Numbers are those of the list in the contract's last section. Each step's status is what a real
worker answers; the bodies are in connect_answers.json. Some steps need what earlier ones did. At
the end no connector is left.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from connect_contract import (
    Answer,
    Step,
    definitions,
    errors,
    keyed,
    nothing,
    shape,
    unordered,
    values,
)
from mirror_process import wait_for

TOPIC = "contract-orders"
#: For connectors beside the first: of two that mirror one topic, ours lets the first do it.
OTHER_TOPIC = "contract-parts"
GROUP = "contract-billing"
_PARTITIONS = 3
_RECORDS = 10  # in each partition
_LAST = _RECORDS - 1

_NO_SECRETS = "the real worker shows the whole config there, passwords included"
#: (steps, differences, reason): patterns of the differences from the real worker that are wanted;
#: the second is one of "<place>: real <value>, ours <value>". Every row is in docs/, too; one that
#: matches no step fails a test.
ACCEPTED: list[tuple[str, str, str]] = [
    ("7 with charset", "body/message: *", _NO_SECRETS),
    ("8 empty config", "body/message: *", _NO_SECRETS),
    ("16 *no class", "body/message: *", _NO_SECRETS),
    ("22 without class", "body/message: *", _NO_SECRETS),
    (
        "*",
        "headers/Content-Type: real '', ours 'application/json'",
        "the real worker leaves out the type of some errors, which are JSON",
    ),
    (
        "*",
        "headers/Allow: real 'absent', ours *",
        "RFC 9110 asks for it in answers with 405; the real worker leaves it out",
    ),
    ("37 keys of *", "body/heliograph.*", "keys that only we have"),
    ("38 good *", "body/configs/heliograph.*", "keys that only we have"),
    ("3[78] *", "body/*sasl.mechanism/*: real 'GSSAPI', ours None", "Kerberos is not offered"),
    ("3[78] *", "body/*.interval.seconds/*", "new topics and groups are seen within seconds"),
    (
        "38 exactly once, uncommitted",
        "*",
        "exactly once needs no read_committed here, which is the default besides",
    ),
    (
        "38 no regular expression",
        "*",
        "the real worker accepts it, and then the connector fails",
    ),
]


def prepare(source: str) -> None:
    """What the connectors mirror: a topic with records, and a group that has read some of them.

    Harmless if they are there already.
    """
    client: dict[str, str | int | float | bool] = {"bootstrap.servers": source}
    admin = AdminClient(client)  # requests end with it
    topics = [NewTopic(name, _PARTITIONS, 1) for name in (TOPIC, OTHER_TOPIC)]
    try:
        for future in admin.create_topics(topics).values():
            future.result(60)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
        return
    producer = Producer(client)
    for index in range(_PARTITIONS):
        for number in range(_RECORDS):
            producer.produce(TOPIC, b"%d" % number, partition=index)
    assert producer.flush(60) == 0
    consumer = Consumer(client | {"group.id": GROUP})
    try:
        wait_for(lambda: _commit(consumer), 120, "the group's offsets are committed")
    finally:
        consumer.close()


def _commit(consumer: Consumer) -> bool:
    """Whether it was done: a cluster that is new has no coordinator for a moment."""
    offsets = [TopicPartition(TOPIC, index, 5) for index in range(_PARTITIONS)]
    try:
        consumer.commit(offsets=offsets, asynchronous=False)
    except KafkaException as error:
        late = {KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
                KafkaError.COORDINATOR_NOT_AVAILABLE}  # fmt: skip
        if error.args[0].code() not in late:
            raise
        return False
    return True


def config(kind: str = "Source", **changes: Any) -> dict[str, Any]:
    """A connector's config; ``__`` in names stands for a dot, None takes a key out."""
    made = {
        "connector.class": f"org.apache.kafka.connect.mirror.Mirror{kind}Connector",
        "source.cluster.alias": "src",
        "target.cluster.alias": "dst",
        "source.cluster.bootstrap.servers": "{source}",
        "target.cluster.bootstrap.servers": "{target}",
        "topics": TOPIC,
        "groups": GROUP,
        "tasks.max": "2",
        "replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "checkpoints.topic.replication.factor": "1",
        "heartbeats.topic.replication.factor": "1",
        # MM2 mirrors the topic of heartbeats whatever ``topics`` says.
        "heartbeats.replication.enabled": "false",
        "emit.checkpoints.interval.seconds": "1",
    }
    made |= {key.replace("__", "."): value for key, value in changes.items()}
    return {key: value for key, value in made.items() if value is not None}


def create(name: str, made: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """The body of POST /connectors."""
    return {"name": name, "config": config() if made is None else made, **more}


def states(connector: str, tasks: int) -> Callable[[Answer], bool]:
    """True of a status when the connector and so many tasks have the state; no other tasks."""

    def settled(found: Answer) -> bool:
        match found:
            case Answer(200, _, {"connector": {"state": state}, "tasks": list(listed)}):
                return state == connector and [t["state"] for t in listed] == [connector] * tasks
        return False

    return settled


def status(code: int) -> Callable[[Answer], bool]:
    """True of an answer with the status."""
    return lambda found: found.status == code


def offsets_of(*wanted: int) -> Callable[[Answer], bool]:
    """True of the offsets of a connector when they are these, in any order.

    For a moment after a change the real worker may show a partition with null as its offset.
    """

    def settled(found: Answer) -> bool:
        listed = found.body.get("offsets", []) if isinstance(found.body, dict) else []
        shown = [(one["offset"] or {}).get("offset", -1) for one in listed]
        return sorted(shown) == sorted(wanted)

    return settled


def body_is(wanted: Any) -> Callable[[Answer], bool]:
    return lambda found: found.body == wanted


def _get(name: str, path: str, code: int = 200, **more: Any) -> Step:
    return Step(name, f"GET {path}", code, headers=None, **more)


def _bodiless(name: str, request: str, code: int, **more: Any) -> Step:
    return Step(name, request, code, headers=None, **more)


_GENERAL = [
    _get("1 root", "/"),
    _get("2 health", "/health", see=shape, until=status(200)),
    _get("3 no connectors", "/connectors/"),
    _get("3 without a slash", "/connectors"),
    _get("3 anything accepted", "/connectors?forward=bogus"),
    Step("3 only HTML accepted", "GET /connectors", 406, headers={"Accept": "text/html"}),
    Step("3 all types accepted", "GET /connectors", headers={"Accept": "*/*"}),
    Step("3 GET of another type", "GET /connectors", 415, headers={"Content-Type": "text/plain"}),
    _get("4 unknown path", "/nope", 404),
    _get("4 unknown below a connector", "/connectors/X/nope", 404),
    _get("4 tasks-config is gone", "/connectors/X/tasks-config", 404),
    _get("4 encoded slash", "/connectors/a%2Fb/status", 400, see=nothing),
    _get("4 encoded percent", "/connectors/a%25b/status", 400, see=nothing),
    _get("4 encoded zero", "/connectors/a%00b/status", 400, see=nothing),
    _get("4 bad escape", "/connectors/a%zz/status", 400, see=nothing),
    _get("4 bad UTF-8", "/connectors/%FF/status", 400, see=nothing),
    _get("4 empty name", "/connectors//status", 400, see=nothing),
    _get("4 other letters", "/connectors/%C3%A4%20b/status", 404),
    _get("4 a plus is a plus", "/connectors/a+b/status", 404),
    _bodiless("5 wrong method", "DELETE /connectors", 405),
    Step("5 POST to the root", "POST /", 405, {}),
    Step("5 PUT health", "PUT /health", 405, {}),
    _get("5 GET restart", "/connectors/X/restart", 405),
    Step("5 POST to a connector", "POST /connectors/X", 405, {}),
    Step("5 unknown method", "FOO /connectors", 405),
    _bodiless("5 HEAD", "HEAD /connectors", 200),
    _bodiless("5 HEAD of none", "HEAD /connectors/X", 404),
    _bodiless("5 OPTIONS", "OPTIONS /connectors", 200, see=nothing),
]

_FORM = {"Content-Type": "application/x-www-form-urlencoded"}
_CHARSET = {"Content-Type": "application/json; charset=utf-8"}
_BODIES = [
    Step("6 text", "POST /connectors", 415, create("bad"), {"Content-Type": "text/plain"}),
    Step("6 as curl -d", "POST /connectors", 415, create("bad"), _FORM),
    Step("7 no type", "POST /connectors", 415, create("bad"), None),
    Step("7 no body", "POST /connectors", 500, see=shape),
    _bodiless("7 neither", "POST /connectors", 500, see=shape),
    Step("7 with charset", "POST /connectors", 400, create("bad", {}), _CHARSET),
    Step("7 pause of another type", "PUT /connectors/X/pause", 415, None, _FORM),
    Step("7 pause of JSON's type", "PUT /connectors/X/pause", 404),
    Step("8 half an object", "POST /connectors", 500, "{", see=shape),
    Step("8 an array", "POST /connectors", 500, "[]", see=shape),
    Step("8 null", "POST /connectors", 500, "null", see=shape),
    Step("8 empty object", "POST /connectors", 500, "{}", see=shape),
    Step("8 more behind", "POST /connectors", 500, '{"name":"X"} x', see=shape),
    Step("8 bad UTF-8", "POST /connectors", 500, b'{"name":"\xff","config":{}}', see=shape),
    Step("8 empty config", "POST /connectors", 400, create("bad", {})),
    Step("8 config null", "POST /connectors", 500, {"name": "bad", "config": None}, see=shape),
    Step("8 no name", "POST /connectors", 400, {"config": config()}),
    Step("9 unknown field", "POST /connectors", 500, create("bad", foo=1), see=shape),
    Step("10 object as value", "POST /connectors", 500, create("bad", {"a": {}}), see=shape),
    Step("10 array as value", "POST /connectors", 500, create("bad", {"a": [1]}), see=shape),
    Step("10 null as value", "POST /connectors", 400, create("bad", config() | {"xyz": None})),
    Step("10 empty name", "POST /connectors", 400, create("")),
    Step("10 control character", "POST /connectors", 400, create("a\x01b")),
    Step("10 config is text", "POST /connectors", 500, {"name": "b", "config": "x"}, see=shape),
    _get("10 none was created", "/connectors"),
]

_MIRROR = "/connectors/mirror"
_PUT = "/connectors/put"
_BESIDE = config(topics=OTHER_TOPIC)
_NUMBERS = ', "x.a": 1.50, "x.b": 1e3, "x.c": true, "tasks.max": 3}'
_CREATE = [
    Step("11 create", "POST /connectors", 201, create("mirror")),
    _get("11 running", f"{_MIRROR}/status", until=states("RUNNING", 2)),
    _get("11 info", _MIRROR),
    Step("12 again", "POST /connectors", 409, create("mirror")),
    Step("12 invalid before it exists", "POST /connectors", 400,
         create("mirror", config(tasks__max="0"))),
    Step("12 name is trimmed", "POST /connectors", 409, create(" mirror ")),
    Step("13 another name in config", "POST /connectors", 400,
         create("other", config(name="different"))),
    Step("13 PUT", "PUT /connectors/other/config", 400, config(name="different")),
    Step("14 tasks.max is no number", "POST /connectors", 400,
         create("other", config(tasks__max="abc"))),
    Step("14 tasks.max 0", "POST /connectors", 400, create("other", config(tasks__max="0"))),
    Step("14 PUT new", "PUT /connectors/other/config", 400, config(tasks__max="0")),
    Step("14 PUT existing", f"PUT {_MIRROR}/config", 400, config(tasks__max="0")),
    Step("14 PATCH", f"PATCH {_MIRROR}/config", 400, {"tasks.max": "0"}),
    Step("14 no boolean", "POST /connectors", 400,
         create("other", config(refresh__topics__enabled="maybe"))),
    Step("14 no such word", "POST /connectors", 400,
         create("other", config(errors__tolerance="some"))),
    Step("15 no source alias", "POST /connectors", 400,
         create("other", config(source__cluster__alias=None))),
    Step("16 unknown class", "POST /connectors", 400,
         create("other", config(connector__class="com.acme.NoSuch")), see=shape),
    Step("16 no class", "POST /connectors", 400,
         create("other", config(connector__class=None))),
    Step("16 PUT no class", "PUT /connectors/other/config", 400,
         config(connector__class=None)),
    Step("16 PUT no body", "PUT /connectors/other/config", 500, see=shape),
    Step("16 PUT an array", "PUT /connectors/other/config", 500, "[]", see=shape),
    Step("16 PUT an object as value", "PUT /connectors/other/config", 500, {"a": {}}, see=shape),
    _get("16 none was created", "/connectors"),
    Step("17 created stopped", "POST /connectors", 201, create("idle", initial_state="stopped")),
    _get("17 status", "/connectors/idle/status", until=states("STOPPED", 0)),
    _get("17 info", "/connectors/idle"),
    Step("17 created paused", "POST /connectors", 201, create("still", initial_state="PAUSED")),
    _get("17 paused without tasks", "/connectors/still/status", until=states("PAUSED", 0)),
    _bodiless("17 delete", "DELETE /connectors/still", 204),
    Step("18 bad initial state", "POST /connectors", 500,
         create("other", initial_state="x"), see=shape),
    Step("19 PUT new", f"PUT {_PUT}/config", 201, _BESIDE),
    _get("19 running", f"{_PUT}/status", until=states("RUNNING", 2)),
    Step("19 PUT again", f"PUT {_PUT}/config", 200, _BESIDE),
    Step("20 numbers", f"PUT {_PUT}/config", 200, json.dumps(_BESIDE)[:-1] + _NUMBERS),
    _get("20 three tasks", f"{_PUT}/status", until=states("RUNNING", 3)),
    _get("21 config", f"{_PUT}/config"),
    Step("22 PATCH", f"PATCH {_PUT}/config", 200, {"x.a": None, "b": "1"}),
    _get("22 config", f"{_PUT}/config"),
    Step("22 nothing to do", f"PATCH {_PUT}/config", 200, {"absent": None}),
    Step("22 no body", f"PATCH {_PUT}/config", 500, see=shape),
    Step("22 an object as value", f"PATCH {_PUT}/config", 500, {"a": {}}, see=shape),
    Step("22 without class", f"PATCH {_PUT}/config", 400, {"connector.class": None}),
    Step("23 PATCH of none", "PATCH /connectors/X/config", 404, {"a": "1"}),
    *(
        _get(f"24 none: {path or 'info'}", f"/connectors/X{path}", code)
        for path, code in {
            "": 404, "/config": 404, "/status": 404, "/tasks": 404, "/topics": 200,
            "/offsets": 404, "/tasks/0/status": 404,
        }.items()
    ),
    _bodiless("24 DELETE of none", "DELETE /connectors/X", 404),
    _bodiless("24 DELETE", f"DELETE {_PUT}", 204),
    _get("24 gone", _PUT, 404),
    _get("24 status is gone", f"{_PUT}/status", 404, until=status(404)),
    _bodiless("24 DELETE again", f"DELETE {_PUT}", 404),
    _get("25 names", "/connectors", see=unordered),
    *(
        _get(f"25 {query}", f"/connectors?{query}")
        for query in ("expand=info", "expand=status", "expand=info&expand=status",
                      "expand=bogus", "expand=INFO", "expand=")
    ),
]  # fmt: skip

_RESTART = f"POST {_MIRROR}/restart"
_STATES = [
    _bodiless("26 pause", f"PUT {_MIRROR}/pause", 202),
    _get("26 paused", f"{_MIRROR}/status", until=states("PAUSED", 2)),
    _bodiless("26 again", f"PUT {_MIRROR}/pause", 202),
    _bodiless("27 resume", f"PUT {_MIRROR}/resume", 202),
    _get("27 running", f"{_MIRROR}/status", until=states("RUNNING", 2)),
    _bodiless("27 again", f"PUT {_MIRROR}/resume", 202),
    _bodiless("28 stop", f"PUT {_MIRROR}/stop", 204),
    _get("28 stopped", f"{_MIRROR}/status", until=states("STOPPED", 0)),
    _bodiless("28 again", f"PUT {_MIRROR}/stop", 204),
    _get("28 info", _MIRROR),
    _get("28 no tasks", f"{_MIRROR}/tasks"),
    _bodiless("28 restart a stopped one", _RESTART, 204),
    _get("28 still stopped", f"{_MIRROR}/status", until=states("STOPPED", 0)),
    _bodiless("28 pause a stopped one", f"PUT {_MIRROR}/pause", 202),
    _get("28 paused without tasks", f"{_MIRROR}/status", until=states("PAUSED", 0)),
    _bodiless("28 resume", f"PUT {_MIRROR}/resume", 202),
    _get("28 running", f"{_MIRROR}/status", until=states("RUNNING", 2)),
    _bodiless("29 pause none", "PUT /connectors/X/pause", 404),
    _bodiless("29 resume none", "PUT /connectors/X/resume", 404),
    _bodiless("29 stop none", "PUT /connectors/X/stop", 404),
    _bodiless("30 only failed, none is", f"{_RESTART}?onlyFailed=true", 202, see=unordered),
    _bodiless("30 both flags", f"{_RESTART}?onlyFailed=true&includeTasks=true", 202,
              see=unordered),
    _bodiless("30 no flags", _RESTART, 204),
    _get("30 running", f"{_MIRROR}/status", until=states("RUNNING", 2)),
    _bodiless("30 odd flag", f"{_RESTART}?includeTasks=yes", 204),
    _get("30 running again", f"{_MIRROR}/status", until=states("RUNNING", 2)),
    _bodiless("30 with tasks", f"{_RESTART}?includeTasks=TRUE", 202, see=unordered),
    # Whether the restart is over cannot be seen, but what follows it can.
    _bodiless("30 pause", f"PUT {_MIRROR}/pause", 202),
    _get("30 paused", f"{_MIRROR}/status", until=states("PAUSED", 2)),
    _bodiless("30 resume", f"PUT {_MIRROR}/resume", 202),
    _get("30 resumed", f"{_MIRROR}/status", until=states("RUNNING", 2)),
    _bodiless("31 restart none", "POST /connectors/X/restart", 404),
    _bodiless("31 with tasks", "POST /connectors/X/restart?includeTasks=true", 404),
    *(
        _get(f"32 task {number}", f"{_MIRROR}/tasks/{number}/status", code)
        for number, code in {"0": 200, "99": 404, "abc": 404, "-1": 404, "00": 200,
                             "99999999999": 404}.items()
    ),
    _get("32 tasks", f"{_MIRROR}/tasks"),
    _get("32 a task alone", f"{_MIRROR}/tasks/0", 404),
    _bodiless("33 restart task", f"POST {_MIRROR}/tasks/0/restart", 204),
    _bodiless("33 restart no task", f"POST {_MIRROR}/tasks/99/restart", 404),
    _bodiless("33 of no connector", "POST /connectors/X/tasks/0/restart", 404),
    _bodiless("33 no number", f"POST {_MIRROR}/tasks/abc/restart", 404),
    Step("33 unsigned tasks", f"POST {_MIRROR}/tasks", 400, "[]"),
    Step("33 unsigned fence", f"PUT {_MIRROR}/fence", 400),
    _get("33 running", f"{_MIRROR}/status", until=states("RUNNING", 2)),
]  # fmt: skip

_PLACE = {"cluster": "src", "topic": TOPIC, "partition": 0}
_OFFSETS = f"{_MIRROR}/offsets"


def _offsets(partition: Any, offset: Any) -> dict[str, Any]:
    return {"offsets": [{"partition": partition, "offset": offset}]}


def _refused(name: str, partition: Any, offset: Any) -> Step:
    return Step(f"34 {name}", f"PATCH {_OFFSETS}", 500, _offsets(partition, offset))


_ALTER = _offsets(_PLACE, {"offset": 3})
_POSITIONS = [
    _get("34 all is copied", _OFFSETS, see=unordered, until=offsets_of(_LAST, _LAST, _LAST)),
    Step("34 running", f"PATCH {_OFFSETS}", 400, _ALTER),
    Step("34 empty", f"PATCH {_OFFSETS}", 400, {}),
    Step("34 no offsets", f"PATCH {_OFFSETS}", 400, {"offsets": []}),
    Step("34 no body", f"PATCH {_OFFSETS}", 500, see=shape),
    Step("34 none", "PATCH /connectors/X/offsets", 404, _ALTER),
    Step("34 none, empty", "PATCH /connectors/X/offsets", 400, {}),
    _bodiless("34 reset while running", f"DELETE {_OFFSETS}", 400),
    _bodiless("34 reset none", "DELETE /connectors/X/offsets", 404),
    _bodiless("34 stop", f"PUT {_MIRROR}/stop", 204),
    _get("34 stopped", f"{_MIRROR}/status", until=states("STOPPED", 0)),
    Step("34 alter", f"PATCH {_OFFSETS}", 200, _ALTER),
    _get("34 altered", _OFFSETS, see=unordered, until=offsets_of(3, _LAST, _LAST)),
    _refused("no topic", {"cluster": "src", "partition": 0}, {"offset": 3}),
    _refused("no cluster", {"topic": TOPIC, "partition": 0}, {"offset": 3}),
    _refused("no partition", {"topic": TOPIC, "cluster": "src"}, {"offset": 3}),
    _refused("partition is text", _PLACE | {"partition": "0"}, {"offset": 3}),
    _refused("negative partition", _PLACE | {"partition": -1}, {"offset": 3}),
    _refused("negative offset", _PLACE, {"offset": -1}),
    _refused("offset is text", _PLACE, {"offset": "3"}),
    _refused("no offset", _PLACE, {}),
    _refused("null as partition", None, {"offset": 3}),
    Step("34 unknown field", f"PATCH {_OFFSETS}", 500, {"offsets": [], "foo": 1}, see=shape),
    Step("34 null resets", f"PATCH {_OFFSETS}", 200, _offsets(_PLACE, None)),
    _get("34 one is reset", _OFFSETS, see=unordered, until=offsets_of(_LAST, _LAST)),
    _bodiless("35 reset", f"DELETE {_OFFSETS}", 200),
    _bodiless("35 again", f"DELETE {_OFFSETS}", 200),
    _get("35 none left", _OFFSETS, until=offsets_of()),
    _get("36 topics", f"{_MIRROR}/topics"),
    _bodiless("36 forget them", f"PUT {_MIRROR}/topics/reset", 202),
    _get("36 forgotten", f"{_MIRROR}/topics", until=body_is({"mirror": {"topics": []}})),
    _bodiless("36 of none", "PUT /connectors/X/topics/reset", 202),
]


def _other(kind: str, place: dict[str, Any]) -> list[Step]:
    """The life of one of the other two connectors."""
    name = kind.lower()
    path = f"/connectors/{name}"
    return [
        Step(f"34 {name}: create", "POST /connectors", 201, create(name, config(kind))),
        _get(f"34 {name}: running", f"{path}/status", until=states("RUNNING", 1)),
        _get(f"34 {name}: tasks", f"{path}/tasks"),
        _bodiless(f"34 {name}: stop", f"PUT {path}/stop", 204),
        _get(f"34 {name}: stopped", f"{path}/status", until=states("STOPPED", 0)),
        Step(f"34 {name}: alter", f"PATCH {path}/offsets", 200, _offsets(place, {"offset": 0})),
        Step(f"34 {name}: not 0", f"PATCH {path}/offsets", 500, _offsets(place, {"offset": 5})),
        *(
            Step(f"34 {name}: no {key}", f"PATCH {path}/offsets", 500,
                 _offsets({k: v for k, v in place.items() if k != key}, {"offset": 0}))
            for key in place
        ),
        _bodiless(f"35 {name}: reset", f"DELETE {path}/offsets", 200),
        _get(f"35 {name}: none left", f"{path}/offsets", until=offsets_of()),
        _bodiless(f"35 {name}: delete", f"DELETE {path}", 204),
    ]  # fmt: skip


_OTHERS = [
    *_other("Checkpoint", {"group": GROUP, "topic": f"src.{TOPIC}", "partition": 0}),
    *_other("Heartbeat", {"sourceClusterAlias": "src", "targetClusterAlias": "dst"}),
]

_KINDS = ("Source", "Checkpoint", "Heartbeat")
_PLUGINS = "/connector-plugins"


def _validate(name: str, plugin: str, body: Any, code: int = 200, **more: Any) -> Step:
    request = f"PUT {_PLUGINS}/{plugin}/config/validate"
    return Step(f"38 {name}", request, code, body, **({"see": errors} | more))


def _source(**changes: Any) -> dict[str, Any]:
    return config(name="x", **changes)


_BROKEN = _source(
    tasks__max="0", foo="bar", refresh__topics__interval__seconds="x", offset__lag__max="z",
    refresh__topics__enabled="maybe", config__action__reload="x", errors__tolerance="some",
    transaction__boundary="zzz", admin__timeout__ms="",
) | {"offset-syncs.topic.location": "moon"}  # fmt: skip
_SHORT = {kind: f"Mirror{kind}Connector" for kind in _KINDS}
_VALIDATION = [
    _get("37 plugins", _PLUGINS, see=unordered),
    _get("37 with a slash", f"{_PLUGINS}/", see=unordered),
    _get("37 all plugins", f"{_PLUGINS}?connectorsOnly=false", see=shape),
    *(
        _get(f"37 keys of {kind}", f"{_PLUGINS}/{_SHORT[kind]}/config", see=definitions)
        for kind in _KINDS
    ),
    _get("37 shortest name", f"{_PLUGINS}/MirrorSource/config", see=shape),
    _get("37 long name", f"{_PLUGINS}/org.apache.kafka.connect.mirror.{_SHORT['Source']}/config",
         see=shape),
    _get("37 unknown", f"{_PLUGINS}/Nope/config", 404),
    _get("37 letters count", f"{_PLUGINS}/mirrorsourceconnector/config", 404),
    _get("37 version", f"{_PLUGINS}/{_SHORT['Source']}/config?version=4.3.1", see=shape),
    _get("37 another version", f"{_PLUGINS}/{_SHORT['Source']}/config?version=1.0", 400),
    _get("37 plugin alone", f"{_PLUGINS}/{_SHORT['Source']}", 404),
    *(
        _validate(f"good {kind}", _SHORT[kind], config(kind, name="x"), see=values)
        for kind in _KINDS
    ),
    *(_validate(f"only class, {kind}", _SHORT[kind], {"connector.class": _SHORT[kind]})
      for kind in _KINDS),
    *(_validate(f"shortest name, {kind}", f"Mirror{kind}", {"connector.class": f"Mirror{kind}"})
      for kind in _KINDS),
    _validate("another class", _SHORT["Source"], config("Heartbeat"), 400, see=unordered),
    _validate("end of the name", "Source", _source()),
    _validate("no class", _SHORT["Source"], {"name": "x"}, 500, see=shape),
    _validate("unknown class", "Nope", {"connector.class": "Nope"}, 500, see=shape),
    _validate("no body", _SHORT["Source"], None, 500, see=shape),
    _validate("half an object", _SHORT["Source"], "{", 500, see=shape),
    _validate("many errors", _SHORT["Source"], _BROKEN),
    _validate("tasks.max is no number", _SHORT["Source"], _source(tasks__max="abc")),
    _validate("null", _SHORT["Source"], _source() | {"foo": None}),
    _validate("no regular expression", _SHORT["Source"], _source(topics="(")),
    _validate("numbers", _SHORT["Source"], _source(tasks__max=3, refresh__topics__enabled=True)),
    _validate("exactly once, uncommitted", _SHORT["Source"],
              _source(exactly__once__support="required")),
    _validate("no syncs but their topic", _SHORT["Source"],
              _source() | {"emit.offset-syncs.enabled": "false"}),
    _validate("no checkpoints", _SHORT["Checkpoint"],
              config("Checkpoint", name="x", emit__checkpoints__enabled="false")),
    _validate("checkpoints without syncs", _SHORT["Checkpoint"],
              config("Checkpoint", name="x") | {"emit.offset-syncs.enabled": "false"}),
    _validate("disabled, so nothing counts", _SHORT["Checkpoint"],
              config("Checkpoint", name="x", enabled="false", emit__checkpoints__enabled="false")),
    _validate("tutorial", _SHORT["Source"],
              _source(replication__policy__separator="_", refresh__topics__interval__seconds=60)),
]  # fmt: skip

#: No other step changes it, and both have it.
_LOGGER = "/admin/loggers/root"
_LOGGERS = [
    _get("39 loggers", "/admin/loggers", see=keyed),
    _get("39 with a slash", "/admin/loggers/", see=keyed),
    _get("39 root", _LOGGER, see=shape),
    _get("39 unknown", "/admin/loggers/no.such.logger", 404),
    Step("39 worker", f"PUT {_LOGGER}", 200, {"level": "WARN"}, see=shape),
    _get("39 changed", _LOGGER),
    Step("39 same level", f"PUT {_LOGGER}?scope=worker", 200, {"level": "warn"}),
    Step("39 cluster", f"PUT {_LOGGER}?scope=cluster", 204, {"level": "INFO"}),
    _get("39 changed by cluster", _LOGGER, until=lambda found: found.body["level"] == "INFO"),
    Step("39 bad level", f"PUT {_LOGGER}", 404, {"level": "LOUD"}),
    Step("39 bad level, cluster", f"PUT {_LOGGER}?scope=cluster", 404, {"level": "LOUD"}),
    Step("39 no level", f"PUT {_LOGGER}", 400, {}),
    Step("39 no body", f"PUT {_LOGGER}", 500, see=shape),
    Step("39 odd scope", f"PUT {_LOGGER}?scope=planet", 200, {"level": "INFO"}),
    Step("39 no name", "PUT /admin/loggers/", 405, {"level": "INFO"}),
]

_ARROW = "/connectors/A-%3EB.MirrorSourceConnector"
_NAMES = [
    Step("40 create", "POST /connectors", 201, create("A->B.MirrorSourceConnector", _BESIDE)),
    _get("40 running", f"{_ARROW}/status", until=states("RUNNING", 2)),
    _get("40 as Strimzi asks", "/connectors/A%2D%3EB.MirrorSourceConnector/config"),
    Step("40 PUT", f"PUT {_ARROW}/config", 200, _BESIDE),
    _bodiless("40 stop", f"PUT {_ARROW}/stop", 204),
    _get("40 stopped", f"{_ARROW}/status", until=states("STOPPED", 0)),
    _bodiless("40 delete", f"DELETE {_ARROW}", 204),
    _get("40 gone", f"{_ARROW}/status", 404, until=status(404)),
    _bodiless("40 delete the first", f"DELETE {_MIRROR}", 204),
    _bodiless("40 delete the stopped", "DELETE /connectors/idle", 204),
    _get("40 none left", "/connectors", until=body_is([])),
]

STEPS: list[Step] = [
    *_GENERAL, *_BODIES, *_CREATE, *_STATES, *_POSITIONS, *_OTHERS, *_VALIDATION, *_LOGGERS,
    *_NAMES,
]  # fmt: skip
